"""The records that a task has not processed yet, and which of them is next.

Source: Kafka 3.9 RecordQueue and PartitionGroup.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from zkconsumer.message import TopicPartition
from zkconsumer.topology.java_order import PriorityQueue, hash_order, topic_partition_hash
from zkconsumer.topology.records import Record, SourceRecord

#: Time of a partition or task before its first record.
UNKNOWN = -1

#: Value of ``max_task_idle_ms`` with which a task never waits for empty partitions.
IDLE_DISABLED = -1


class Stamped(NamedTuple):
    """A record at the head of a queue.

    Attributes:
        source: the source record.
        record: the deserialized record; None if all records of the queue were dropped, so that only its offset counts.
        timestamp: milliseconds since the epoch.
    """

    source: SourceRecord
    record: Record | None
    timestamp: int


#: Returns the deserialized record with its timestamp, from the record and the time of its partition; None drops it.
Decode = Callable[[SourceRecord, int], Record | None]


class RecordQueue:
    """The records of one partition, in the order of their offsets. Only the head is deserialized.

    Args:
        partition: the partition.
        decode: deserializes a record.
    """

    __slots__ = ("_decode", "_end", "_raw", "head", "partition", "time_ms")

    def __init__(self, partition: TopicPartition, decode: Decode) -> None:
        self.partition = partition
        self.head: Stamped | None = None
        #: The highest timestamp of the records processed so far.
        self.time_ms = UNKNOWN
        self._decode = decode
        self._raw: deque[SourceRecord] = deque()
        self._end: int | None = None

    def __len__(self) -> int:
        return len(self._raw) + (self.head is not None)

    @property
    def next_offset(self) -> int | None:
        """The offset of the head, or after the last record if the queue is empty; None before the first record."""
        return self._end if self.head is None else self.head.source.offset

    def add(self, records: Iterable[SourceRecord]) -> None:
        """Append records, and deserialize the first one if there is no head."""
        self._raw.extend(records)
        if self.head is None:
            self.head = self._decode_next()

    def poll(self) -> Stamped:
        """Remove and return the head, and deserialize the next record."""
        head = self.head
        assert head is not None
        if head.timestamp > self.time_ms:
            self.time_ms = head.timestamp
        self._end = head.source.offset + 1
        self.head = self._decode_next()
        return head

    def _decode_next(self) -> Stamped | None:
        dropped = None
        while self._raw:
            source = self._raw.popleft()
            record = self._decode(source, self.time_ms)
            if record is not None:
                return Stamped(source, record, record.timestamp)
            dropped = source
        return None if dropped is None else Stamped(dropped, None, UNKNOWN)


class PartitionGroup:
    """The queues of a task. The next record is that with the lowest timestamp at the head of a queue.

    Args:
        queues: the queues of the task.
        max_idle_ms: milliseconds for which the task waits for empty partitions without a lag; ``IDLE_DISABLED``
            disables waiting.
        lag_of: returns the lag of a partition in records, or None if it is unknown.
    """

    def __init__(
        self, queues: Iterable[RecordQueue], max_idle_ms: int, lag_of: Callable[[TopicPartition], int | None]
    ) -> None:
        ordered = hash_order(queues, lambda queue: topic_partition_hash(*queue.partition))
        self._queues: Mapping[TopicPartition, RecordQueue] = {queue.partition: queue for queue in ordered}
        self._max_idle_ms = max_idle_ms
        self._lag_of = lag_of
        self._lags: dict[TopicPartition, int] = {}
        self._deadlines: dict[TopicPartition, int] = {}
        self._nonempty: PriorityQueue[RecordQueue] = PriorityQueue(_head_timestamp)
        self.stream_time_ms = UNKNOWN

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition.

        Raises:
            KeyError: the task does not have the partition.
        """
        queue = self._queues[partition]
        was_empty = queue.head is None
        queue.add(records)
        if was_empty and queue.head is not None:
            self._nonempty.add(queue)

    def poll(self) -> tuple[TopicPartition, Stamped] | None:
        """Remove and return the next record with the partition of its queue, or None."""
        queue = self._nonempty.poll()
        if queue is None:
            return None
        stamped = queue.poll()
        if queue.head is not None:
            self._nonempty.add(queue)
        if stamped.timestamp > self.stream_time_ms:
            self.stream_time_ms = stamped.timestamp
        return queue.partition, stamped

    def update_lags(self) -> None:
        """Update the lags of all partitions."""
        if self._max_idle_ms != IDLE_DISABLED:
            lags = {partition: self._lag_of(partition) for partition in self._queues}
            self._lags = {partition: lag for partition, lag in lags.items() if lag is not None}

    def is_ready(self, now_ms: int) -> bool:
        """Return whether the next record can be taken without waiting for partitions with earlier ones."""
        if self._max_idle_ms == IDLE_DISABLED:
            return True
        has_records = has_empty = False
        for partition, queue in self._queues.items():
            if len(queue):
                self._deadlines.pop(partition, None)
                has_records = True
            elif self._lags.get(partition, -1) != 0:
                self._deadlines.pop(partition, None)
                return False
            elif now_ms < self._deadlines.setdefault(partition, now_ms + self._max_idle_ms):
                return False
            else:
                has_empty = True
        return has_records or not has_empty

    def times(self) -> dict[TopicPartition, int]:
        """Return the time of each partition, in milliseconds."""
        return {partition: queue.time_ms for partition, queue in self._queues.items()}

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition that has had a record."""
        offsets = ((partition, queue.next_offset) for partition, queue in self._queues.items())
        return {partition: offset for partition, offset in offsets if offset is not None}

    def set_times(self, times: Mapping[TopicPartition, int]) -> None:
        """Restore partition times that ``times`` returned in an earlier task."""
        for partition, time_ms in times.items():
            if partition in self._queues:
                self._queues[partition].time_ms = time_ms
                self.stream_time_ms = max(self.stream_time_ms, time_ms)


def _head_timestamp(queue: RecordQueue) -> int:
    return UNKNOWN if queue.head is None else queue.head.timestamp
