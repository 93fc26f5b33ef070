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

    __slots__ = ("_decode", "_raw", "head", "partition", "time_ms")

    def __init__(self, partition: TopicPartition, decode: Decode) -> None:
        self.partition = partition
        self.head: Stamped | None = None
        #: The highest timestamp of the records processed so far.
        self.time_ms = UNKNOWN
        self._decode = decode
        self._raw: deque[SourceRecord] = deque()

    def __len__(self) -> int:
        return len(self._raw) + (self.head is not None)

    def add(self, records: Iterable[SourceRecord]) -> None:
        """Append records; ``fill`` or ``poll`` deserializes them."""
        self._raw.extend(records)

    def fill(self) -> None:
        """Deserialize the next record, if there is no head. A record that causes an error is skipped."""
        if self.head is None:
            self.head = self._next()

    def poll(self) -> Stamped:
        """Remove and return the head. If the next record cannot be deserialized, the head remains."""
        head = self.head
        assert head is not None
        if head.timestamp > self.time_ms:
            self.time_ms = head.timestamp
        self.head = self._next()
        return head

    def _next(self) -> Stamped | None:
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
        self._unread: list[RecordQueue] = []
        self.stream_time_ms = UNKNOWN

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition.

        Raises:
            KeyError: the task does not have the partition.
        """
        queue = self._queues[partition]
        if queue.head is None and queue not in self._unread:
            self._unread.append(queue)
        queue.add(records)
        self._fill()

    def poll(self) -> tuple[TopicPartition, Stamped] | None:
        """Remove and return the next record with the partition of its queue, or None."""
        if self._unread:
            self._fill()
        queue = self._nonempty.poll()
        if queue is None:
            return None
        try:
            stamped = queue.poll()
        finally:
            if queue.head is not None:
                self._nonempty.add(queue)
        if stamped.timestamp > self.stream_time_ms:
            self.stream_time_ms = stamped.timestamp
        return queue.partition, stamped

    def _fill(self) -> None:
        """Insert the queues that were empty. One whose first record cannot be deserialized is tried again later."""
        while self._unread:
            queue = self._unread[-1]
            queue.fill()
            self._unread.pop()
            if queue.head is not None:
                self._nonempty.add(queue)

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

    def set_times(self, times: Mapping[TopicPartition, int]) -> None:
        """Continue with the times that ``times`` has returned in an earlier task."""
        for partition, time_ms in times.items():
            if partition in self._queues:
                self._queues[partition].time_ms = time_ms
                self.stream_time_ms = max(self.stream_time_ms, time_ms)


def _head_timestamp(queue: RecordQueue) -> int:
    return UNKNOWN if queue.head is None else queue.head.timestamp
