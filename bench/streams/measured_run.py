"""Runs an application over all its input, and checks its output."""

from __future__ import annotations

import tempfile
import time
import uuid
from typing import Any, NamedTuple

import numpy as np

from bench.streams import output, workload
from bench.streams.applications import Application, Run, Running
from bench.streams.cpu import CpuSampler
from zkconsumer.devcluster import DevCluster

#: Seconds without new output before checking whether an application with record caches has finished.
_QUIET_S = 4.0
_TIMEOUT_S = 900.0


class Expected(NamedTuple):
    """Expected output of an application.

    Attributes:
        keys: sorted keys, as numbers.
        counts: last count of each key.
    """

    keys: Any
    counts: Any

    def check(self, written: output.Output) -> None:
        """Raise an error if the last counts differ from the expected counts."""
        if not (np.array_equal(self.keys, written.last_keys) and np.array_equal(self.counts, written.last_counts)):
            raise RuntimeError(
                f"the last counts are wrong: expected {int(self.counts.sum())} records with {len(self.keys)} keys, "
                f"got {written.total} records with {len(written.last_keys)} keys"
            )


def measure_run(
    cluster: DevCluster, application: Application, source: str, expected: Expected, *, cached: bool, batch_records: int
) -> dict[str, Any]:
    """Run an application over all records of a topic, check the counts, and return the figures.

    Rates, and figures per million records, refer to the measurement window; see ``Output.find_window``.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    sink = output.create_topic(cluster, f"{name}-out")
    if application.changelog is not None:
        cluster.create_topic(name + application.changelog, workload.PARTITIONS)
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
        started = time.time()
        broker = CpuSampler([server.pid for server in cluster.brokers if server.pid])
        with broker, Running(application, run) as running, CpuSampler(running.pids) as cpu:
            written = _wait(cluster, running, sink, int(expected.counts.sum()), cached)
    expected.check(written)
    cluster.admin.delete_topic(sink)
    window = written.find_window()
    millions = window.records / 1e6
    used, used_in_total = cpu.between(window.start, window.end), cpu.between(started, window.end)
    return {
        "records": written.total,
        "total seconds": window.end - started,
        "total CPU s": sum(used_in_total.values()),
        "total CPU s by process": used_in_total,
        "cores of others in total": cpu.others_between(started, window.end),
        "records/s": window.rate,
        "CPU s per million": sum(used.values()) / millions,
        "CPU s per million by process": {kind: s / millions for kind, s in used.items()},
        "CPU s of the broker per million": sum(broker.between(window.start, window.end).values()) / millions,
        "cores of others": cpu.others_between(window.start, window.end),
        "MB of the largest process": {kind: size // 1_000_000 for kind, size in cpu.memory.items()},
        "records in window": window.records,
        "output records": len(written),
        "seconds before window": window.start - started,
        "curve": written.curve(),
    }


def _wait(cluster: DevCluster, running: Running, sink: str, total: int, cached: bool) -> output.Output:
    """Wait until all records are counted, and return the output."""
    deadline, changed, count = time.monotonic() + _TIMEOUT_S, time.monotonic(), 0
    while time.monotonic() < deadline:
        running.check()
        found = output.count_records(cluster, sink)
        if found != count:
            count, changed = found, time.monotonic()
        is_quiet = count > 0 and time.monotonic() - changed > _QUIET_S
        if count >= total if not cached else is_quiet:
            written = output.read_output(cluster, sink)
            if written.total >= total:
                return written
            changed = time.monotonic()
        time.sleep(0.5)
    raise TimeoutError(f"only {count} output records after {_TIMEOUT_S:g} s:\n{running.read_log()[-4000:]}")
