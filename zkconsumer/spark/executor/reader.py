"""Fetches the ranges of a task with the consumer's fetchers, and yields them as Arrow batches. Runs in executors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.topics import TopicStatus
from zkconsumer.errors import (
    BrokerUnavailableError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    ZkConsumerError,
)
from zkconsumer.event_limits import log_unlogged
from zkconsumer.fetcher.channel_pool import ChannelPool
from zkconsumer.fetcher.chunk import Chunk, PositionChanged, QueueItem
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.health import TOPIC_AUTHORIZATION_FAILED
from zkconsumer.log import get_logger
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import DataLossError, end_offset_decreased, raise_or_log, range_deleted, topics_deleted
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.garbage import freeze_modules
from zkconsumer.spark.executor.rows import RowReader, create_reader
from zkconsumer.spark.executor.task_reports import SkippedRange, TaskReport

#: Seconds without records after which the task checks whether the missing records were deleted.
_CHECK_AFTER_S = 5.0
#: Seconds after which missing records are considered deleted. A broker that just started, or a new leader, may
#: temporarily report a lower log end offset.
_DELETED_AFTER_S = 30.0

#: Connections that earlier tasks of this worker left open.
_channels = ChannelPool()


def read(task: FetchTask) -> Iterator[Any]:
    """Yield the records of the task's ranges as Arrow record batches.

    Raises:
        OffsetOutOfRangeError: an offset of a range is not in the log, and ``failOnDataLoss`` is true.
        CorruptRecordError: a record batch was corrupt in two fetches and cannot be skipped (see
            ``RowReader.read_corrupt``), or the broker cannot read it.
        UndecodableRecordError: the decoder rejected a record, and ``corrupt.record.policy`` is ``raise``.
        BrokerUnavailableError: no records arrived for ``task.unavailable_timeout_s`` seconds.
        TopicAuthorizationError: no records arrived in this time, because reading the topic is not authorized.
    """
    freeze_modules("source")
    rows = create_reader(task.row_schema, check_crcs=task.check_crcs, can_end=task.can_end)
    for planned in task.planned:
        yield from rows.read_range(planned)
    if task.ranges:
        yield from _fetch(task, rows)


def _fetch(task: FetchTask, rows: RowReader) -> Iterator[Any]:
    manager = ConsumerFetcherManager(
        "zkconsumer-spark-task",
        replace(task.settings, num_consumer_fetchers=1),
        lambda: task.brokers,
        on_failure=lambda info, error: _on_failure(task, stream, info, error),
        channels=_channels,
    )
    stream = StreamQueue(manager.budget)
    infos = [
        PartitionTopicInfo(partition, PartitionQueue(stream, task.max_chunks), start, until)
        for partition, (start, until) in task.ranges.items()
        if start < until
    ]
    loss_check = _LossCheck(task)
    manager.start_connections()
    try:
        manager.add_partitions(infos, task.leaders)
        yield from _TaskReader(task, rows, stream, manager, loss_check).read()
    finally:
        stream.close()
        loss_check.close()
        manager.stop_connections()


def _on_failure(task: FetchTask, stream: StreamQueue, info: PartitionTopicInfo, error: BaseException) -> None:
    """Handle a fetcher error, in the fetcher thread: skip deleted records if the options allow it, or fail the task."""
    partition, until = info.partition, info.until
    if not isinstance(error, OffsetOutOfRangeError):
        stream.fail(error)
        return
    loss = range_deleted(partition, info.fetch_offset, until, error.first, error.end)
    if task.fails_on_data_loss:
        stream.fail(loss)
    else:
        raise_or_log(loss, False, get_logger("zkconsumer.spark"))
        next_offset = min(error.first, until) if info.fetch_offset < error.first else until
        info.queue.put(PositionChanged(partition, next_offset))


class _TaskReader:
    """Reads fetched chunks until all ranges of a task are complete. Used by the task's thread only."""

    def __init__(
        self,
        task: FetchTask,
        rows: RowReader,
        stream: StreamQueue,
        manager: ConsumerFetcherManager,
        loss_check: _LossCheck,
    ) -> None:
        self._task, self._rows = task, rows
        self._loss_check = loss_check
        self._stream = stream
        self._manager = manager
        #: End offsets of the ranges that have not been read completely.
        self._missing = {partition: until for partition, (start, until) in task.ranges.items() if start < until}
        #: Next offset of each range; not updated after the range is complete.
        self._positions = {partition: start for partition, (start, _) in task.ranges.items()}
        #: Number of offsets that were deleted before they were read, by partition.
        self._lost: Counter[TopicPartition] = Counter()
        #: Number of offsets in skipped corrupt record batches, by partition.
        self._skipped: Counter[TopicPartition] = Counter()
        #: Topic, partition and offset of record batches that were corrupt in one fetch.
        self._corrupt: set[tuple[str, int, int]] = set()
        #: Time when records first appeared to be deleted, in seconds after the last chunk, by partition.
        self._lost_since: dict[TopicPartition, float] = {}

    def read(self) -> Iterator[Any]:
        """Yield Arrow record batches."""
        last_chunk_at = time.monotonic()
        while self._missing:
            taken = self._stream.take(max(0.1, min(self._task.unavailable_timeout_s / 8, _CHECK_AFTER_S)))
            if taken is None:
                self._check_missing(time.monotonic() - last_chunk_at)
                continue
            last_chunk_at = time.monotonic()
            yield from self._read_item(*taken)
        self._report_skipped()
        log_unlogged()

    def _read_item(self, queue: PartitionQueue, item: QueueItem) -> Iterator[Any]:
        if item.partition not in self._missing:
            return  # fetched before the end of the stream was detected
        if isinstance(item, PositionChanged):
            self._lost[item.partition] += item.offset - self._positions[item.partition]
            self._advance(queue, item.partition, item.offset, is_refetch_needed=True)
        else:
            yield from self._read_chunk(queue, item)

    def _read_chunk(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[Any]:
        partition, next_offset = chunk.partition, chunk.next_offset
        is_refetch_needed = False
        try:
            yield from self._rows.read(chunk)
        except CorruptRecordError as error:
            is_refetch_needed, next_offset = True, error.offset
            place = (*partition, error.offset)
            if place in self._corrupt:
                yield from self._rows.read_corrupt(partition, error)
                next_offset = error.after
                if self._task.row_schema.policy == "skip":
                    self._skipped[partition] += min(next_offset, self._missing[partition]) - error.offset
            self._corrupt.add(place)  # fetch it again, because it may have been corrupted in transit
        if self._rows.has_ended:
            assert self._task.reports is not None
            self._task.reports.send(TaskReport(has_ended=True))
            self._complete(partition)
        else:
            self._advance(queue, partition, next_offset, is_refetch_needed=is_refetch_needed)

    def _advance(
        self, queue: PartitionQueue, partition: TopicPartition, next_offset: int, *, is_refetch_needed: bool
    ) -> None:
        """Continue at ``next_offset``, or complete the range if it ends at or before this offset."""
        self._positions[partition] = next_offset
        if next_offset >= self._missing[partition]:
            self._complete(partition)
        elif is_refetch_needed:
            self._manager.refetch(queue, partition, next_offset)

    def _check_missing(self, silence: float) -> None:
        """Check whether the missing records were deleted; after a timeout, skip them or fail the task.

        Args:
            silence: seconds since the last chunk.
        """
        timeout = self._task.unavailable_timeout_s
        if silence > timeout:
            raise self._unavailable_error()
        losses = self._loss_check.losses(self._missing)
        self._lost_since = {partition: self._lost_since.get(partition, silence) for partition in losses}
        for partition, since in self._lost_since.items():
            if silence - since >= min(timeout / 2, _DELETED_AFTER_S):
                raise_or_log(losses[partition], self._task.fails_on_data_loss, get_logger("zkconsumer.spark"))
                self._lost[partition] += self._missing[partition] - self._positions[partition]
                self._complete(partition)

    def _unavailable_error(self) -> ZkConsumerError:
        """Return the error for a task that received no records for ``unavailable_timeout_s`` seconds."""
        partition = min(self._missing)
        failure = (
            f"no records arrived for {self._task.unavailable_timeout_s:g} s (option clusterUnavailableTimeout); topic "
            f"{partition.topic!r} partition {partition.partition} must be read up to offset {self._missing[partition]}"
        )
        problems = dict(self._manager.problems)
        for problem in problems.values():
            if problem.code == TOPIC_AUTHORIZATION_FAILED:
                return TopicAuthorizationError(f"{failure}. {problem.message}, and restart the query")
        reason = f": {problems[partition].message}" if partition in problems else ""
        return BrokerUnavailableError(
            f"{failure}{reason}. Check that the leader of the partition is reachable from the executors"
        )

    def _report_skipped(self) -> None:
        """Report skipped records to the planning process; if it is unreachable, only this process logs them."""
        skipped = self._skipped + self._rows.rejected
        ranges = tuple(
            SkippedRange(*partition, start, self._lost[partition], skipped[partition])
            for partition, (start, _) in self._task.ranges.items()
            if self._lost[partition] or skipped[partition]
        )
        if not ranges or self._task.reports is None:
            return
        try:
            self._task.reports.send(TaskReport(skipped=ranges))
        except BrokerUnavailableError as error:
            get_logger("zkconsumer.spark").warning("skipped_records_not_reported", error=str(error))

    def _complete(self, partition: TopicPartition) -> None:
        del self._missing[partition]
        self._manager.remove_partitions([partition])


class _LossCheck:
    """Looks up which records of a task no longer exist. Used by the task's thread."""

    def __init__(self, task: FetchTask) -> None:
        self._logs = LogOffsets(lambda: task.brokers, task.settings.connecting)

    def losses(self, missing: Mapping[TopicPartition, int]) -> dict[TopicPartition, DataLossError]:
        """Return an error for each partition whose topic was deleted, or whose log ends before the end of its range.

        The result is empty if the brokers do not respond.

        Args:
            missing: end offset of each partition's range.
        """
        try:
            topics = self._logs.topics.look_up(partition.topic for partition in missing)
            deleted = {p for p in missing if topics[p.topic].status is TopicStatus.DELETED}
            ends, _unavailable = self._logs.look_up(missing.keys() - deleted, LATEST)
        except ZkConsumerError:
            return {}  # unknown; the next check looks up the topics and offsets again
        found = {p: topics_deleted({p.topic}, {}) for p in deleted}
        return found | {p: end_offset_decreased(p, missing[p], end) for p, end in ends.items() if end < missing[p]}

    def close(self) -> None:
        """Close the connections."""
        self._logs.close()
