"""Part ``start``: how long a query takes to plan its first batch and to end, and how long imports take.

The queries read a small topic with ``availableNow``. The first time is measured from ``start()`` until the first batch
is planned, the second one from the end of the last batch until the query has ended. The floor is the data source of
``bench.floor``, which needs no connections and plans nothing.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

from bench.grid import grid
from bench.idle import wait_until_idle

#: Records of the topic, and runs of each query.
RECORDS, RUNS = 10_000, 9

#: Imports that are measured: module, and module with which it is compared.
IMPORTS = {"zkconsumer": None, "zkconsumer.spark": "pyspark.sql.datasource"}

_PROGRAM = "import sys, time; started = time.perf_counter(); import {module}; print(time.perf_counter() - started)"

OWN, FLOOR = "zkconsumer", "floor"


def measure_imports() -> dict[str, float]:
    """Return the median time of each import in a new process, in seconds."""
    modules = [module for pair in IMPORTS.items() for module in pair if module is not None]
    runs: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(RUNS):
        for module, found in runs.items():
            wait_until_idle()
            command = [sys.executable, "-c", _PROGRAM.format(module=module)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(float(done.stdout))
    return {module: median(found) for module, found in runs.items()}


def table(results: dict[str, Any]) -> str:
    """Return the medians as a reStructuredText table."""
    rows = []
    for key, title in (
        ("planned", "from start() to the first planned batch"),
        ("end", "from the last batch to the end"),
    ):
        own, floor = ([run[key] * 1000 for run in results["queries"][source]] for source in (OWN, FLOOR))
        cells = f"{median(own):.0f}", f"{min(own):.0f} to {max(own):.0f}", f"{median(floor):.0f}"
        rows.append((title, *cells, f"{median(own) / median(floor):.2f}"))
    for module, other in IMPORTS.items():
        taken = results["imports"][module]
        beside = None if other is None else results["imports"][other]
        ratio = ("", "") if beside is None else (f"{beside * 1000:.0f} ({other})", f"{taken / beside:.2f}")
        rows.append((f"import {module}", f"{taken * 1000:.0f}", "", *ratio))
    return grid(("milliseconds, medians", "zkconsumer", "range", "floor", "ratio"), rows)
