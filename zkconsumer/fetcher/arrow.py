"""ArrowReader: converts chunks to Arrow record batches with the columns of Spark's Kafka source."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer.event_limits import log_limited
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.column_writer import Counts
from zkconsumer.fetcher.decode import MAX_BYTES, MAX_ROWS, ChunkReader, DecodedRows
from zkconsumer.log import get_logger
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, TopicPartition

_MICROSECONDS_PER_MILLISECOND = 1000

#: Values of timestamps that do not fit into 64-bit microseconds.
_LIMITS = (-(1 << 63), (1 << 63) - 1)

_OFFSET, _TIMESTAMP_COLUMN = ARROW_SCHEMA.names.index("offset"), ARROW_SCHEMA.names.index("timestamp")

_BINARY, _STRING = pa.binary(), pa.string()
_INT32, _INT64, _TIMESTAMP = pa.int32(), pa.int64(), ARROW_SCHEMA.field("timestamp").type
_HEADERS = ARROW_SCHEMA_WITH_HEADERS.field("headers").type

#: Minimum number of rows in a cached constant column; shorter columns are slices of it.
_MIN_CONSTANT_ROWS = 4096

#: Maximum number of cached topic columns and partition columns.
_MAX_TOPICS, _MAX_PARTITIONS = 4, 64

K = TypeVar("K")


class ArrowReader:
    """Decodes chunks into Arrow record batches; used by one thread."""

    def __init__(
        self,
        *,
        include_headers: bool = False,
        check_crcs: bool = True,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        max_slice_rows: int = MAX_ROWS,
    ) -> None:
        self.schema = ARROW_SCHEMA_WITH_HEADERS if include_headers else ARROW_SCHEMA
        self._options: dict[str, Any] = {
            "headers": include_headers,
            "check_crcs": check_crcs,
            "max_rows": max_rows,
            "max_bytes": max_bytes,
            "max_slice_rows": max_slice_rows,
        }
        self._constants = _ConstantColumns()

    def read(self, chunk: Chunk) -> Iterator[tuple[Any, int]]:
        """Yield the Arrow record batches of the chunk, each with the next offset to read.

        Timestamps outside the range of 64-bit microseconds are clamped to it. This is logged at most once per minute
        and partition in each process.

        Raises:
            CorruptRecordError: see ``ChunkReader.read_blocks``.
        """
        for block in ChunkReader(chunk, **self._options).read_blocks(_MICROSECONDS_PER_MILLISECOND):
            batch = self._build_batch(block)
            if count := block.counts.timestamps_clamped:
                _log_clamped(chunk.partition, batch, count)
            yield batch, block.next_offset

    def _build_batch(self, block: DecodedRows) -> Any:
        rows, counts = block.rows, block.counts
        offset, timestamp, timestamp_type, *binary = block.columns
        key_offsets, key_validity, key_data, value_offsets, value_validity, value_data = binary
        topic, partition = self._constants.get(block.partition, rows)
        arrays = [
            _build_array(_BINARY, rows, [key_validity, key_offsets, key_data], counts.key_nulls),
            _build_array(_BINARY, rows, [value_validity, value_offsets, value_data], counts.value_nulls),
            topic,
            partition,
            _build_array(_INT64, rows, [None, offset]),
            _build_array(_TIMESTAMP, rows, [None, timestamp]),
            _build_array(_INT32, rows, [None, timestamp_type]),
        ]
        if block.headers is not None:
            arrays.append(_build_header_column(block.headers, rows, counts))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _log_clamped(partition: TopicPartition, batch: Any, count: int) -> None:
    offset = batch.column(_OFFSET).filter(find_clamped(batch))[0].as_py()
    log_limited(("timestamps_clamped", partition), partial(_log_event, partition, offset), count)


def _log_event(partition: TopicPartition, offset: int, records: int) -> None:
    get_logger("zkconsumer.fetcher").warning(
        "timestamps_clamped", topic=partition.topic, partition=partition.partition, offset=offset, records=records
    )


def find_clamped(batch: Any) -> Any | None:
    """Return which timestamps in a batch were clamped, as an Arrow array of booleans; see ``ArrowReader.read``.

    The result is None if no timestamp was clamped.
    """
    values = batch.column(_TIMESTAMP_COLUMN).view(_INT64)
    extremes = pc.min_max(values).as_py()
    if extremes["max"] not in _LIMITS and extremes["min"] not in _LIMITS:
        return None
    return pc.is_in(values, value_set=pa.Array.from_buffers(_INT64, 2, [None, pa.py_buffer(array("q", _LIMITS))]))


class _ConstantColumns:
    """Cache of recently used topic and partition columns, which are sliced to the length of each batch.

    All partitions of a topic share the topic column. Only a few columns are cached, because a consumer may read
    thousands of partitions.
    """

    def __init__(self) -> None:
        self._topics: OrderedDict[str, Any] = OrderedDict()
        self._partitions: OrderedDict[int, Any] = OrderedDict()

    def get(self, partition: TopicPartition, rows: int) -> tuple[Any, Any]:
        """Return the topic column and the partition column, with ``rows`` rows each."""
        topic = _cache_column(self._topics, partition.topic, rows, _MAX_TOPICS, _build_topic_column)
        number = _cache_column(self._partitions, partition.partition, rows, _MAX_PARTITIONS, _build_partition_column)
        return topic.slice(0, rows), number.slice(0, rows)


def _cache_column(columns: OrderedDict[K, Any], key: K, rows: int, limit: int, build: Callable[[K, int], Any]) -> Any:
    """Return a cached or new column with at least ``rows`` rows; keep at most ``limit`` columns in the cache."""
    column = columns.get(key)
    if column is None or len(column) < rows:
        column = columns[key] = build(key, max(rows, _MIN_CONSTANT_ROWS))
    columns.move_to_end(key)
    if len(columns) > limit:
        columns.popitem(last=False)
    return column


# Build arrays from buffers: pa.scalar and pa.array import pandas if it is installed, which takes 0.5 s and 50 MB.
# See docs/decisions/21-arrow-without-pandas.rst.


def _build_topic_column(topic: str, length: int) -> Any:
    name = topic.encode()
    ends = array("i", range(0, (length + 1) * len(name), len(name)))
    return _build_array(_STRING, length, [None, pa.py_buffer(ends), pa.py_buffer(name * length)])


def _build_partition_column(partition: int, length: int) -> Any:
    return _build_array(_INT32, length, [None, pa.py_buffer(array("i", [partition]) * length)])


def _build_array(kind: Any, rows: int, buffers: list[Any], nulls: int = 0) -> Any:
    """Return an Arrow array made of ``buffers``, the first of which contains the validity bits."""
    if not nulls:
        buffers = [None, *buffers[1:]]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _build_header_column(buffers: tuple[Any, ...], rows: int, counts: Counts) -> Any:
    list_offsets, list_validity, *binary = buffers
    name_offsets, _, name_data, value_offsets, value_validity, value_data = binary
    count = counts.headers
    names = _decode_header_names(_build_array(_BINARY, count, [None, name_offsets, name_data]))
    values = pa.Array.from_buffers(_BINARY, count, [value_validity, value_offsets, value_data])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    validity = list_validity if counts.header_lists_null else None
    return pa.Array.from_buffers(_HEADERS, rows, [validity, list_offsets], children=[pairs])


def _decode_header_names(names: Any) -> Any:
    """Decode header keys to strings; invalid UTF-8 is decoded to replacement characters."""
    try:
        return names.cast(_STRING)
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode("utf-8", "replace") for name in names], _STRING)
