"""ArrowReader: chunks as record batches in the layout of Spark's own Kafka source."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import MAX_BYTES, MAX_ROWS, ChunkReader, Decoded
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, TopicPartition

_MICROSECONDS = 1000


class _Constants:
    """Columns that hold one value, made once per length reached and then sliced."""

    def __init__(self) -> None:
        self._columns: dict[TopicPartition, tuple[Any, Any]] = {}

    def get(self, partition: TopicPartition, rows: int) -> tuple[Any, Any]:
        columns = self._columns.get(partition)
        if columns is None or len(columns[0]) < rows:
            length = max(rows, 4096)
            # By hand, since pa.scalar and pa.array import pandas where it is installed: half a second and 50 MB.
            topic = partition.topic.encode()
            ends = array("i", range(0, (length + 1) * len(topic), len(topic)))
            columns = (
                _array(_STRING, length, [None, pa.py_buffer(ends), pa.py_buffer(topic * length)]),
                _array(_INT32, length, [None, pa.py_buffer(array("i", [partition.partition]) * length)]),
            )
            self._columns[partition] = columns
        return columns[0].slice(0, rows), columns[1].slice(0, rows)


def _array(kind: Any, rows: int, buffers: list[Any], nulls: int = 0) -> Any:
    if not nulls:
        buffers = [None, *buffers[1:]]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


_BINARY, _STRING = pa.binary(), pa.string()
_INT32, _INT64, _TIME = pa.int32(), pa.int64(), ARROW_SCHEMA.field("timestamp").type
_HEADERS = ARROW_SCHEMA_WITH_HEADERS.field("headers").type


def _names(names: Any) -> Any:
    """Return header keys as text; bytes that are not UTF-8 become replacement characters."""
    try:
        return names.cast(_STRING)
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode("utf-8", "replace") for name in names], _STRING)


class ArrowReader:
    """Turns chunks into record batches in the layout of Spark's own Kafka source; used by one thread."""

    def __init__(
        self,
        *,
        include_headers: bool = False,
        check_crcs: bool = True,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.schema = ARROW_SCHEMA_WITH_HEADERS if include_headers else ARROW_SCHEMA
        self._options: dict[str, Any] = {
            "headers": include_headers,
            "check_crcs": check_crcs,
            "max_rows": max_rows,
            "max_bytes": max_bytes,
        }
        self._constants = _Constants()

    def read(self, chunk: Chunk) -> Iterator[tuple[Any, int]]:
        """Yield each record batch of the chunk and the offset after it.

        Timestamps that do not fit 64 bits of microseconds are cut to the nearest that does.

        Raises:
            CorruptRecordError: see ``ChunkReader.pieces``.
        """
        for piece in ChunkReader(chunk, **self._options).pieces(_MICROSECONDS):
            yield self._batch(piece), piece.next_offset

    def _batch(self, piece: Decoded) -> Any:
        rows, counts, c = piece.rows, piece.counts, piece.columns
        topic, partition = self._constants.get(piece.partition, rows)
        arrays = [
            _array(_BINARY, rows, [c[4], c[3], c[5]], counts["key_nulls"]),
            _array(_BINARY, rows, [c[7], c[6], c[8]], counts["value_nulls"]),
            topic,
            partition,
            _array(_INT64, rows, [None, c[0]]),
            _array(_TIME, rows, [None, c[1]]),
            _array(_INT32, rows, [None, c[2]]),
        ]
        if piece.headers is not None:
            h, n = piece.headers, counts["headers"]
            names = _names(_array(_BINARY, n, [None, h[2], h[4]]))
            values = pa.Array.from_buffers(_BINARY, n, [h[6], h[5], h[7]])
            pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
            validity = h[1] if counts["header_lists_null"] else None
            arrays.append(pa.Array.from_buffers(_HEADERS, rows, [validity, h[0]], children=[pairs]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
