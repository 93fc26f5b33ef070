"""The executors' side of a query: fetch some ranges with the consumer's own fetchers, hand on Arrow batches."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.cluster import LogOffsets
from zkconsumer.errors import BrokerUnavailableError, CorruptRecordError, OffsetOutOfRangeError, ZkConsumerError
from zkconsumer.fetcher.decode import Chunk
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.fetcher.thread import PartitionTopicInfo
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import DataLossError, end_offset_decreased, raise_or_log, range_deleted, topics_deleted
from zkconsumer.spark.executor.fetch_task import FetchTask

#: Seconds without records after which it is asked whether there are any, and those after which that is certain.
_SILENCE, _CERTAIN = 5.0, 30.0

_frozen = threading.Event()


def read(task: FetchTask) -> Iterator[Any]:
    """Yield the records of the task's ranges as Arrow record batches.

    Raises:
        OffsetOutOfRangeError: the log does not have an offset of a range (any more).
        CorruptRecordError: a damaged batch, also when it is fetched again, or one that its broker cannot read.
        UndecodableRecordError: a user's decoder raised an exception.
        BrokerUnavailableError: nothing came for ``task.patience`` seconds.
    """
    _freeze_once()
    stream = StreamQueue()
    infos = [
        PartitionTopicInfo(partition, PartitionQueue(stream, task.chunks), start, until)
        for partition, (start, until) in task.ranges.items()
        if start < until
    ]
    manager = ConsumerFetcherManager(
        "zkconsumer-spark-task",
        task.settings,
        lambda: task.brokers,
        num_fetchers=1,
        on_failure=lambda info, error: _failed(task, stream, info, error),
    )
    manager.start_connections()
    try:
        manager.add_partitions(infos, task.leaders)
        yield from _read_until_done(task, stream, manager)
    finally:
        stream.close()
        manager.stop_connections()


def _failed(
    task: FetchTask, stream: StreamQueue, info: PartitionTopicInfo, error: BaseException
) -> None:  # in a fetcher's thread
    """End the task; but where records are gone and may be, an empty chunk says where the partition goes on."""
    partition, until = info.partition, info.until
    if not isinstance(error, OffsetOutOfRangeError):
        stream.fail(error)
    elif task.fails_on_data_loss:
        stream.fail(range_deleted(partition, info.fetch_offset, until, error.first, error.end))
    else:
        get_logger("zkconsumer.spark").warning("records_lost", error=str(error), until=until)
        goes_on = min(error.first, until) if info.fetch_offset < error.first else until
        info.queue.put(Chunk(partition, goes_on, goes_on, b""))


def _read_until_done(task: FetchTask, stream: StreamQueue, manager: ConsumerFetcherManager) -> Iterator[Any]:
    rows = task.layout.rows(check_crcs=task.check_crcs, ends=task.end is not None)
    missing = {partition: until for partition, (start, until) in task.ranges.items() if start < until}
    damaged: set[tuple[str, int, int]] = set()
    lost_since: dict[TopicPartition, float] = {}
    heard_at = time.monotonic()
    while missing:
        taken = stream.take(max(0.1, min(task.patience / 8, _SILENCE)))
        if taken is None:
            silence = time.monotonic() - heard_at
            if silence > task.patience:
                partition = min(missing)
                raise BrokerUnavailableError(
                    f"no records came for {task.patience:g} s (option unavailable.timeout.ms); topic "
                    f"{partition.topic!r} partition {partition.partition} has to be read up to offset "
                    f"{missing[partition]}"
                )
            losses = _losses(task, missing)
            lost_since = {partition: lost_since.get(partition, silence) for partition in losses}
            for partition, since in lost_since.items():
                if silence - since < min(task.patience / 2, _CERTAIN):
                    continue  # a broker that has just started, or a new leader, may know less for a moment
                raise_or_log(losses[partition], task.fails_on_data_loss, get_logger("zkconsumer.spark"))
                del missing[partition]
                manager.remove_partitions([partition])
            continue
        heard_at = time.monotonic()
        queue, chunk = taken
        if chunk.partition not in missing:
            continue  # fetched before the end of its stream was seen
        reached = chunk.next_offset
        goes_on = not chunk.nbytes  # behind records that are lost
        try:
            yield from rows.read(chunk)
        except CorruptRecordError as error:
            place = (*chunk.partition, error.offset)
            goes_on, reached = True, error.offset
            if place in damaged:
                yield from rows.damaged(chunk.partition, error)
                reached = error.after
            damaged.add(place)  # once more, from the same place: it may have been damaged on its way
        if rows.has_ended:
            assert task.end is not None
            task.end.tell()
            reached = missing[chunk.partition]
        if reached >= missing[chunk.partition]:
            del missing[chunk.partition]
            manager.remove_partitions([chunk.partition])
        elif goes_on:
            manager.refetch(queue, chunk.partition, reached)


def _losses(task: FetchTask, missing: Mapping[TopicPartition, int]) -> dict[TopicPartition, DataLossError]:
    """Return the partitions whose records will never come, since their topic is gone, or their log ends before."""
    logs = LogOffsets(
        lambda: task.brokers,
        task.settings.client_id,
        timeout=task.settings.socket_timeout,
        security=task.settings.security,
    )
    try:
        exist = logs.topic_ids(sorted({partition.topic for partition in missing}))
        found = {p: topics_deleted([p.topic]) for p in missing if p.topic not in exist}
        ends = logs.offsets([p for p in missing if p not in found], protocol.LATEST)
        return found | {p: end_offset_decreased(p, missing[p], end) for p, end in ends.items() if end < missing[p]}
    except ZkConsumerError:
        return {}  # it is not known
    finally:
        logs.close()


def _freeze_once() -> None:
    """Exempt what the worker has loaded from garbage collection, which Spark runs after each task.

    Worth about 50 ms a task; the objects are modules and classes, which live as long as the worker does.
    """
    if not _frozen.is_set():
        _frozen.set()
        gc.collect()
        gc.freeze()
