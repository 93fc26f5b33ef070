"""Part ``latency``: latency from the producer to the output topic, at 10,000 records/s.

The key of record ``n`` is ``n`` modulo the number of keys, so the key and the count of an output record identify its
input record. The latency is the time from just before the input record is sent until the output record is appended.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from typing import Any

import numpy as np

from bench.grid import grid
from bench.paced_load import PacedLoad
from bench.streams import output, workload
from bench.streams.applications import APPLICATIONS, Run, Running
from bench.streams.cpu import CpuSampler
from zkconsumer.devcluster import Admin, DevCluster
from zkconsumer.message import TopicPartition

RATE, KEYS = 10_000, 100_000

#: Duration of the load after the first output record, and duration of the measurement at its end, in seconds.
LOAD_S, MEASURED_S = 45.0, 25.0

#: Trigger or commit interval of each application, in milliseconds.
INTERVALS_MS = {"zkconsumer": 200, "Kafka Streams": 100}

_STEP = 200
_TIMEOUT_S = 120.0


def start_load(cluster: DevCluster, topic: str, times: list[float]) -> PacedLoad:
    """Start a load of ``RATE`` records per second.

    Args:
        topic: input topic.
        times: receives the time just before each block of ``_STEP`` records is sent, in seconds since the epoch.
    """

    def produce(admin: Admin) -> None:
        numbers: Any = (np.arange(_STEP) + len(times) * _STEP) % KEYS
        records = {
            TopicPartition(topic, number): workload.encode_batch(numbers[numbers % workload.PARTITIONS == number])
            for number in range(workload.PARTITIONS)
        }
        times.append(time.time())
        admin.produce_all(records)

    return PacedLoad(cluster.new_admin(), _STEP / RATE, produce)


def measure(cluster: DevCluster, rounds: int) -> list[dict[str, Any]]:
    """Run the applications alternately, and return a row for each."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in INTERVALS_MS}
    for number in range(rounds):
        for name in list(INTERVALS_MS)[:: -1 if number % 2 else 1]:
            runs[name].append(_run(cluster, name))
            print(f"  latency, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    return [
        {
            "who": name,
            "interval ms": INTERVALS_MS[name],
            **{key: statistics.median(run[key] for run in found) for key in found[0]},
            "runs": found,
        }
        for name, found in runs.items()
    ]


def _run(cluster: DevCluster, name: str) -> dict[str, float]:
    """Run an application, and return its latency percentiles in milliseconds and its CPU usage."""
    run_name = f"bench-{uuid.uuid4().hex[:8]}"
    source = cluster.create_topic(f"{run_name}-in", workload.PARTITIONS)
    sink = output.create_topic(cluster, f"{run_name}-out")
    with tempfile.TemporaryDirectory(prefix="zkconsumer-bench-", ignore_cleanup_errors=True) as folder:
        run = Run(
            name=run_name,
            brokers=cluster.bootstrap_servers,
            input=source,
            output=sink,
            folder=folder,
            cached=False,
            batch_records=1_000_000,
            commit_ms=INTERVALS_MS[name],
        )
        with Running(APPLICATIONS[name], run) as running, CpuSampler(running.pids) as cpu:
            times: list[float] = []
            load = start_load(cluster, source, times)
            try:
                _wait_for_output(cluster, running, sink)
                time.sleep(LOAD_S)
                end = time.time()
            finally:
                load.stop()
            running.check()
            written = output.read_output(cluster, sink)
    cluster.admin.delete_topic(source)
    cluster.admin.delete_topic(sink)
    keys, counts, appended = written.records
    sent = np.repeat(times, _STEP)[keys + (counts - 1) * KEYS]
    is_measured = (sent >= end - MEASURED_S) & (sent < end - MEASURED_S / 10)
    latencies = appended[is_measured] - sent[is_measured] * 1000
    used = sum(cpu.between(end - MEASURED_S, end).values())
    return {
        **{f"p{share}": float(np.percentile(latencies, share)) for share in (50, 99)},
        "cores": used / MEASURED_S,
        "cores of others": cpu.others_between(end - MEASURED_S, end),
        "records/s": len(latencies) / (MEASURED_S * 0.9),
    }


def _wait_for_output(cluster: DevCluster, running: Running, sink: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not output.count_records(cluster, sink):
        running.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no output after {_TIMEOUT_S:g} s:\n{running.read_log()[-4000:]}")
        time.sleep(0.2)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians as a reStructuredText table."""
    cells: list[tuple[str, ...]] = [
        (
            *(row["who"], str(row["interval ms"])),
            *(f"{row[key]:,.0f}" for key in ("p50", "p99")),
            *(f"{row[key]:.1f}" for key in ("cores", "cores of others")),
        )
        for row in rows
    ]
    header = (
        *("producer to output, 10,000 records/s", "interval, ms", "p50, ms", "p99, ms"),
        *("cores used", "cores used by other programs"),
    )
    return str(grid(header, cells))
