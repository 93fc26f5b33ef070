"""Part ``count``: throughput and CPU time of each application."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np

from bench.grid import grid
from bench.streams import workload
from bench.streams.applications import APPLICATIONS, Application
from bench.streams.measured_run import Expected, measure_run
from zkconsumer.devcluster import DevCluster

_WORKERS = "Python workers"

#: Number of batches in which an application on Spark processes the records, and maximum number of records per batch.
BATCHES = 5
MAX_BATCH_RECORDS = 1_000_000


class CountBenchmark:
    """Runs the applications with a fixed number of keys.

    Args:
        cluster: development cluster.
        records: number of records.
        keys: number of keys.
    """

    def __init__(self, cluster: DevCluster, records: int, keys: int) -> None:
        self._cluster, self._records, self._keys = cluster, records, keys
        self._inputs: dict[int, str] = {}

    def measure(self, names: list[str], rounds: int) -> list[dict[str, Any]]:
        """Run the applications alternately, and return a row for each application and variant."""
        runs: dict[tuple[str, bool], list[dict[str, Any]]] = {}
        cases = [(name, cached) for name in names for cached in APPLICATIONS[name].variants]
        for number in range(rounds):
            for name, cached in cases[:: -1 if number % 2 else 1]:
                application = APPLICATIONS[name]
                records = self._count_records(application)
                figures = measure_run(
                    self._cluster,
                    application,
                    self._find_input(records),
                    Expected(*np.unique(workload.choose_keys(records, self._keys), return_counts=True)),
                    cached=cached,
                    batch_records=min(MAX_BATCH_RECORDS, records // BATCHES),
                )
                runs.setdefault((name, cached), []).append(figures)
                print(
                    f"  {self._keys:,} keys, {name}{', cached' if cached else ''}: {figures['records/s']:,.0f} "
                    f"records/s, {figures['CPU s per million']:.2f} CPU s per million, other processes use "
                    f"{figures['cores of others']:.2f} cores",
                    file=sys.stderr,
                    flush=True,
                )
        return [self._summarize(*case, runs[case]) for case in cases]

    def _summarize(self, name: str, cached: bool, runs: list[dict[str, Any]]) -> dict[str, Any]:
        medians = {key: statistics.median(run[key] for run in runs) for key in ("records/s", "CPU s per million")}
        records = self._count_records(APPLICATIONS[name])
        return {"who": name, "cached": cached, "keys": self._keys, "records": records, **medians, "runs": runs}

    def _count_records(self, application: Application) -> int:
        return int(self._records * application.share)

    def _find_input(self, records: int) -> str:
        """Return the input topic with ``records`` records. The first call creates and fills it."""
        if records not in self._inputs:
            name = f"bench-streams-{self._keys}-{records}"
            self._inputs[records] = workload.fill(self._cluster, name, records, self._keys)
        return self._inputs[records]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians as a reStructuredText table."""
    cells: list[tuple[str, ...]] = [
        (
            row["who"],
            f"{row['keys']:,}",
            "yes" if row["cached"] else "no",
            f"{row['records'] / 1e6:g}",
            f"{row['records/s'] / 1000:,.0f}",
            f"{row['CPU s per million']:.1f}",
            f"{max(run.get('MB of the largest process', {}).get(_WORKERS, 0) for run in row['runs']) or '-'}",
            f"{max(0.0, statistics.median(run['cores of others'] for run in row['runs'])):.1f}",
        )
        for row in rows
    ]
    header = (
        *("count per key", "keys", "cached", "million records", "thousand records/s", "CPU s per million"),
        "MB of the largest Python worker",
        "cores used by other programs",
    )
    return str(grid(header, cells))
