"""The queued records of a partition.

Source: Kafka 3.9 RecordQueue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.records import Header, Record, SourceRecord

#: Partition time and stream time before the first record.
UNKNOWN = -1

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


class RecordDeserializer(Protocol):
    """Deserializes the records of a queue."""

    def deserialize(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        """Return the deserialized record with its timestamp, or None if the record was dropped."""

    def deserialize_columns(self, columns: SourceColumns) -> tuple[list[Any], list[Any]] | None:
        """Return all keys and values, or None if the records must be deserialized one by one."""


class SourceBatch(NamedTuple):
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

    Attributes:
        time_ms: highest timestamp of the records processed so far.
        batch: batch that contains the head; None if no unprocessed records are left.
        row: row of the head in ``batch``.
    """

    __slots__ = (
        "_deserializer",
        "_end",
        "_head",
        "_measured_row",
        "_size",
        "_size_bytes",
        "_waiting",
        "batch",
        "partition",
        "row",
        "time_ms",
    )

    def __init__(self, partition: TopicPartition, deserializer: RecordDeserializer) -> None:
        self.partition = partition
        self.time_ms = UNKNOWN
        self.batch: SourceBatch | None = None
        self.row = 0
        self._deserializer = deserializer
        self._head: Stamped | None = None  # set only while records are deserialized one by one
        self._waiting: deque[SourceColumns] = deque()
        self._size = 0
        self._size_bytes: int | None = None  # of the records from ``_measured_row``; None until it is needed
        self._measured_row = 0
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
        """Size of the keys, values and headers of the unprocessed records, in bytes.

        The first call measures all records. Later calls measure only the records that were added or removed since.
        """
        if self._size_bytes is None:
            self._size_bytes, self._measured_row = sum(columns.size_bytes for columns in self.state().columns), self.row
        self._subtract_removed()
        return self._size_bytes

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
        if self._size_bytes is not None:
            self._size_bytes += columns.size_bytes
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
            record = self._deserializer.deserialize(source, self.time_ms)
            if record is not None:
                self._head = Stamped(source, record, record.timestamp)
                return
            dropped = source
            self.row += 1
            self._size -= 1
        if dropped is not None:
            self._head = Stamped(dropped, None, UNKNOWN)

    def _subtract_removed(self) -> None:
        """Subtract the size of the records that were removed from the batch since the last call."""
        if self._size_bytes is not None and self.batch is not None:
            self._size_bytes -= self.batch.columns.slice(self._measured_row, self.row).size_bytes
            self._measured_row = self.row

    def _next_batch(self) -> SourceBatch | None:
        self._subtract_removed()
        self.row = self._measured_row = 0
        if not self._waiting:
            return None
        columns = self._waiting.popleft()
        keys, values = self._deserializer.deserialize_columns(columns) or ([], [])
        return SourceBatch(columns, columns.load_timestamps(), keys, values, columns.load_headers())
