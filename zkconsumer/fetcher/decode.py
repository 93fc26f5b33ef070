"""From the records of one partition, as the broker sent them, to Arrow batches or messages.

The bytes are walked by the compiled ``_decode`` or, where ``ZKCONSUMER_PURE=1``, by its twin ``decode_py``.
What stays here is one step per segment: compression, control batches and aborted transactions.

Source: Kafka 1.1 kafka.consumer.ConsumerIterator; for transactions Kafka 3.9 CompletedFetch.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher import codecs, decode_py
from zkconsumer.fetcher.decode_py import (
    CHECK_CRC,
    CODEC_MASK,
    CONTROL,
    LOG_APPEND,
    SPLIT_TRANSACTIONS,
    TRANSACTIONAL,
    Segment,
)
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, MessageAndMetadata, TopicPartition

if os.environ.get("ZKCONSUMER_PURE") == "1":
    native: Any = decode_py
else:
    try:
        from zkconsumer.fetcher import _decode as native
    except ImportError as error:  # pragma: no cover
        raise ImportError(
            "zkconsumer's compiled decoder is missing; install the package with a C compiler present, "
            "or set ZKCONSUMER_PURE=1 to use the far slower Python one"
        ) from error

NO_LIMIT = (1 << 63) - 1

#: Rows and bytes of records at which a batch is handed on; one entry of the log is never cut.
MAX_ROWS = 65_536
MAX_BYTES = 8 << 20

_MICROSECONDS = 1000
_READ_COMMITTED = SPLIT_TRANSACTIONS


@dataclass(slots=True)
class Chunk:
    """Records of one partition as one answer brought them.

    ``data`` holds whole entries of any format and perhaps an incomplete last one. ``fetch_offset`` is what
    was asked for: compressed batches may start below it. ``next_offset`` is where fetching goes on.
    ``aborted`` are the ``(producer id, first offset)`` of aborted transactions, where the broker was asked
    for them; ``until`` bounds the offsets from above.
    """

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    data: Any
    aborted: Sequence[tuple[int, int]] = ()
    until: int = NO_LIMIT

    @property
    def nbytes(self) -> int:
        """Bytes that the chunk keeps in memory."""
        return len(self.data)


@dataclass(slots=True)
class Decoded:
    """Rows of one partition: filled column buffers, and where reading goes on.

    ``first_offset`` is that of the first row, ``next_offset`` the one after everything looked at.
    """

    partition: TopicPartition
    rows: int
    next_offset: int
    columns: tuple[Any, ...]
    headers: tuple[Any, ...] | None
    counts: dict[str, int] = field(default_factory=dict)

    def offset(self, row: int) -> int:
        """The offset of a row."""
        return int(struct.unpack_from("=q", self.columns[0], 8 * row)[0])


class ChunkReader:
    """Decodes one chunk, piece by piece.

    A piece is a run of entries of at most ``max_rows`` rows and ``max_bytes`` bytes; a larger entry is a
    piece of its own.
    """

    def __init__(
        self,
        chunk: Chunk,
        *,
        headers: bool,
        check_crcs: bool = True,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._chunk = chunk
        self._headers = headers
        self._flags = (CHECK_CRC if check_crcs else 0) | (_READ_COMMITTED if chunk.aborted else 0)
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._position = 0
        self._next_offset = chunk.fetch_offset
        self._to_abort = sorted(chunk.aborted, key=lambda entry: entry[1])
        self._aborted: set[int] = set()

    def pieces(self, timestamp_scale: int) -> Iterator[Decoded]:
        """Yield the rows of the chunk.

        Raises:
            CorruptRecordError: at the first entry that cannot be read; what stands before it was yielded.
        """
        chunk = self._chunk
        while True:
            try:
                found = native.scan(
                    chunk.data,
                    self._position,
                    chunk.fetch_offset,
                    chunk.until,
                    self._max_rows,
                    self._max_bytes,
                    self._flags,
                )
            except ValueError as error:
                raise self._corrupt(*error.args) from None
            if found is None:
                if not self._position and chunk.next_offset == chunk.fetch_offset and len(chunk.data):
                    raise self._corrupt("no complete entry", 0)
                return
            segment = Segment(*found)
            if segment.base_offset >= chunk.until:
                return
            if not self._is_hidden(segment):
                yield from self._rows(segment, timestamp_scale)
            self._position = segment.end
            self._next_offset = segment.next_offset

    def _corrupt(self, reason: str, position: int) -> CorruptRecordError:
        topic, partition = self._chunk.partition
        return CorruptRecordError(
            f"topic {topic!r} partition {partition} offset {self._next_offset}: {reason}, "
            f"at byte {position} of {len(self._chunk.data)} fetched from offset {self._chunk.fetch_offset}. "
            "It will be fetched again; if it stays, restore the partition from a replica or commit an "
            "offset behind the damaged batch",
            self._next_offset,
        )

    def _is_hidden(self, segment: Segment) -> bool:
        """Whether the segment is a control batch or part of an aborted transaction."""
        if segment.magic < 2:
            return False
        if self._flags & SPLIT_TRANSACTIONS and segment.attributes & TRANSACTIONAL:
            while self._to_abort and self._to_abort[0][1] < segment.next_offset:
                self._aborted.add(self._to_abort.pop(0)[0])
            if not segment.attributes & CONTROL:
                return segment.producer_id in self._aborted
            if self._is_abort_marker(segment):
                self._aborted.discard(segment.producer_id)
        return bool(segment.attributes & CONTROL)

    def _is_abort_marker(self, segment: Segment) -> bool:
        """Read the one record of a control batch, whose key is (version i16, type i16); type 0 aborts."""
        columns = _Buffers(1, 64, None)
        columns.decode(self._chunk.data, segment, segment.payload, segment.end, 0, NO_LIMIT, 1)
        counts = columns.counts()
        key = memoryview(columns.columns[5])[: counts["key_bytes"]]
        return len(key) >= 4 and struct.unpack_from(">hh", key)[1] == 0

    def _rows(self, segment: Segment, timestamp_scale: int) -> Iterator[Decoded]:
        if segment.magic == 2:
            data, start, end = self._chunk.data, segment.begin, segment.end
            if segment.attributes & CODEC_MASK:
                data = self._decompressed(segment)
                start, end = 0, len(data)
                if segment.rows > end // 7:
                    raise self._corrupt("more records than bytes", segment.begin)
            yield from self._decoded(data, segment, start, end, segment.rows, timestamp_scale)
        elif not segment.attributes & CODEC_MASK:
            run = segment._replace(base_offset=0, attributes=0)
            yield from self._decoded(self._chunk.data, run, segment.begin, segment.end, segment.rows, timestamp_scale)
        else:
            data = self._decompressed(segment)
            try:
                inner = native.scan(data, 0, -1 << 63, NO_LIMIT, NO_LIMIT, NO_LIMIT, self._flags & CHECK_CRC)
            except ValueError as error:
                raise self._corrupt(error.args[0], segment.begin) from None
            if inner is None:
                return
            inside = Segment(*inner)
            if inside.end != len(data) or inside.magic > 1 or inside.attributes & CODEC_MASK:
                raise self._corrupt("a compressed message set is malformed", segment.begin)
            shift = segment.base_offset - (inside.next_offset - 1) if segment.magic == 1 else 0
            run = segment._replace(base_offset=shift, rows=inside.rows)
            yield from self._decoded(data, run, 0, len(data), inside.rows, timestamp_scale)

    def _decompressed(self, segment: Segment) -> Any:
        data = memoryview(self._chunk.data)[segment.payload : segment.end]
        try:
            return codecs.decompress(segment.attributes & CODEC_MASK, data, segment.magic)
        except ValueError as error:
            raise self._corrupt(str(error), segment.begin) from None

    def _decoded(
        self, data: Any, segment: Segment, start: int, end: int, rows: int, timestamp_scale: int
    ) -> Iterator[Decoded]:
        headers = None
        if self._headers:
            count = -1 if segment.end - segment.begin == end - start else segment.rows
            headers = native.measure(data, start, end, count) if segment.magic == 2 else (0, 0, 0)
        buffers = _Buffers(rows, end - start, headers)
        chunk = self._chunk
        failed = buffers.decode(data, segment, start, end, chunk.fetch_offset, chunk.until, timestamp_scale)
        counts = buffers.counts()
        if counts["rows"]:
            yield Decoded(
                chunk.partition,
                counts["rows"],
                segment.next_offset if failed < 0 else -1,
                buffers.columns,
                buffers.headers,
                counts,
            )
        if failed >= 0:
            raise self._corrupt("a record is malformed", failed)


class _Buffers:
    """The buffers of the columns, sized for ``rows`` rows of ``size`` bytes together.

    Arrow's allocator is used, not bytearray: it does not clear the memory and it takes freed pieces again.
    """

    def __init__(self, rows: int, size: int, headers: tuple[int, int, int] | None) -> None:
        new, bits = pa.allocate_buffer, (rows + 7) // 8
        fixed = new(8 * rows), new(8 * rows), new(4 * rows)
        key, value = ((new(4 * (rows + 1)), new(bits), new(size)) for _ in range(2))
        self.columns = (*fixed, *key, *value)
        self.headers: tuple[Any, ...] | None = None
        if headers is not None:
            count, key_bytes, value_bytes = headers
            ends, header_bits = 4 * (count + 1), (count + 7) // 8
            self.headers = (
                *(new(4 * (rows + 1)), new(bits)),
                *(new(ends), new(header_bits), new(key_bytes)),
                *(new(ends), new(header_bits), new(value_bytes)),
            )
            if not count:  # the decoder writes offsets with the first header only
                for at in (2, 5):
                    memoryview(self.headers[at]).cast("B")[:] = bytes(4)
        self._state = bytearray(8 * len(decode_py.STATE))

    def decode(
        self, data: Any, segment: Segment, start: int, end: int, from_offset: int, until: int, scale: int
    ) -> int:
        whole = segment.magic == 2 and start == segment.begin and end == segment.end
        return int(
            native.decode(
                data,
                start,
                end,
                segment.magic,
                segment.attributes & LOG_APPEND,
                segment.base_offset,
                segment.first_timestamp,
                segment.max_timestamp,
                -1 if whole else segment.rows,
                from_offset,
                until,
                scale,
                self._state,
                self.columns,
                self.headers,
            )
        )

    def counts(self) -> dict[str, int]:
        return dict(zip(decode_py.STATE, struct.unpack(f"={len(decode_py.STATE)}q", self._state), strict=True))


class _Constants:
    """Columns that hold one value, made once per length reached and then sliced."""

    def __init__(self) -> None:
        self._columns: dict[TopicPartition, tuple[Any, Any]] = {}

    def get(self, partition: TopicPartition, rows: int) -> tuple[Any, Any]:
        columns = self._columns.get(partition)
        if columns is None or len(columns[0]) < rows:
            length = max(rows, 4096)
            columns = (
                pa.repeat(pa.scalar(partition.topic, pa.string()), length),
                pa.repeat(pa.scalar(partition.partition, pa.int32()), length),
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
            names = _array(_STRING, n, [None, h[2], h[4]])
            values = pa.Array.from_buffers(_BINARY, n, [h[6], h[5], h[7]])
            pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
            validity = h[1] if counts["header_lists_null"] else None
            arrays.append(pa.Array.from_buffers(_HEADERS, rows, [validity, h[0]], children=[pairs]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def read_messages(
    chunk: Chunk, cls: type[MessageAndMetadata] = MessageAndMetadata, *, check_crcs: bool = True, max_rows: int
) -> Iterator[tuple[list[Any], int]]:
    """Yield lists of the chunk's messages, each with the offset after them.

    Raises:
        CorruptRecordError: see ``ChunkReader.pieces``.
    """
    reader = ChunkReader(chunk, headers=True, check_crcs=check_crcs, max_rows=max_rows)
    for piece in reader.pieces(1):
        topic, partition = piece.partition
        found = native.messages(cls, topic, partition, piece.rows, piece.columns, piece.headers)
        yield found, piece.next_offset
