"""Helpers for streaming queries: the records of their batches, their progress, and their checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
import pyarrow as pa
import pytest
from helpers.configurations import plaintext
from helpers.waiting import TIMEOUT_S, wait_for
from kafka.protocol.admin import DeleteRecordsRequest

import zkconsumer.spark
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL
from zkconsumer.spark.driver.source_reports import find_report

T = TypeVar("T")

#: First offset, end offset (exclusive) and number of records by topic and partition.
Spans = dict[tuple[str, int], tuple[int, int, int]]

#: Mark of tests of topologies.
runs_topology = pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="StreamsApp requires Spark 4.2 or later")

#: Mark of tests in which limits divide the records of a query with ``Trigger.AvailableNow`` into several batches.
divides_available_now = pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason="Spark runs one batch with Trigger.AvailableNow before 4.2"
)

#: Mark of tests in which a query starts although a partition has no leader.
waits_for_leaders = pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason="before Spark 4.2, the first batch waits until all partitions have a leader"
)

#: Trigger of queries that read all available records in several batches, or after a batch that they repeat. Before 4.2,
#: Spark ends a query with ``Trigger.AvailableNow`` after one batch, so ``Query.finish`` stops the query instead.
ALL_AVAILABLE = {"availableNow": True} if HAS_ADMISSION_CONTROL else {"processingTime": "0 seconds"}

#: Timeout in seconds for operations that take three seconds in a running Spark session.
START = 60.0


class Batch(NamedTuple):
    """One batch, as passed to ``foreachBatch``."""

    number: int
    table: pa.Table

    @property
    def spans(self) -> Spans:
        """Return the range of offsets and the number of records of each partition."""
        groups = self.table.group_by(["topic", "partition"]).aggregate([("offset", "min_max"), ("offset", "count")])
        return {
            (row["topic"], row["partition"]): (
                row["offset_min_max"]["min"],
                row["offset_min_max"]["max"] + 1,
                row["offset_count"],
            )
            for row in groups.to_pylist()
        }

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return list(self.table.column(name).to_pylist())


class Query:
    """A running query and its finished batches.

    Args:
        before: called with the number of each batch before its tasks start.
        on_batch: called with each batch before it finishes; an exception fails the query.
        trigger: arguments of ``DataStreamWriter.trigger``.
    """

    def __init__(
        self,
        frame: Any,
        checkpoint: Path,
        *,
        before: Callable[[int], object] | None = None,
        on_batch: Callable[[Batch], object] | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> None:
        self.batches: list[Batch] = []
        self.begun: list[Batch] = []
        self.checkpoint = checkpoint
        self._spark = frame.sparkSession
        self._before = before
        self._on_batch = on_batch
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        self._must_be_stopped = trigger is ALL_AVAILABLE and not HAS_ADMISSION_CONTROL
        self.handle = writer.start()

    def _take(self, frame: Any, number: int) -> None:  # runs in a thread of py4j
        if self._before is not None:
            self._before(number)
        batch = Batch(number, frame.toArrow())
        self.begun.append(batch)
        if self._on_batch is not None:
            self._on_batch(batch)
        self.batches.append(batch)

    @property
    def offsets(self) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) is in the finished batches."""
        return seen(self.batches)

    @property
    def count(self) -> int:
        """Return the number of records in the finished batches."""
        return sum(batch.table.num_rows for batch in self.batches)

    @property
    def state(self) -> dict[str, Any]:
        """Return the source's part of the last progress report, such as lag and ``rereadRecords``."""
        progress = self.handle.lastProgress
        if not progress:
            return {}
        return dict(find_report(json.loads(progress.json)["sources"][0]))

    def wait_for(self, condition: Callable[[], T], timeout: float = TIMEOUT_S, *, what: str = "") -> T:
        """Wait for a condition while the query runs; raise the error of a failed query."""

        def ask() -> T:
            if (error := self.handle.exception()) is not None:
                raise error
            return condition()

        return wait_for(ask, timeout, what=what)

    def wait_for_records(self, count: int, timeout: float = START) -> None:
        """Wait until the finished batches have at least ``count`` records in total."""
        self.wait_for(lambda: self.count >= count, timeout, what=f"{count} records")

    def wait_for_more(self, count: int = 1, timeout: float = START) -> None:
        """Wait for ``count`` more records."""
        self.wait_for_records(self.count + count, timeout)

    def finish(self, timeout: float = START) -> None:
        """Wait until the query terminates and its batches are committed; raise its error if it has failed."""
        if self._must_be_stopped:
            self.handle.processAllAvailable()
            self.handle.stop()
        assert self.handle.awaitTermination(timeout), "the query did not terminate"
        if not HAS_ADMISSION_CONTROL:  # the driver listener commits the last batch of Trigger.AvailableNow
            wait_for(lambda: not is_committing(self._spark, self.handle), 30, what="the last batch is committed")

    def stop(self) -> None:
        """Stop the query."""
        self.handle.stop()


def is_committing(spark: Any, query: Any = None) -> bool:
    """Return whether the listener of the session has running queries, unhandled events or commits.

    It commits the last batch of a query that has ended, for which the cluster must still be running.

    Args:
        query: the query that the listener must have handled; None for all queries.
    """
    listener = zkconsumer.spark.register(spark)
    assert listener is not None
    runs, threads = list(listener._queries), "zkconsumer-commit-"
    if query is not None:
        runs, threads = [run for run in runs if run == str(query.runId)], f"{threads}{query.name or query.id}"
    has_queries = bool(runs) or not listener._events.empty()
    return has_queries or any(thread.name.startswith(threads) for thread in threading.enumerate())


class Gate:
    """A sink that blocks one batch until ``open`` is called. Use it as ``on_batch=gate.hold``."""

    def __init__(self) -> None:
        self.number = 0
        self.holding = threading.Event()
        self._open = threading.Event()

    def hold(self, batch: Batch) -> None:
        """Block the batch with the number of this gate."""
        if batch.number == self.number:
            self.holding.set()
            self._open.wait()

    def open(self) -> None:
        """Let the batch continue."""
        self._open.set()


def seen(batches: Iterable[Batch]) -> Counter[tuple[int, int]]:
    """Return how often each (partition, offset) is in the batches."""
    return Counter(
        pair for batch in batches for pair in zip(batch.column("partition"), batch.column("offset"), strict=True)
    )


def planned(checkpoint: Path) -> dict[int, dict[tuple[str, int], tuple[int, int]]]:
    """Return the non-empty ranges of each batch in the offset log of a checkpoint."""
    logged = {}
    for file in (checkpoint / "offsets").iterdir():
        if file.name.isdigit():
            [_version, _metadata, offset] = file.read_text().splitlines()
            logged[int(file.name)] = {
                (topic, int(partition)): (start, until)
                for topic, partitions in json.loads(offset)["ranges"].items()
                for partition, (start, until) in partitions.items()
                if start < until
            }
    return logged


def check_union(spans: Iterable[Spans], expected: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Check that the spans cover the expected ranges without gaps or overlaps, and that no record is missing."""
    by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for batch in spans:
        for partition, (start, until, count) in batch.items():
            assert count == until - start, f"{partition} from {start} to {until} has {count} records"
            by_partition.setdefault(partition, []).append((start, until))
    joined = {}
    for partition, pieces in by_partition.items():
        pieces.sort()
        for (_, end), (start, _) in pairwise(pieces):
            assert end == start, f"{partition}: {pieces}"
        joined[partition] = (pieces[0][0], pieces[-1][1])
    assert joined == dict(expected)


def repetitions(counts: Iterable[Counter[tuple[int, int]]], ends: Mapping[int, int]) -> int:
    """Check that all offsets below ``ends`` were read; return the number of repeated reads."""
    total: Counter[tuple[int, int]] = Counter()
    for count in counts:
        total.update(count)
    missing = [(p, offset) for p, end in ends.items() for offset in range(end) if (p, offset) not in total]
    assert not missing, f"{len(missing)} of {sum(ends.values())} records are missing, the first: {missing[:10]}"
    return total.total() - len(total)


def runners(parent: int) -> list[psutil.Process]:
    """Return the planning processes among the descendants of ``parent``, a JVM or a driver."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        try:
            if any("python_streaming_source_runner" in part for part in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def task_connections(ports: Collection[int]) -> set[tuple[int, int]]:
    """Return the process and the local port of each connection of Spark's Python workers to one of the ports.

    Workers keep connections of earlier queries for a minute.
    """
    found = set()
    for process in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, such as a process of another query
            if "pyspark.daemon" in process.cmdline():
                found |= {
                    (process.pid, connection.laddr.port)
                    for connection in process.net_connections("tcp")
                    if connection.raddr and connection.raddr.port in ports and connection.status == "ESTABLISHED"
                }
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes with SIGKILL; ignore processes that have terminated."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def delete_records(cluster: DevCluster | ExistingCluster, partition: TopicPartition, before: int) -> None:
    """Delete the records of a partition below the offset ``before``."""
    lookup = LeaderLookup(plaintext(10))
    _, leader = lookup.leaders(parse_bootstrap(cluster.bootstrap_servers), [partition])[partition]
    lookup.close()
    channel = plaintext().channel(leader)
    t = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = t(
        name=partition.topic,
        partitions=[t.DeleteRecordsPartition(partition_index=partition.partition, offset=before)],
    )
    try:
        answer = channel.request(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000, max_version=1))
    finally:
        channel.close()
    assert answer.topics[0].partitions[0].error_code == 0
    assert answer.topics[0].partitions[0].low_watermark == before
