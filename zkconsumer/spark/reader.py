"""The executors' side of a query: fetch some ranges with the consumer's own fetchers, hand on Arrow batches."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

from zkconsumer.errors import BrokerUnavailableError, CorruptRecordError
from zkconsumer.fetcher.decode import ArrowReader
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.fetcher.thread import PartitionTopicInfo
from zkconsumer.spark.ranges import FetchTask

_frozen = threading.Event()


def read(task: FetchTask) -> Iterator[Any]:
    """Yield the records of the task's ranges as Arrow record batches.

    Raises:
        OffsetOutOfRangeError: the log does not have an offset of a range (any more).
        CorruptRecordError: a damaged batch, also when it is fetched again, or one that its broker cannot read.
        BrokerUnavailableError: nothing came for ``task.patience`` seconds.
    """
    _freeze_once()
    stream = StreamQueue()
    infos = [
        PartitionTopicInfo(partition, PartitionQueue(stream, task.chunks), start, until)
        for partition, (start, until) in task.ranges.items()
    ]
    manager = ConsumerFetcherManager(
        "zkconsumer-spark-task",
        task.settings,
        lambda: task.brokers,
        num_fetchers=1,
        on_failure=lambda _info, error: stream.fail(error),
    )
    manager.start_connections()
    try:
        manager.add_partitions(infos, task.leaders)
        yield from _read_until_done(task, stream, manager)
    finally:
        stream.close()
        manager.stop_connections()


def _read_until_done(task: FetchTask, stream: StreamQueue, manager: ConsumerFetcherManager) -> Iterator[Any]:
    reader = ArrowReader(include_headers=task.include_headers, check_crcs=task.check_crcs)
    missing = {partition: until for partition, (_, until) in task.ranges.items()}
    damaged: set[tuple[str, int, int]] = set()
    while missing:
        taken = stream.take(task.patience)
        if taken is None:
            partition = min(missing)
            raise BrokerUnavailableError(
                f"no records came for {task.patience:g} s (option unavailable.timeout.ms); topic {partition.topic!r} "
                f"partition {partition.partition} has to be read up to offset {missing[partition]}"
            )
        queue, chunk = taken
        try:
            for batch, _ in reader.read(chunk):
                yield batch
        except CorruptRecordError as error:
            place = (*chunk.partition, error.offset)
            if place in damaged:
                raise
            damaged.add(place)  # once more, from the same place: it may have been damaged on its way
            manager.refetch(queue, chunk.partition, error.offset)
            continue
        if chunk.next_offset >= missing[chunk.partition]:
            del missing[chunk.partition]
            manager.remove_partitions([chunk.partition])


def _freeze_once() -> None:
    """Exempt what the worker has loaded from garbage collection, which Spark runs after each task.

    Worth about 50 ms a task; the objects are modules and classes, which live as long as the worker does.
    """
    if not _frozen.is_set():
        _frozen.set()
        gc.collect()
        gc.freeze()
