"""Record processing of a task: pure-Python versions of the classes and functions in ``_loop.c``.

A task calls ``run_rows`` for consecutive records of a partition. Nodes are functions that take a record; the children
of a node are called one after another.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Generic, NoReturn, TypeVar

from zkconsumer.topology.loop.headers import MAX_TIMESTAMP, Header, copy_headers, reject_timestamp
from zkconsumer.topology.murmur2 import murmur2
from zkconsumer.topology.serdes import Codec

#: Callable that processes a record: a node, or the function that a node calls.
Process = Callable[["Record"], object]

#: Sampling interval for node timing, in calls.
_TIMED_CALLS = 64

_MAX_INT32 = (1 << 31) - 1

#: Result of a serializer: bytes, or bytes or None.
B = TypeVar("B", bound="bytes | None")


class Record:
    """A record inside a topology. Do not change its attributes: all children of a node receive the same object.

    Source: Kafka 3.9 org.apache.kafka.streams.processor.api.Record. As in Kafka Streams, if a child changes the header
    list in place, its later siblings see the change.

    Args:
        key: any object, or None.
        value: any object, or None.
        timestamp: non-negative timestamp in milliseconds since the epoch.
        headers: header names and values; the headers are copied.

    Raises:
        StreamsError: the timestamp is negative, too large or not an integer, or a header has the wrong type.
    """

    __slots__ = ("_timestamp", "headers", "key", "value")
    __match_args__ = ("key", "value", "timestamp", "headers")
    __hash__ = None  # type: ignore[assignment]

    key: Any
    value: Any
    headers: list[Header]

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Iterable[Header] | None = None) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = copy_headers(headers) if headers else []

    @property
    def timestamp(self) -> int:
        """Timestamp in milliseconds since the epoch."""
        return self._timestamp

    @timestamp.setter
    def timestamp(self, timestamp: int) -> None:
        if not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_TIMESTAMP:
            reject_timestamp(timestamp)
        self._timestamp = int(timestamp)

    def with_key(self, key: Any) -> Record:
        """Return a copy with the given key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        """Return a copy with the given value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        """Return a copy with the given timestamp, in milliseconds since the epoch."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Iterable[Header]) -> Record:
        """Return a copy with the given headers."""
        return Record(self.key, self.value, self.timestamp, headers)

    def __init_subclass__(cls) -> None:
        raise TypeError("type 'zkconsumer.topology.loop.records.Record' is not an acceptable base type")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute {name!r} of a record cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if type(other) is Record else NotImplemented

    def __repr__(self) -> str:
        key, value, timestamp, headers = self._fields()
        return f"Record(key={key!r}, value={value!r}, timestamp={timestamp!r}, headers={headers!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, self._fields()

    def _fields(self) -> tuple[Any, Any, int, list[Header]]:
        return self.key, self.value, self.timestamp, self.headers


class RunState:
    """State of a running task: stream time, partition time and current record.

    Attributes:
        row: row of the current record in ``source``.
        partition_time_ms: highest record timestamp of the current partition.
        stream_time_ms: highest record timestamp across all partitions.
        due_ms: stream time at which the next schedule is due.
        source: columns that contain the serialized current record; None if no source record is being processed.
        record: record that the current node received; None outside ``process`` and punctuators.
        is_processing: whether nodes may forward records.
    """

    __slots__ = ("due_ms", "is_processing", "partition_time_ms", "record", "row", "source", "stream_time_ms")

    def __init__(self) -> None:
        self.row = 0
        self.partition_time_ms = self.stream_time_ms = -1
        self.due_ms = MAX_TIMESTAMP
        self.source: Any = None
        self.record: Record | None = None
        self.is_processing = False


def run_rows(
    state: RunState,
    columns: tuple[Sequence[Any], Sequence[Any], Sequence[int], Sequence[Sequence[Header]] | None],
    stop: int,
    before_ms: int,
    children: Sequence[Process],
) -> int:
    """Process consecutive records, and return the row after the last processed record.

    Processing stops before row ``stop``, before a record whose timestamp is ``before_ms`` or later, or when a schedule
    is due. The first record is always processed.

    Args:
        state: run state of the task. Its ``row`` is the first row to process, and is updated for each record.
        columns: list of keys, list of values, timestamps, and headers or None.
        stop: row after the last record.
        before_ms: timestamp at which another partition takes precedence.
        children: children of the source node.

    Raises:
        IndexError: the row range is out of bounds.
        StreamsError: a timestamp is negative, too large or not an integer, or a header has the wrong type.
    """
    keys, values, timestamps, headers = columns
    if not isinstance(keys, list) or not isinstance(values, list):
        raise TypeError("keys and values must be lists")
    first = row = state.row
    if not 0 <= row < stop <= min(len(keys), len(values), len(timestamps)):
        raise IndexError(f"row range [{row}, {stop}) is out of bounds")
    while True:
        state.row = row
        timestamp = timestamps[row]
        if not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_TIMESTAMP:
            reject_timestamp(timestamp)
        if row > first and timestamp >= before_ms:
            return row
        if timestamp > state.partition_time_ms:
            state.partition_time_ms = timestamp
            if timestamp > state.stream_time_ms:
                state.stream_time_ms = timestamp
        state.record = record = Record(keys[row], values[row], timestamp, None if headers is None else headers[row])
        for process in children:
            process(record)
        row += 1
        if row >= stop or state.stream_time_ms >= state.due_ms:
            return row


class Guarded:
    """A processor's ``process`` function, with its error handler.

    Args:
        process: function that processes a record.
        on_error: function that is called with the record and the Exception that ``process`` raised.

    Attributes:
        process: see above.
        calls: number of calls.
        nanoseconds: estimated duration of all calls, including downstream nodes, based on every 64th call.
    """

    __slots__ = ("_on_error", "calls", "nanoseconds", "process")

    def __init__(self, process: Process, on_error: Callable[[Record, Exception], object]) -> None:
        self.process, self._on_error = process, on_error
        self.calls = self.nanoseconds = 0

    def __call__(self, record: Record) -> None:
        is_timed = self.calls % _TIMED_CALLS == 0
        self.calls += 1
        started = time.perf_counter_ns() if is_timed else 0
        try:
            self.process(record)
        except Exception as error:
            self._on_error(record, error)
        finally:
            if is_timed:
                self.nanoseconds += _TIMED_CALLS * (time.perf_counter_ns() - started)


class Forwarder:
    """Implements ``ProcessorContext.forward`` for a node.

    Args:
        state: run state of the task.
        children: children of the node.
        by_name: children by name.
        reject: function that raises the error for an invalid ``forward`` call.
    """

    __slots__ = ("_by_name", "_children", "_reject", "_state")

    def __init__(
        self,
        state: RunState,
        children: Sequence[Process],
        by_name: Mapping[str, Process],
        reject: Callable[[object, str | None], NoReturn],
    ) -> None:
        self._state, self._children, self._by_name, self._reject = state, children, by_name, reject

    def __call__(self, record: Record, child: str | None = None) -> None:
        state = self._state
        is_valid = state.is_processing and type(record) is Record
        if not is_valid or not (child is None or child in self._by_name):
            self._reject(record, child)
            return
        previous, state.record = state.record, record
        try:
            for process in self._children if child is None else (self._by_name[child],):
                process(record)
        finally:
            state.record = previous


class OutputColumns:
    """Records written by sinks, in columnar form.

    Attributes:
        topics: topic numbers by topic name, in the order in which the topics were first used.
        headers: headers by row; rows without headers are omitted.
    """

    __slots__ = ("_bytes", "_rows", "headers", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.headers: dict[int, tuple[Header, ...]] = {}
        self._rows: list[tuple[str, int, int, bytes | None, bytes | None]] = []
        self._bytes = (0, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
    ) -> None:
        """Append a record. If ``partition`` is None, the producer selects the partition.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the partition is not an integer between 0 and 2147483647.
            OverflowError: the timestamp does not fit into 64 bits, or the total size of the keys or of the values would
                reach 2 GiB.
        """
        _check_types(topic, timestamp, headers)
        if partition is not None and (not isinstance(partition, int) or not 0 <= partition <= _MAX_INT32):
            raise ValueError(f"a partition must be an integer between 0 and {_MAX_INT32}, got {partition!r}")
        for name, data in (("key", key), ("value", value)):
            if not isinstance(data, bytes | None):
                raise TypeError(f"{name} must be bytes or None, got {type(data).__name__}")
        size = self._bytes[0] + len(key or b""), self._bytes[1] + len(value or b"")
        if max(size) > _MAX_INT32:
            raise OverflowError(
                "the keys and the values in a task's output must each be less than 2 GiB; commit more often (on Spark: "
                "reduce max_records_per_task)"
            )
        topic = str.__str__(topic)
        if headers:
            self.headers[len(self._rows)] = headers
        self.topics.setdefault(topic, len(self.topics))
        self._rows.append((topic, -1 if partition is None else int(partition), timestamp, key, value))
        self._bytes = size

    def take(self) -> OutputColumns:
        """Remove and return all records."""
        taken = OutputColumns()
        taken.topics, taken.headers, taken._rows, taken._bytes = self.topics, self.headers, self._rows, self._bytes
        self.topics, self.headers, self._rows, self._bytes = {}, {}, [], (0, 0)
        return taken

    def rows(self) -> list[tuple[str, int | None, int, bytes | None, bytes | None, tuple[Header, ...]]]:
        """Return the records as tuples of topic, partition, timestamp, key, value and headers."""
        return [
            (topic, None if partition < 0 else partition, timestamp, key, value, self.headers.get(row, ()))
            for row, (topic, partition, timestamp, key, value) in enumerate(self._rows)
        ]

    def buffers(self) -> tuple[bytes, ...]:
        """Return the columns as bytes.

        Returns:
            Topic numbers (int32), partitions (int32) and timestamps (int64); then, for keys and for values: row data,
            row end offsets (int32), and one validity byte per row, which is 0 for None.
        """
        topics, partitions, timestamps, keys, values = zip(*self._rows, strict=True) if self._rows else [()] * 5
        return (
            array("i", map(self.topics.__getitem__, topics)).tobytes(),
            array("i", partitions).tobytes(),
            array("q", timestamps).tobytes(),
            *_pack(keys),
            *_pack(values),
        )


class SinkWriter:
    """Serializes the records of a sink, and appends them to the output columns.

    Args:
        columns: output columns.
        topic: topic of the sink.
        key_codec: ``serdes.Codec`` of the keys.
        value_codec: ``serdes.Codec`` of the values.
        otherwise: fallback function for records that have headers, or whose key or value its codec cannot encode.
        count_partitions: function that returns the number of partitions of a topic. It is called with the topic of each
            record with a windowed key, which is sent to the partition of its inner key. If it is None, the producer
            selects all partitions.
    """

    __slots__ = ("_columns", "_count_partitions", "_key_codec", "_otherwise", "_topic", "_value_codec", "_windowed")

    def __init__(
        self,
        columns: OutputColumns,
        topic: str,
        key_codec: int,
        value_codec: int,
        otherwise: Process,
        count_partitions: Callable[[str], int] | None = None,
    ) -> None:
        # Not imported above, because the package of the stores imports this module.
        from zkconsumer.topology.stores.time_map import Windowed

        self._columns, self._topic, self._otherwise = columns, topic, otherwise
        self._key_codec, self._value_codec, self._count_partitions = key_codec, value_codec, count_partitions
        self._windowed = Windowed

    def __call__(self, record: Record) -> None:
        if type(record) is Record:
            has_headers, key, value = bool(record.headers), record.key, record.value
            try:
                if has_headers:
                    raise TypeError
                encoded, partition = self._encode_key(key)
                value = _encode(self._value_codec, value)
            except (TypeError, UnicodeError, struct.error):
                pass
            else:
                self._columns.append(self._topic, partition, record.timestamp, encoded, value, ())
                return
        self._otherwise(record)

    def _encode_key(self, key: Any) -> tuple[bytes | None, int | None]:
        """Return the encoded key and its partition; raise an error like ``_encode``."""
        if not self._key_codec & _WINDOWED:
            return _encode(self._key_codec, key), None
        if type(key) is not self._windowed or len(key) != len(self._windowed._fields) or key.key is None:
            raise TypeError
        if type(key.start) is not int or type(key.end) is not int:
            raise TypeError
        inner = _encode(self._key_codec & ~_WINDOWED, key.key) or b""
        times = (key.end, key.start) if self._key_codec & Codec.SESSION_WINDOWED else (key.start,)
        return inner + struct.pack(f">{len(times)}q", *times), self._select_partition(inner)

    def _select_partition(self, inner: bytes) -> int | None:
        if self._count_partitions is None:
            return None
        try:
            count = self._count_partitions(self._topic)
        except Exception:
            raise TypeError from None
        if type(count) is not int or not 0 < count <= _MAX_INT32:
            raise TypeError
        return (murmur2(inner) & _MAX_INT32) % count


class Serialize(Generic[B]):
    """Serializes objects.

    Args:
        codec: ``serdes.Codec`` of the objects.
        otherwise: fallback serializer for objects that the codec cannot encode.
    """

    __slots__ = ("_otherwise",)

    def __init__(self, codec: int, otherwise: Callable[[Any], B]) -> None:  # noqa: ARG002
        self._otherwise = otherwise

    def __call__(self, value: Any) -> B:
        return self._otherwise(value)


class Deserialize:
    """Deserializes bytes.

    Args:
        codec: ``serdes.Codec`` of the bytes.
        otherwise: fallback deserializer for bytes that the codec cannot decode.
    """

    __slots__ = ("_otherwise",)

    def __init__(self, codec: int, otherwise: Callable[[bytes], Any]) -> None:  # noqa: ARG002
        self._otherwise = otherwise

    def __call__(self, data: bytes) -> Any:
        return self._otherwise(data)


#: Flags of the codecs of windowed keys.
_WINDOWED = Codec.TIME_WINDOWED | Codec.SESSION_WINDOWED

_TYPES: dict[int, type] = {
    Codec.BYTES: bytes,
    Codec.STRING: str,
    Codec.INTEGER: int,
    Codec.LONG: int,
    Codec.DOUBLE: float,
}
_FORMATS: dict[int, str] = {Codec.INTEGER: ">i", Codec.LONG: ">q", Codec.DOUBLE: ">d"}


def read_column(codec: int, valid: Any, ends: Any, data: Any, first: int, count: int) -> list[Any]:
    """Deserialize rows of an Arrow binary array.

    Args:
        codec: ``serdes.Codec`` of the rows.
        valid: validity bitmap; None if no row is null.
        ends: offsets of the rows in ``data`` (int32); each row ends where the next row begins.
        data: row data; None if all rows are empty or null.
        first: number of the first row.
        count: number of rows.

    Raises:
        ValueError: a row cannot be deserialized, the buffers are too short, or the codec is not supported.
    """
    if not Codec.BYTES <= codec <= Codec.DOUBLE:
        raise ValueError(f"unsupported codec: {int(codec)}")
    if first == 0 and count == 0:  # an empty array may have no buffers
        return []
    ends_view = memoryview(b"" if ends is None else ends).cast("B")
    bounds = ends_view[: len(ends_view) // 4 * 4].cast("i")
    content = memoryview(b"" if data is None else data).cast("B")
    bits = None if valid is None else memoryview(valid).cast("B")
    if first < 0 or count < 0 or first + count >= len(bounds) or (bits is not None and first + count > 8 * len(bits)):
        raise ValueError("the buffers are shorter than the column")
    rows: list[Any] = []
    for row in range(first, first + count):
        if bits is not None and not bits[row // 8] >> row % 8 & 1:
            rows.append(None)
        elif not 0 <= bounds[row] <= bounds[row + 1] <= len(content):
            raise ValueError(f"the data of row {row} exceeds the buffer ({len(content)} bytes)")
        else:
            rows.append(_decode(codec, bytes(content[bounds[row] : bounds[row + 1]])))
    return rows


def has_negative(timestamps: Sequence[int]) -> bool:
    """Return whether a column contains a negative timestamp."""
    return any(map(_is_negative, timestamps))


def _is_negative(timestamp: object) -> bool:
    if not isinstance(timestamp, int):
        raise TypeError(f"a timestamp must be an integer, got {timestamp!r}")
    return timestamp < 0


def _check_types(topic: object, timestamp: object, headers: object) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"append() argument 1 must be str, not {_name_type(topic)}")
    if not isinstance(timestamp, int):
        raise TypeError(f"{type(timestamp).__name__!r} object cannot be interpreted as an integer")
    if not -MAX_TIMESTAMP - 1 <= timestamp <= MAX_TIMESTAMP:
        raise OverflowError("int too big to convert")
    if not isinstance(headers, tuple):
        raise TypeError(f"append() argument 6 must be tuple, not {_name_type(headers)}")


def _name_type(argument: object) -> str:
    return "None" if argument is None else type(argument).__name__


def _encode(codec: int, value: Any) -> bytes | None:
    """Encode None or an object whose type is exactly the codec's type; raise an error for other objects."""
    if not codec:
        raise TypeError
    if value is None:
        return None
    if type(value) is not _TYPES.get(codec):
        raise TypeError
    if codec in _FORMATS:
        return struct.pack(_FORMATS[codec], value)
    return value if isinstance(value, bytes) else str(value).encode()


def _decode(codec: int, data: bytes) -> Any:
    if codec == Codec.BYTES:
        return data
    try:
        return data.decode() if codec == Codec.STRING else struct.unpack(_FORMATS[codec], data)[0]
    except (UnicodeDecodeError, struct.error):
        raise ValueError(f"a row cannot be deserialized with codec {int(codec)}") from None


def _pack(column: Sequence[bytes | None]) -> tuple[bytes, bytes, bytes]:
    """Return the concatenated data, the end offset of each row, and one validity byte per row."""
    ends = accumulate(0 if data is None else len(data) for data in column)
    valid = bytes(data is not None for data in column)
    return b"".join(data for data in column if data is not None), array("i", ends).tobytes(), valid


Record.__module__ = "zkconsumer.topology.loop.records"
