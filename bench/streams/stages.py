"""Part ``stages``: CPU time of the benchmark application for zkconsumer, by query stage."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from typing import Any

from bench.grid import grid
from bench.streams import output, workload
from bench.streams.applications import Application, Run, Running
from bench.streams.count import BATCHES, MAX_BATCH_RECORDS
from bench.streams.cpu import CpuSampler
from bench.streams.stages_app import SINK, STAGES
from zkconsumer.devcluster import DevCluster

_TIMEOUT_S = 300.0


def measure(cluster: DevCluster, records: int, keys: int, rounds: int) -> list[dict[str, Any]]:
    """Run the query up to each stage, and return a row for each stage; the last two stages have a row per variant."""
    source = workload.fill(cluster, f"bench-stages-{keys}", records, keys)
    cases = [(stage, False) for stage in STAGES] + [(stage, True) for stage in STAGES[-2:]]
    runs: dict[tuple[str, bool], list[dict[str, Any]]] = {case: [] for case in cases}
    for number in range(rounds):
        for stage, cached in cases[:: -1 if number % 2 else 1]:
            figures = _run(cluster, source, stage, cached, min(MAX_BATCH_RECORDS, records // BATCHES))
            runs[stage, cached].append(figures)
            used = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in figures["CPU s per million"].items())
            print(
                f"  {stage}{', cached' if cached else ''}: {used}; {figures['s per million']:.2f} s per million, other "
                f"processes use {figures['cores of others']:.2f} cores",
                file=sys.stderr,
                flush=True,
            )
    rows = []
    for (stage, cached), found in runs.items():
        kinds = sorted({kind for run in found for kind in run["CPU s per million"]})
        medians = {kind: statistics.median(run["CPU s per million"].get(kind, 0.0) for run in found) for kind in kinds}
        seconds = statistics.median(run["s per million"] for run in found)
        row = {"stage": stage, "cached": cached, "keys": keys}
        rows.append({**row, "CPU s per million": medians, "s per million": seconds, "runs": found})
    return rows


def _run(cluster: DevCluster, source: str, stage: str, cached: bool, batch_records: int) -> dict[str, Any]:
    """Run the query up to ``stage``, and return the figures of all batches except the first."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    sink = output.create_topic(cluster, f"{name}-out")
    with tempfile.TemporaryDirectory(prefix="zkconsumer-bench-", ignore_cleanup_errors=True) as folder:
        run = Run(
            name=name,
            brokers=cluster.bootstrap_servers,
            input=source,
            output=sink,
            folder=folder,
            cached=cached,
            batch_records=batch_records,
        )
        application = Application(
            lambda settings: [sys.executable, "-m", "bench.streams.stages_app", stage, settings.to_json()]
        )
        with Running(application, run) as running, CpuSampler(running.pids) as cpu:
            reports = _wait(running)
            time.sleep(0.5)  # wait for another CPU sample
    cluster.admin.delete_topic(sink)
    start, end = reports[0]["time"], reports[-1]["time"]
    millions = batch_records * (len(reports) - 1) / 1e6
    return {
        "CPU s per million": {kind: used / millions for kind, used in cpu.between(start, end).items()},
        "s per million": (end - start) / millions,
        "cores of others": cpu.others_between(start, end),
        "batches": reports,
    }


def _wait(running: Running) -> list[dict[str, Any]]:
    """Wait for ``BATCHES`` batches with records, and return their reports."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        running.check()
        lines = [line for line in running.read_log().splitlines() if line.startswith('{"batch"')]
        if len(lines) >= BATCHES:
            return [json.loads(line) for line in lines[:BATCHES]]
        time.sleep(0.1)
    raise TimeoutError(f"the batches did not finish within {_TIMEOUT_S:g} s:\n{running.read_log()[-4000:]}")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians as a reStructuredText table."""
    kinds = ("JVM", "Python workers")
    cells: list[tuple[str, ...]] = []
    for row in rows:
        used = row["CPU s per million"]
        rest = sum(seconds for kind, seconds in used.items() if kind not in kinds)
        name = f"{row['stage']}{', cached' if row['cached'] else ''}"
        figures = (*(used.get(kind, 0.0) for kind in kinds), rest, sum(used.values()), row["s per million"])
        cells.append((name.replace(SINK, "and sink (all)"), *(f"{figure:.2f}" for figure in figures)))
    return str(grid(("CPU s per million records", *kinds, "others", "sum", "s per million"), cells))
