"""Record queues of a task, and the selection of the next record to process.

Source: Kafka 3.9 RecordQueue and PartitionGroup.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from zkconsumer.message import TopicPartition
from zkconsumer.topology.columns import SourceColumns
from zkconsumer.topology.java_order import PriorityQueue, hash_order, topic_partition_hash
from zkconsumer.topology.records import Header, Record, SourceRecord

#: Partition time and stream time before the first record.
UNKNOWN = -1

#: Value of ``max_task_idle_ms`` that disables waiting for empty partitions.
IDLE_DISABLED = -1

#: Maximum number of records that are deserialized at once.
_BATCH_ROWS = 1_024


class Stamped(NamedTuple):
    """A record at the head of a queue.

    Attributes:
        source: source record.
        record: deserialized record; None if all records of the queue were dropped, so that only the offset is used.
        timestamp: timestamp in milliseconds since the epoch; ``UNKNOWN`` if ``record`` is None.
    """

    source: SourceRecord
    record: Record | None
    timestamp: int


class Decoder(Protocol):
    """Deserializes the records of a queue."""

    def decode(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        """Return the deserialized record with its timestamp, or None if the record was dropped."""

    def decode_columns(self, columns: SourceColumns) -> tuple[list[Any], list[Any]] | None:
        """Return all keys and values, or None if the records must be deserialized one by one."""


class RecordBatch(NamedTuple):
    """A batch of consecutive records.

    Attributes:
        columns: serialized records.
        timestamps: timestamps in milliseconds since the epoch.
        keys: deserialized keys; empty if the records are deserialized one by one.
        values: deserialized values; empty if the records are deserialized one by one.
        headers: headers of each record; None means that no record has headers.
    """

    columns: SourceColumns
    timestamps: Sequence[int]
    keys: list[Any]
    values: list[Any]
    headers: Sequence[Sequence[Header]] | None


class QueueState(NamedTuple):
    """The state of a queue, from which another task can resume.

    Attributes:
        time_ms: highest timestamp of the records processed so far.
        next_offset: offset after the last processed record; None before the first record.
        dropped: source record at the head of the queue if all records of the queue were dropped, else None.
        columns: unprocessed records.
    """

    time_ms: int
    next_offset: int | None
    dropped: SourceRecord | None
    columns: tuple[SourceColumns, ...]


class RecordQueue:
    """The queued records of one partition, in offset order.

    Records are deserialized in batches. If this is not possible, for example because a record of the batch must be
    dropped or cannot be deserialized, each record is deserialized when it becomes the head of the queue.

    Args:
        partition: partition of the records.
        decoder: deserializer of the records.

    Attributes:
        time_ms: highest timestamp of the records processed so far.
        batch: batch that contains the head; None if no unprocessed records are left.
        row: row of the head in ``batch``.
    """

    __slots__ = ("_decoder", "_end", "_head", "_size", "_waiting", "batch", "partition", "row", "time_ms")

    def __init__(self, partition: TopicPartition, decoder: Decoder) -> None:
        self.partition = partition
        self.time_ms = UNKNOWN
        self.batch: RecordBatch | None = None
        self.row = 0
        self._decoder = decoder
        self._head: Stamped | None = None  # set only while records are deserialized one by one
        self._waiting: deque[SourceColumns] = deque()
        self._size = 0
        self._end: int | None = None

    def __len__(self) -> int:
        return self._size + (self._head is not None and self._head.record is None)

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no head."""
        return self.batch is None and self._head is None

    @property
    def head_timestamp(self) -> int:
        """The timestamp of the head; ``UNKNOWN`` if all records were dropped."""
        if self._head is not None:
            return self._head.timestamp
        return UNKNOWN if self.batch is None else self.batch.timestamps[self.row]

    @property
    def size_bytes(self) -> int:
        """Size of the keys and values of the unprocessed records, in bytes."""
        return sum(columns.size_bytes for columns in self.state().columns)

    @property
    def next_offset(self) -> int | None:
        """The offset of the head, or the next offset if the queue is empty. None before the first record."""
        if self._head is not None:
            return self._head.source.offset
        return self._end if self.batch is None else int(self.batch.columns.offset(self.row))

    def add(self, columns: SourceColumns) -> None:
        """Append records, and deserialize the first batch if the queue has no head."""
        rows = columns.rows
        if not rows:
            return
        if rows <= _BATCH_ROWS:
            self._waiting.append(columns)
        else:
            self._waiting += (columns.slice(first, first + _BATCH_ROWS) for first in range(0, rows, _BATCH_ROWS))
        self._size += rows
        if self.is_empty:
            self._advance()

    def poll(self) -> Stamped:
        """Remove and return the head, and deserialize the next record if needed."""
        head = self._head
        if head is None:
            batch, row = self.batch, self.row
            assert batch is not None
            source = batch.columns.record(row)
            record = Record(batch.keys[row], batch.values[row], source.timestamp, source.headers)
            head = Stamped(source, record, source.timestamp)
        self.time_ms = max(self.time_ms, head.timestamp)
        self.skip(1)
        return head

    def skip(self, count: int) -> None:
        """Remove the head and the ``count - 1`` records that follow it in the batch."""
        head, self._head = self._head, None
        if self.batch is None:
            assert head is not None
            self._end = head.source.offset + 1
        else:
            self._end = self.batch.columns.offset(self.row + count - 1) + 1
            self.row += count
            self._size -= count
        self._advance()

    def skip_to(self, offset: int) -> None:
        """Set the next offset if the queue is empty, unless it is already higher."""
        if self.is_empty:
            self._end = max(offset, self._end or 0)

    def state(self) -> QueueState:
        """Return the state from which another task can resume."""
        batch, head = self.batch, self._head
        rest = () if batch is None else (batch.columns.slice(self.row, batch.columns.rows),)
        dropped = head.source if head is not None and head.record is None else None
        return QueueState(self.time_ms, self._end, dropped, (*rest, *self._waiting))

    def restore(self, state: QueueState) -> None:
        """Resume from the state of another task's queue."""
        self.time_ms, self._end = state.time_ms, state.next_offset
        if state.dropped is not None:
            self._head = Stamped(state.dropped, None, UNKNOWN)
        for columns in state.columns:
            self.add(columns)

    def _advance(self) -> None:
        """Deserialize the next batch, or the next head of a batch whose records are deserialized one by one."""
        dropped: SourceRecord | None = None
        while True:
            batch = self.batch
            if batch is None or self.row >= batch.columns.rows:
                batch = self.batch = self._next_batch()
            if batch is None:
                break
            if batch.keys:
                return
            source = batch.columns.record(self.row)
            record = self._decoder.decode(source, self.time_ms)
            if record is not None:
                self._head = Stamped(source, record, record.timestamp)
                return
            dropped = source
            self.row += 1
            self._size -= 1
        if dropped is not None:
            self._head = Stamped(dropped, None, UNKNOWN)

    def _next_batch(self) -> RecordBatch | None:
        self.row = 0
        if not self._waiting:
            return None
        columns = self._waiting.popleft()
        keys, values = self._decoder.decode_columns(columns) or ([], [])
        return RecordBatch(columns, columns.load_timestamps(), keys, values, columns.load_headers())


class PartitionGroup:
    """The queues of a task. The head with the lowest timestamp is the next record.

    Args:
        queues: queues of the task.
        max_idle_ms: maximum time to wait for empty partitions without lag, in milliseconds; ``IDLE_DISABLED`` disables
            waiting.
        lag_of: function that returns a partition's lag in records, or None if the lag is unknown.
        max_waiting: see ``TaskRuntime.max_waiting``.
        max_waiting_bytes: see ``TaskRuntime.max_waiting_bytes``.

    Attributes:
        queues: queues by partition.
        deadlines: time until which the task waits for an empty partition without lag, in milliseconds, by partition.
        is_enforced: whether the next record is processed even though a partition is empty.
        allowed: maximum number of records to take before ``is_ready`` is called again.
    """

    def __init__(
        self,
        queues: Iterable[RecordQueue],
        max_idle_ms: int,
        lag_of: Callable[[TopicPartition], int | None],
        max_waiting: int | None = None,
        max_waiting_bytes: int | None = None,
    ) -> None:
        ordered = hash_order(queues, lambda queue: topic_partition_hash(*queue.partition))
        self.queues: Mapping[TopicPartition, RecordQueue] = {queue.partition: queue for queue in ordered}
        self.deadlines: dict[TopicPartition, int] = {}
        self.is_enforced = False
        self.allowed = sys.maxsize
        self._max_waiting = sys.maxsize if max_waiting is None else max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._max_idle_ms = max_idle_ms
        self._lag_of = lag_of
        self._lags: dict[TopicPartition, int] = {}
        self._nonempty: PriorityQueue[RecordQueue] = PriorityQueue(lambda queue: queue.head_timestamp)

    def __len__(self) -> int:
        return sum(map(len, self.queues.values())) if self._nonempty else 0

    def add(self, partition: TopicPartition, columns: SourceColumns) -> None:
        """Append records of a partition.

        Raises:
            KeyError: the task does not read the partition.
        """
        queue = self.queues[partition]
        was_empty = queue.is_empty
        queue.add(columns)
        if was_empty and not queue.is_empty:
            self._nonempty.add(queue)

    def poll(self) -> tuple[TopicPartition, Stamped] | None:
        """Remove and return the next record with its partition, or None if all queues are empty."""
        queue = self._nonempty.poll()
        if queue is None:
            return None
        stamped = queue.poll()
        if not queue.is_empty:
            self._nonempty.add(queue)
        return queue.partition, stamped

    def first(self) -> tuple[RecordQueue, int | None] | None:
        """Return the queue of the next record, and the timestamp at which another queue takes precedence.

        Returns None if all queues are empty. The timestamp is None if no other queue has records. If several other
        queues have records, it is ``UNKNOWN``, so that only one record is processed: each removal can change the order
        of records with equal timestamps.
        """
        queue = self._nonempty.peek()
        if queue is None:
            return None
        others = self._nonempty.items[1:]
        if not others:
            return queue, None
        return queue, others[0].head_timestamp if len(others) == 1 else UNKNOWN

    def skip(self, count: int) -> None:
        """Remove the next record and the ``count - 1`` records that follow it in its batch."""
        queue = self._nonempty.poll()
        assert queue is not None
        queue.skip(count)
        if not queue.is_empty:
            self._nonempty.add(queue)

    def update_lags(self) -> None:
        """Update the lags of all partitions."""
        if self._max_idle_ms != IDLE_DISABLED and len(self.queues) > 1:
            lags = {partition: self._lag_of(partition) for partition in self.queues}
            self._lags = {partition: lag for partition, lag in lags.items() if lag is not None}

    def is_ready(self, now_ms: int) -> bool:
        """Return whether the next record can be processed without waiting for data on empty partitions."""
        self.allowed = sys.maxsize
        if self._max_idle_ms == IDLE_DISABLED:
            return True
        if len(self._nonempty) == len(self.queues):
            self.deadlines.clear()
            self.is_enforced = False
            return True
        has_records = has_empty = False
        for partition, queue in self.queues.items():
            if len(queue):
                self.deadlines.pop(partition, None)
                has_records = True
            elif self._lags.get(partition, -1) != 0:
                self.deadlines.pop(partition, None)
                return self._is_too_full()
            elif now_ms < self.deadlines.setdefault(partition, now_ms + self._max_idle_ms):
                return self._is_too_full()
            else:
                has_empty = True
        self.is_enforced = has_records and has_empty
        return has_records or not has_empty

    def _is_too_full(self) -> bool:
        """Return whether too many records are queued. If so, the excess records must be processed."""
        excess = max(len(self) - self._max_waiting, self._count_excess_of_bytes())
        if excess <= 0:
            return False
        self.is_enforced, self.allowed = True, excess
        return True

    def _count_excess_of_bytes(self) -> int:
        """Return how many records of average size exceed ``max_waiting_bytes``; 0 if they are not exceeded."""
        if self._max_waiting_bytes is None:
            return 0
        size = sum(queue.size_bytes for queue in self.queues.values())
        excess = size - self._max_waiting_bytes
        return max(1, excess * len(self) // size) if excess > 0 else 0

    def times(self) -> dict[TopicPartition, int]:
        """Return the highest timestamp processed in each partition, in milliseconds."""
        return {partition: queue.time_ms for partition, queue in self.queues.items()}

    def skip_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets of empty queues; see ``StreamTask.skip_to``."""
        for partition, offset in offsets.items():
            self.queues[partition].skip_to(offset)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition that has one; see ``RecordQueue.next_offset``."""
        offsets = ((partition, queue.next_offset) for partition, queue in self.queues.items())
        return {partition: offset for partition, offset in offsets if offset is not None}

    def restore(self, states: Mapping[TopicPartition, QueueState], order: Iterable[TopicPartition]) -> None:
        """Resume from the state of another task.

        Args:
            states: results of ``RecordQueue.state``, by partition.
            order: result of ``heap_order``.
        """
        for partition, state in states.items():
            self.queues[partition].restore(state)
        self._nonempty.items[:] = [self.queues[partition] for partition in order]

    def heap_order(self) -> list[TopicPartition]:
        """Return the non-empty partitions in heap order, which determines the order of equal timestamps."""
        return [queue.partition for queue in self._nonempty.items]
