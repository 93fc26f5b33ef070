"""Input and output records of a task, in columnar form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from zkconsumer.topology.errors import InvalidArgumentError
from zkconsumer.topology.loop.native import OutputColumns, read_column
from zkconsumer.topology.loop.records import Header, SinkRecord, SourceRecord
from zkconsumer.topology.serdes import Codec, Deserializer


class SourceColumns(NamedTuple):
    """Records of one partition as columns, in offset order. Columns are sequences or Arrow arrays.

    Attributes:
        topic: topic name.
        partition: partition number.
        offsets: offset of each record.
        timestamps: timestamps in milliseconds since the epoch; -1 for a record without a timestamp.
        keys: serialized keys; None for a record without a key.
        values: serialized values; None for a record without a value.
        headers: headers of each record; None means that no record has headers.
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
        """Convert the records of one partition to columns. ``records`` must not be empty."""
        _, _, offsets, timestamps, keys, values, headers = zip(*records, strict=True)
        first = records[0]
        return cls(first.topic, first.partition, offsets, timestamps, keys, values, headers if any(headers) else None)

    @classmethod
    def from_arrow(cls, topic: str, partition: int, batch: Any) -> SourceColumns:
        """Convert an Arrow record batch to columns.

        Args:
            topic: topic name.
            partition: partition number.
            batch: record batch with the columns ``offset`` (int64), ``timestamp`` (int64 in milliseconds, or an Arrow
                timestamp), ``key`` and ``value`` (binary), and optionally ``headers`` (lists of structs with a string
                and a binary field).

        Raises:
            ValueError: a column is missing.
        """
        names = batch.schema.names
        missing = {"offset", "timestamp", "key", "value"}.difference(names)
        if missing:
            raise InvalidArgumentError(f"records of topic {topic!r}: missing columns: {', '.join(sorted(missing))}")
        timestamps = batch.column("timestamp")
        if str(timestamps.type).startswith("timestamp"):
            timestamps = timestamps.cast(_milliseconds(timestamps.type.tz), safe=False).cast("int64")
        if timestamps.null_count:
            timestamps = timestamps.fill_null(-1)
        headers = batch.column("headers") if "headers" in names else None
        if headers is not None and headers.null_count == len(headers):
            headers = None
        keys, values = (_require_binary(batch.column(name)) for name in ("key", "value"))
        return cls(topic, partition, batch.column("offset"), timestamps, keys, values, headers)

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """Size of the keys, values and headers, in bytes."""
        return _measure(self.keys) + _measure(self.values) + _measure_headers(self.headers)

    def offset(self, row: int) -> int:
        """Return the offset of the record in row ``row``."""
        offset = self.offsets[row]
        return int(offset.as_py() if _is_arrow(self.offsets) else offset)

    def record(self, row: int) -> SourceRecord:
        """Return the record in row ``row``."""
        topic, partition, *columns = self.slice(row, row + 1).to_lists()
        offset, timestamp, key, value = (column[0] for column in columns[:4])
        headers = () if columns[4] is None else tuple(columns[4][0])
        return SourceRecord(topic, partition, offset, timestamp, key, value, headers)

    def slice(self, first: int, end: int) -> SourceColumns:
        """Return the rows from ``first`` (inclusive) to ``end`` (exclusive)."""
        return SourceColumns(
            self.topic,
            self.partition,
            self.offsets[first:end],
            self.timestamps[first:end],
            self.keys[first:end],
            self.values[first:end],
            None if self.headers is None else self.headers[first:end],
        )

    def to_lists(self) -> SourceColumns:
        """Return the same records, with Arrow arrays converted to lists."""
        if not _is_arrow(self.offsets):
            return self
        return self._replace(
            offsets=self.offsets.to_pylist(),
            timestamps=self.timestamps.to_pylist(),
            keys=self.keys.to_pylist(),
            values=self.values.to_pylist(),
            headers=self.load_headers(),
        )

    def load_timestamps(self) -> Sequence[int]:
        """Return the timestamps as a sequence of ints."""
        array = self.timestamps
        if not _is_arrow(array):
            return array  # type: ignore[no-any-return]
        return memoryview(array.buffers()[1]).cast("B").cast("q")[array.offset : array.offset + len(array)]

    def load_headers(self) -> Sequence[Sequence[Header]] | None:
        """Return the headers of each record; None means that no record has headers."""
        if self.headers is None or not _is_arrow(self.headers):
            return self.headers  # type: ignore[no-any-return]
        return [tuple(tuple(header.values()) for header in of_row or ()) for of_row in self.headers.to_pylist()]


def _measure(column: Any) -> int:
    if not _is_arrow(column):
        return sum(len(data) for data in column if data is not None)
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(column)).as_py() or 0


def _measure_headers(column: Any) -> int:
    if column is None:
        return 0
    if not _is_arrow(column):
        return sum(len(name.encode()) + len(value or b"") for of_row in column for name, value in of_row)
    import pyarrow.compute as pc

    headers = pc.list_flatten(column)
    return sum(_measure(pc.struct_field(headers, number)) for number in range(2))


def deserialize_column(codec: Codec, deserialize: Deserializer, topic: str, column: Any) -> list[Any]:
    """Deserialize a column. Errors raised by ``deserialize`` are propagated.

    Args:
        codec: codec of ``deserialize``; see ``serdes.deserializer_codec``.
        deserialize: deserializer for the keys or values.
        topic: topic name.
        column: serialized keys or values.
    """
    if not _is_arrow(column):
        return list(column) if codec is Codec.BYTES else [deserialize(topic, data) for data in column]
    if codec is Codec.OTHER:
        return [deserialize(topic, data) for data in column.to_pylist()]
    valid, ends, data = column.buffers()
    return read_column(codec, valid, ends, data, column.offset, len(column))


class SinkColumns:
    """Records written by sinks, in write order.

    Args:
        columns: columns that contain the records.
    """

    def __init__(self, columns: OutputColumns) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns)

    def records(self) -> Iterator[SinkRecord]:
        """Return an iterator over the records."""
        return map(SinkRecord._make, self._columns.rows())

    def to_arrow(self) -> Any:
        """Return an Arrow record batch with the columns topic, partition, timestamp, key, value and headers.

        The partition is null if the producer selects it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = len(self)
        topics, partitions, timestamps, *binaries = map(pa.py_buffer, self._columns.buffers())
        numbers = pa.Array.from_buffers(pa.int32(), rows, [None, partitions])
        headers = [
            [{"key": name, "value": value} for name, value in of_row] for of_row in self._columns.headers.values()
        ]
        of_rows = pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        index = {row: number for number, row in enumerate(self._columns.headers)}
        columns = {
            "topic": pa.DictionaryArray.from_arrays(
                pa.Array.from_buffers(pa.int32(), rows, [None, topics]),
                pa.array(list(self._columns.topics), pa.string()),
            ),
            "partition": pc.if_else(pc.less(numbers, 0), None, numbers),
            "timestamp": pa.Array.from_buffers(pa.int64(), rows, [None, timestamps]),
            "key": _to_binary(rows, binaries[:3]),
            "value": _to_binary(rows, binaries[3:]),
            "headers": of_rows.take(pa.array([index.get(row) for row in range(rows)], pa.int32()))
            if index
            else pa.nulls(rows, of_rows.type),
        }
        return pa.record_batch(columns)


def _to_binary(rows: int, buffers: Sequence[Any]) -> Any:
    """Create an Arrow binary array from ``buffers``: row data, row end offsets, and one validity byte per row."""
    import pyarrow as pa

    data, ends, valid = buffers
    bits = pa.Array.from_buffers(pa.uint8(), rows, [None, valid]).cast(pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), rows, [bits, pa.py_buffer(bytes(4) + bytes(ends)), data])


def _milliseconds(time_zone: str | None) -> Any:
    import pyarrow as pa

    return pa.timestamp("ms", time_zone)


def _require_binary(column: Any) -> Any:
    return column if str(column.type) == "binary" else column.cast("binary")


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "to_pylist")
