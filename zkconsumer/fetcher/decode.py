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
from typing import Any, NamedTuple

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher import codecs, decode_py
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.column_buffers import ColumnBuffers
from zkconsumer.fetcher.record_format import (
    CHECK_CRC,
    CODEC_MASK,
    CONTROL,
    LOG_APPEND,
    SPLIT_TRANSACTIONS,
    TRANSACTIONAL,
    Segment,
)
from zkconsumer.message import MessageAndMetadata, TopicPartition

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

#: Rows and bytes of records at which a batch is handed on; one entry of the log is never cut.
MAX_ROWS = 65_536

#: What every entry begins with: an offset and the size of what follows.
_FRAME = struct.Struct(">qi")
#: Bytes behind that up to and with the format's number, in all formats.
_MAGIC_AT = 5
MAX_BYTES = 2 << 20


def log_skipped(log: Any, partition: TopicPartition, error: CorruptRecordError) -> None:
    """Log that reading goes on behind a damaged batch."""
    log.error(
        "corrupt_records_skipped",
        topic=partition.topic,
        partition=partition.partition,
        offset=error.offset,
        goes_on_at=error.after,
        error=str(error),
    )


@dataclass(slots=True)
class Decoded:
    """Rows of one partition: filled column buffers, and where reading goes on.

    ``next_offset`` is the one after everything looked at.
    """

    partition: TopicPartition
    rows: int
    next_offset: int
    columns: tuple[Any, ...]
    headers: tuple[Any, ...] | None
    counts: dict[str, int] = field(default_factory=dict)


class _Part(NamedTuple):
    """Records that can be decoded at one go: a run of plain entries, or the content of a compressed one.

    ``offset`` is where reading would go on were the part not readable.
    """

    data: Any
    segment: Segment
    start: int
    end: int
    offset: int

    @property
    def is_whole_batches(self) -> bool:
        """Whether it has batch headers of format 2 in it."""
        segment = self.segment
        return segment.magic == 2 and not segment.attributes & CODEC_MASK and self.start == segment.begin

    @property
    def records(self) -> int:
        """The number of records as ``decode`` and ``measure`` want it."""
        return -1 if self.is_whole_batches else self.segment.rows


class ChunkReader:
    """Decodes one chunk, piece by piece.

    A piece has at most ``max_rows`` rows of ``max_bytes`` bytes together, unless a single entry of the log has
    more.
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
        self._flags = (CHECK_CRC if check_crcs else 0) | (SPLIT_TRANSACTIONS if chunk.aborted else 0)
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
        parts: list[_Part] = []
        rows = size = 0
        damage: CorruptRecordError | None = None
        while True:
            try:
                part = self._next_part()
            except CorruptRecordError as error:
                part, damage = None, error
            more_rows = part.segment.rows if part else 0
            more_bytes = part.end - part.start if part else 0
            full = rows + more_rows > self._max_rows or size + more_bytes > self._max_bytes
            if parts and (part is None or full):
                yield from self._decoded(parts, timestamp_scale)
                parts, rows, size = [], 0, 0
            if damage is not None:
                try:
                    raise damage
                finally:
                    damage = None  # else it and its frames, with the chunk, keep each other alive
            if part is None:
                return
            parts.append(part)
            rows += more_rows
            size += more_bytes

    def _next_part(self) -> _Part | None:
        """Return the next part that has records for the reader."""
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
                reason, position = error.args
                raise self._corrupt(reason, position, self._next_offset) from None
            if found is None:
                if not self._position and chunk.next_offset == chunk.fetch_offset and len(chunk.data):
                    raise self._corrupt("no complete entry", 0, chunk.fetch_offset)
                return None
            segment = Segment(*found)
            first_is_known = segment.magic == 2 or not segment.attributes & CODEC_MASK  # wrappers have their last
            if first_is_known and segment.base_offset >= chunk.until:
                return None
            part = None if self._is_hidden(segment) else self._part(segment)
            self._position = segment.end
            self._next_offset = segment.next_offset
            if part is not None:
                return part

    def _corrupt(self, reason: str, position: int, offset: int) -> CorruptRecordError:
        topic, partition = self._chunk.partition
        return CorruptRecordError(
            f"topic {topic!r} partition {partition} offset {offset}: {reason}, "
            f"at byte {position} of {len(self._chunk.data)} fetched from offset {self._chunk.fetch_offset}. "
            "It will be fetched again; if it stays, restore the partition from a replica, commit an "
            "offset behind the damaged batch, or set corrupt.record.policy=skip",
            offset,
            *self._after(position, offset),
        )

    def _after(self, position: int, offset: int) -> tuple[int, bytes]:
        """Return the offset behind the entry at a position and its bytes, if its frame is whole; -1 if not."""
        data = memoryview(self._chunk.data)[position:]
        if len(data) < _FRAME.size + _MAGIC_AT:
            return -1, b""
        own, size, magic = *_FRAME.unpack_from(data), data[_FRAME.size + _MAGIC_AT - 1]
        if not 0 < size <= len(data) - _FRAME.size:
            return -1, b""
        after = own + 1  # before format 2 an entry has the offset of its last record
        if magic >= 2:
            # What the batch says of itself is not to be trusted; the next one says where it begins.
            behind = data[_FRAME.size + size :]
            after = _FRAME.unpack_from(behind)[0] if len(behind) >= _FRAME.size else -1
        return (after, bytes(data[: _FRAME.size + size])) if after > offset else (-1, b"")

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
        columns = ColumnBuffers(1, 64, None)
        part = _Part(self._chunk.data, segment, segment.payload, segment.end, self._next_offset)
        _decode_part(part, columns, 0, NO_LIMIT, 1)
        key = memoryview(columns.columns[5])[: columns.counts()["key_bytes"]]
        return len(key) >= 4 and struct.unpack_from(">hh", key)[1] == 0

    def _part(self, segment: Segment) -> _Part | None:
        offset = self._next_offset
        compressed = bool(segment.attributes & CODEC_MASK)
        if not compressed:
            if segment.magic < 2:
                segment = segment._replace(base_offset=0, attributes=0)
            return _Part(self._chunk.data, segment, segment.begin, segment.end, offset)
        data = self._decompressed(segment)
        if segment.magic == 2:
            if segment.rows > len(data) // 7:
                raise self._corrupt("more records than bytes", segment.begin, offset)
            return _Part(data, segment, 0, len(data), offset)
        try:
            inner = native.scan(data, 0, -1 << 63, NO_LIMIT, NO_LIMIT, NO_LIMIT, self._flags & CHECK_CRC)
        except ValueError as error:
            raise self._corrupt(error.args[0], segment.begin, offset) from None
        inside = Segment(*inner) if inner is not None else None
        if inside is None or inside.end != len(data) or inside.magic > 1 or inside.attributes & CODEC_MASK:
            raise self._corrupt("a compressed message set is malformed", segment.begin, offset)
        # Format 1 counts offsets inside a wrapper from 0, and the wrapper has that of its last message.
        shift = segment.base_offset - (inside.next_offset - 1) if segment.magic == 1 else 0
        if not -1 << 63 <= shift < 1 << 63:
            raise self._corrupt("a compressed message set has impossible offsets", segment.begin, offset)
        return _Part(data, segment._replace(base_offset=shift, rows=inside.rows), 0, len(data), offset)

    def _decompressed(self, segment: Segment) -> Any:
        data = memoryview(self._chunk.data)[segment.payload : segment.end]
        try:
            return codecs.decompress(segment.attributes & CODEC_MASK, data, segment.magic)
        except ValueError as error:
            raise self._corrupt(str(error), segment.begin, self._next_offset) from None

    def _decoded(self, parts: Sequence[_Part], timestamp_scale: int) -> Iterator[Decoded]:
        headers = None
        if self._headers:
            measured = [native.measure(p.data, p.start, p.end, p.records) for p in parts if p.segment.magic == 2]
            headers = tuple(sum(column) for column in zip(*measured, strict=True)) if measured else (0, 0, 0)
        rows, size = sum(part.segment.rows for part in parts), sum(part.end - part.start for part in parts)
        buffers = ColumnBuffers(rows, size, headers)
        chunk = self._chunk
        damage: CorruptRecordError | None = None
        next_offset = parts[-1].segment.next_offset
        for part in parts:
            failed = _decode_part(part, buffers, chunk.fetch_offset, chunk.until, timestamp_scale)
            if failed >= 0:
                damage, next_offset = self._malformed(part, failed)
                break
        counts = buffers.counts()
        if counts["rows"]:
            yield Decoded(chunk.partition, counts["rows"], next_offset, buffers.columns, buffers.headers, counts)
        if damage is not None:
            try:
                raise damage
            finally:
                damage = None

    def _malformed(self, part: _Part, failed: int) -> tuple[CorruptRecordError, int]:
        """Return the error for a part that could not be decoded from byte ``failed`` on, and where that is."""
        offset, position = part.offset, part.segment.begin
        if not part.segment.attributes & CODEC_MASK:
            position = failed  # of a run, what stands before is good
            following, _ = native.next_offset(memoryview(part.data)[part.start : failed])
            offset = max(offset, following)
        return self._corrupt("a record is malformed", position, offset), offset


def _decode_part(part: _Part, buffers: ColumnBuffers, from_offset: int, until: int, scale: int) -> int:
    segment = part.segment
    return int(
        native.decode(
            part.data,
            part.start,
            part.end,
            segment.magic,
            segment.attributes & LOG_APPEND,
            segment.base_offset,
            segment.first_timestamp,
            segment.max_timestamp,
            part.records,
            from_offset,
            until,
            scale,
            buffers.state,
            buffers.columns,
            buffers.headers,
        )
    )


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
