"""The part ``count``: rate and CPU time of each application."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from typing import Any

import numpy as np

from bench.report import grid
from bench.streams import output, workload
from bench.streams.applications import APPLICATIONS, Application, Run, Running
from bench.streams.cpu import CpuSampler
from zkconsumer.devcluster import DevCluster

#: Seconds without output after which an application with caches may have finished.
QUIET_S = 4.0

TIMEOUT_S = 900.0

_WORKERS = "Python workers"

#: Batches in which an application on Spark processes the records, at most a million records each.
BATCHES = 5
MAX_BATCH_RECORDS = 1_000_000


class CountBenchmark:
    """Runs the applications with one number of keys.

    Args:
        cluster: the brokers.
        records: number of records.
        keys: number of keys.
    """

    def __init__(self, cluster: DevCluster, records: int, keys: int) -> None:
        self._cluster, self._records, self._keys = cluster, records, keys
        self._inputs: dict[int, str] = {}

    def measure(self, names: list[str], rounds: int) -> list[dict[str, Any]]:
        """Run the applications alternately, and return a row for each of them and each variant."""
        runs: dict[tuple[str, bool], list[dict[str, Any]]] = {}
        cases = [(name, cached) for name in names for cached in APPLICATIONS[name].variants]
        for number in range(rounds):
            for name, cached in cases[:: -1 if number % 2 else 1]:
                figures = self._run(APPLICATIONS[name], cached)
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
        """Return the topic with a number of records; the first call fills it."""
        if records not in self._inputs:
            name = f"bench-streams-{self._keys}-{records}"
            self._inputs[records] = workload.fill(self._cluster, name, records, self._keys)
        return self._inputs[records]

    def _run(self, application: Application, cached: bool) -> dict[str, Any]:
        """Run an application over all its records, check the counts, and return the figures."""
        records = self._count_records(application)
        source = self._find_input(records)
        name = f"bench-{uuid.uuid4().hex[:8]}"
        sink = output.create_topic(self._cluster, f"{name}-out")
        if application.changelog is not None:
            self._cluster.create_topic(name + application.changelog, workload.PARTITIONS)
        with tempfile.TemporaryDirectory(prefix="zkconsumer-bench-", ignore_cleanup_errors=True) as folder:
            run = Run(
                name=name,
                brokers=self._cluster.bootstrap_servers,
                input=source,
                output=sink,
                folder=folder,
                cached=cached,
                batch_records=min(MAX_BATCH_RECORDS, records // BATCHES),
            )
            started = time.time()
            broker = CpuSampler([server.pid for server in self._cluster.brokers if server.pid])
            with broker, Running(application, run) as running, CpuSampler(running.pids) as cpu:
                written = self._wait(running, sink, records, cached)
        check_counts(written, records, self._keys)
        self._cluster.admin.delete_topic(sink)
        window = written.find_window()
        used = cpu.between(window.start, window.end)
        return {
            "records/s": window.rate,
            "CPU s per million": sum(used.values()) / window.records * 1e6,
            "CPU s per million by process": {kind: s / window.records * 1e6 for kind, s in used.items()},
            "CPU s of the broker per million": sum(broker.between(window.start, window.end).values())
            / window.records
            * 1e6,
            "cores of others": cpu.others_between(window.start, window.end),
            "MB of the largest process": {kind: size // 1_000_000 for kind, size in cpu.memory.items()},
            "records in window": window.records,
            "output records": len(written),
            "seconds before window": window.start - started,
            "curve": written.curve(),
        }

    def _wait(self, running: Running, sink: str, records: int, cached: bool) -> output.Output:
        """Wait until all records are counted, and return the output."""
        deadline, changed, count = time.monotonic() + TIMEOUT_S, time.monotonic(), 0
        while time.monotonic() < deadline:
            running.check()
            found = output.count_records(self._cluster, sink)
            if found != count:
                count, changed = found, time.monotonic()
            is_quiet = count > 0 and time.monotonic() - changed > QUIET_S
            if count >= records if not cached else is_quiet:
                written = output.read_output(self._cluster, sink)
                if written.total >= records:
                    return written
                changed = time.monotonic()
            time.sleep(0.5)
        raise TimeoutError(f"{count} output records after {TIMEOUT_S:g} s:\n{running.read_log()[-4000:]}")


def check_counts(written: output.Output, records: int, keys: int) -> None:
    """Check that the last counts are those of the records that ``workload.fill`` wrote."""
    numbers = np.random.default_rng(1).integers(keys, size=records)
    expected_keys, expected = np.unique(numbers, return_counts=True)
    if not (np.array_equal(expected_keys, written.last_keys) and np.array_equal(expected, written.last_counts)):
        raise RuntimeError(f"wrong counts: {written.total} records of {len(written.last_keys)} keys were counted")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians in reStructuredText."""
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
