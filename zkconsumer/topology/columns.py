"""Records as columns: what a task reads, and what its sinks write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from zkconsumer.topology.errors import InvalidArgumentError
from zkconsumer.topology.records import Header, SinkRecord, SourceRecord


class SourceColumns(NamedTuple):
    """Records of a partition, in the order of their offsets.

    Attributes:
        topic: topic name.
        partition: partition number.
        offsets: offset of each record. This and the other columns are sequences, or Arrow arrays.
        timestamps: milliseconds since the epoch; -1 if a record has none.
        keys: serialized keys; None if a record has none.
        values: serialized values; None if a record has none.
        headers: headers of each record; None if no record has headers.
    """

    topic: str
    partition: int
    offsets: Any
    timestamps: Any
    keys: Any
    values: Any
    headers: Any = None

    @classmethod
    def from_records(cls, records: Sequence[SourceRecord]) -> SourceColumns:
        """Return the columns of records of one partition; there must be at least one."""
        _, _, offsets, timestamps, keys, values, headers = zip(*records, strict=True)
        first = records[0]
        return cls(first.topic, first.partition, offsets, timestamps, keys, values, headers if any(headers) else None)

    @classmethod
    def from_arrow(cls, topic: str, partition: int, batch: Any) -> SourceColumns:
        """Return the columns of an Arrow record batch or table.

        Args:
            topic: topic name.
            partition: partition number.
            batch: has the columns ``offset`` (int64), ``timestamp`` (milliseconds as int64, or an Arrow timestamp),
                ``key`` and ``value`` (binary), and optionally ``headers`` (lists of structures of a string and binary).

        Raises:
            ValueError: a column is missing.
        """
        names = batch.schema.names
        missing = {"offset", "timestamp", "key", "value"}.difference(names)
        if missing:
            raise InvalidArgumentError(f"the columns of topic {topic!r} lack {', '.join(sorted(missing))}")
        timestamps = batch.column("timestamp")
        if str(timestamps.type).startswith("timestamp"):
            timestamps = timestamps.cast(f"timestamp[ms{str(timestamps.type)[12:]}", safe=False).cast("int64")
        if timestamps.null_count:
            timestamps = timestamps.fill_null(-1)
        headers = batch.column("headers") if "headers" in names else None
        if headers is not None and headers.null_count == len(headers):
            headers = None
        offsets, keys, values = (batch.column(name) for name in ("offset", "key", "value"))
        return cls(topic, partition, offsets, timestamps, keys, values, headers)

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.offsets)

    def record(self, row: int) -> SourceRecord:
        """Return one record of columns that were loaded."""
        topic, partition, offsets, timestamps, keys, values, headers = self
        of_row = () if headers is None else tuple(headers[row])
        return SourceRecord(topic, partition, offsets[row], timestamps[row], keys[row], values[row], of_row)

    def slice(self, first: int, end: int) -> SourceColumns:
        """Return the records from ``first`` up to ``end``, exclusive."""
        return SourceColumns(
            self.topic,
            self.partition,
            self.offsets[first:end],
            self.timestamps[first:end],
            self.keys[first:end],
            self.values[first:end],
            None if self.headers is None else self.headers[first:end],
        )

    def loaded(self) -> SourceColumns:
        """Return the same records with lists instead of Arrow arrays."""
        if not hasattr(self.offsets, "to_pylist"):
            return self
        headers = None
        if self.headers is not None:
            headers = [tuple(tuple(header.values()) for header in of_row or ()) for of_row in self.headers.to_pylist()]
        return self._replace(
            offsets=self.offsets.to_pylist(),
            timestamps=self.timestamps.to_pylist(),
            keys=self.keys.to_pylist(),
            values=self.values.to_pylist(),
            headers=headers,
        )


class SinkColumns:
    """The records that sinks have written, in their order.

    Attributes:
        topics: topic names.
        partitions: partition numbers that partitioners selected; None for the producer's choice.
        timestamps: milliseconds since the epoch.
        keys: serialized keys, or None.
        values: serialized values, or None.
        headers: headers of each record.
    """

    __slots__ = ("headers", "keys", "partitions", "timestamps", "topics", "values")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.partitions: list[int | None] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[tuple[Header, ...]] = []

    def __len__(self) -> int:
        return len(self.topics)

    def append(self, record: SinkRecord) -> None:
        """Add a record."""
        topic, partition, timestamp, key, value, headers = record
        self.topics.append(topic)
        self.partitions.append(partition)
        self.timestamps.append(timestamp)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)

    def take(self) -> SinkColumns:
        """Remove all records, and return them."""
        taken = SinkColumns()
        for name in self.__slots__:
            setattr(taken, name, getattr(self, name))
            setattr(self, name, [])
        return taken

    def records(self) -> Iterator[SinkRecord]:
        """Return the records one by one."""
        columns = self.topics, self.partitions, self.timestamps, self.keys, self.values, self.headers
        return map(SinkRecord, *columns)

    def to_arrow(self) -> Any:
        """Return an Arrow record batch with the columns topic, partition, timestamp, key, value and headers."""
        import pyarrow as pa

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        headers = [[dict(zip(("key", "value"), one, strict=True)) for one in of_row] or None for of_row in self.headers]
        columns = {
            "topic": pa.array(self.topics, pa.string()).dictionary_encode(),
            "partition": pa.array(self.partitions, pa.int32()),
            "timestamp": pa.array(self.timestamps, pa.int64()),
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
            "headers": pa.array(headers, pa.list_(header)),
        }
        return pa.record_batch(columns)
