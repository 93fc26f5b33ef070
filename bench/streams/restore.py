"""Part ``restore``: time until an application with 1 GB or 4 GB of state resumes on another machine.

The state is the last value of each key. After the state is written, the application is killed, and its local files are
deleted, except for the Spark checkpoint. Then one new record is produced to each partition, and the application is
restarted. Kafka Streams is restarted only after its session timeout. The measurement ends when each new record has an
output record. It includes process startup; runs with 1 MB of state show how long the startup takes.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.grid import grid
from bench.streams import output, prepared, workload
from bench.streams.applications import PREPARED, STARTED, Run, Running
from bench.streams.cpu import CpuSampler
from zkconsumer.devcluster import DevCluster

VALUE_SIZE, KEYS = 1_000, (1_000, 1_000_000, 4_000_000)
NAMES = ("zkconsumer", PREPARED, "Kafka Streams")

_create_values = partial(workload.create_random_values, size=VALUE_SIZE)

#: Subdirectories that another machine would have, too: the checkpoint, which would be on shared storage, and Spark.
_KEPT = {"checkpoint", prepared.HOME}

#: Seconds to wait for the commit of the state after the last output record.
_COMMIT_S = 10.0

#: Seconds to wait until the Kafka Streams group removes the killed member: slightly more than the default session
#: timeout, 45 s. Otherwise, the restarted application would wait that long for its partitions.
_SESSION_S = 46.0
_TIMEOUT_S = 600.0


def measure(cluster: DevCluster, names: Collection[str], keys: int, rounds: int) -> list[dict[str, Any]]:
    """Run the selected applications with ``keys`` keys.

    Returns:
        A row for each application, and for Kafka Streams a second row, measured with its local files kept.
    """
    rows = []
    for name in (one for one in NAMES if one in names):
        with tempfile.TemporaryDirectory(prefix="zkconsumer-bench-", ignore_cleanup_errors=True) as folder:
            benchmark = RestoreBenchmark(cluster, name, folder, keys)
            benchmark.write_state()
            for keeps_files in (False, True) if name == "Kafka Streams" else (False,):
                runs = [benchmark.restart(keeps_files) for _ in range(rounds)]
                row = {"who": name, "local files kept": keeps_files, "keys": keys, "runs": runs}
                rows.append({**row, **{key: statistics.median(run[key] for run in runs) for key in runs[0]}})
                what = f"{name}, {keys} keys, local files kept: {keeps_files}"
                print(f"  restore, {what}: {runs}", file=sys.stderr, flush=True)
            benchmark.delete_topics()
    return rows


class RestoreBenchmark:
    """Writes the state of an application, and restarts the application.

    Args:
        cluster: development cluster.
        name: name of the application.
        folder: directory of the run.
        keys: number of keys.
    """

    def __init__(self, cluster: DevCluster, name: str, folder: str, keys: int) -> None:
        self._cluster, self._application, self._keys, self._outputs = cluster, STARTED[name], keys, 0
        self._has_session, self._is_prepared = name == "Kafka Streams", name == PREPARED
        run_name = f"bench-{uuid.uuid4().hex[:8]}"
        self._run = Run(
            name=run_name,
            brokers=cluster.bootstrap_servers,
            input=cluster.create_topic(f"{run_name}-in", workload.PARTITIONS),
            output=output.create_topic(cluster, f"{run_name}-out"),
            folder=folder,
            cached=False,
            batch_records=100_000,
            keeps_values=True,
        )

    def write_state(self) -> None:
        """Process one record per key."""
        workload.produce(self._cluster, self._run.input, np.arange(self._keys), _create_values)
        with Running(self._application, self._run) as running:
            self._wait(running, self._keys)
            time.sleep(_COMMIT_S)
            running.check()
            if self._is_prepared:
                running.stop()  # the JVM writes the archive when it exits

    def restart(self, keeps_files: bool) -> dict[str, float]:
        """Process one record per partition with a restarted application; return the seconds, CPU time and file size."""
        for path in () if keeps_files else Path(self._run.folder).iterdir():
            if path.is_dir() and path.name not in _KEPT:
                shutil.rmtree(path)
        workload.produce(self._cluster, self._run.input, np.arange(workload.PARTITIONS), _create_values)
        if self._has_session:
            time.sleep(_SESSION_S)
        started = time.time()
        with Running(self._application, self._run) as running, CpuSampler(running.pids) as cpu:
            self._wait(running, workload.PARTITIONS)
            ended = time.time()
            time.sleep(_COMMIT_S)
            size = sum(path.stat().st_size for path in self._list_files())
        used = sum(cpu.between(started, ended).values())
        return {"seconds": ended - started, "CPU s": used, "bytes of files": float(size)}

    def _list_files(self) -> Iterator[Path]:
        """Yield the files of the run, except those of Spark itself."""
        for path in Path(self._run.folder).iterdir():
            if path.name not in (prepared.HOME, prepared.ARCHIVE):
                yield from (found for found in path.rglob("*") if found.is_file())

    def delete_topics(self) -> None:
        """Delete the input and output topics."""
        for topic in (self._run.input, self._run.output):
            self._cluster.admin.delete_topic(topic)

    def _wait(self, running: Running, records: int) -> None:
        """Wait for ``records`` more output records."""
        deadline = time.monotonic() + _TIMEOUT_S
        while (count := output.count_records(self._cluster, self._run.output)) < self._outputs + records:
            running.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {count} output records after {_TIMEOUT_S:g} s:\n{running.read_log()[-4000:]}")
            time.sleep(0.1)
        self._outputs = count


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians as a reStructuredText table."""
    cells: list[tuple[str, ...]] = [
        (
            f"{row['keys']:,}",
            row["who"],
            "yes" if row["local files kept"] else "no",
            f"{row['bytes of files'] / 1e9:.1f}",
            f"{row['seconds']:.1f}",
            f"{row['CPU s']:.0f}",
        )
        for row in rows
    ]
    return str(grid(("keys", "restart", "local files kept", "GB of files", "seconds", "CPU s"), cells))
