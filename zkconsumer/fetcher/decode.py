"""Decoding of chunks: ``ChunkReader`` into column buffers, ``read_messages`` into messages.

``native`` parses the bytes. This module decompresses batches, skips control batches and aborted transactions, and
selects the records to decode in one call. Terms used in this module and in the decoders:

- An *entry* is a record batch (format 2), or a message (formats 0 and 1).
- A *message set* is the payload of a compressed message; Kafka calls this message a wrapper.
- A *run* is a sequence of uncompressed entries, which can be decoded in place.
- A *segment* is a run, or one entry that cannot be part of a run: it is compressed, a control batch, or belongs to a
  transaction that may have been aborted. It is not a log segment.
- A *part* is the input of one decoder call: an uncompressed segment, the decompressed records of an entry, or a *slice*
  of either that is small enough for one block.
- A *block* is the rows of one or more parts, in one set of column buffers. It becomes one Arrow batch, or one
  ``MessageRows``.

Source: Kafka 1.1 kafka.consumer.ConsumerIterator; for transactions, Kafka 3.9 CompletedFetch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.codecs import Decompressor
from zkconsumer.fetcher.column_buffers import ColumnBuffers
from zkconsumer.fetcher.column_writer import Counts
from zkconsumer.fetcher.corrupt_records import corrupt_record_error, damage_error
from zkconsumer.fetcher.damage import DamageKind
from zkconsumer.fetcher.native import native
from zkconsumer.fetcher.record_format import (
    CHECK_CRC,
    CODEC_MASK,
    CONTROL,
    LOG_APPEND,
    SPLIT_TRANSACTIONS,
    TRANSACTIONAL,
    Segment,
)
from zkconsumer.log import get_logger
from zkconsumer.message import NO_DECODERS, MessageAndMetadata, MessageDecoders, MessageRows, TopicPartition

#: Maximum number of rows per block, and maximum total size of its records in bytes, which a single record may exceed. A
#: batch in the log is divided only if it exceeds one of these limits.
MAX_ROWS = 65_536
MAX_BYTES = 2 << 20

_log = get_logger("zkconsumer.fetcher")

#: Layout of a control record's key: version and type.
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


@dataclass(slots=True)
class DecodedRows:
    """Decoded rows of one partition, in column buffers.

    Attributes:
        next_offset: offset after the last entry that was read, even if that entry has no rows. It includes the control
            batches and aborted transactions up to the next row, which would otherwise remain uncommitted at the end of
            a log (KAFKA-6607).
        counts: the decoder's counters, see ``Counts``.
    """

    partition: TopicPartition
    rows: int
    next_offset: int
    columns: tuple[Any, ...]
    headers: tuple[Any, ...] | None
    counts: Counts


class _Part(NamedTuple):
    """Records to decode in one call; see the module docstring.

    Attributes:
        data: the chunk's data, or the decompressed records.
        segment: the segment to which the records belong; ``rows`` is the number of records in this part.
        start: position of the records in ``data``.
        end: end of the records in ``data``, exclusive.
        offset: offset at which reading resumes if the records are corrupt, unless an earlier slice has rows.
        ends_segment: whether this is the last slice of the segment.
    """

    data: Any
    segment: Segment
    start: int
    end: int
    offset: int
    ends_segment: bool = True

    @property
    def is_run(self) -> bool:
        """Whether the records are complete uncompressed entries, with their headers."""
        return not self.segment.attributes & CODEC_MASK and self.start == self.segment.begin

    @property
    def record_count(self) -> int:
        """The record count to pass to ``decode`` and ``measure``; -1 for complete format 2 batches."""
        return -1 if self.segment.magic == 2 and self.is_run else self.segment.rows


class ChunkReader:
    """Decodes one chunk, block by block.

    A block has at most ``max_rows`` rows and ``max_bytes`` bytes, unless a single batch in the log is larger. A batch
    with more than ``max_slice_rows`` rows or ``MAX_BYTES`` bytes is divided.

    Args:
        headers: whether to decode record headers.
        check_crcs: whether to verify the checksums of entries.
        max_slice_rows: maximum number of rows in an undivided batch (``max_rows`` if that is larger).
    """

    def __init__(
        self,
        chunk: Chunk,
        *,
        headers: bool,
        check_crcs: bool = True,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        max_slice_rows: int = MAX_ROWS,
    ) -> None:
        self._chunk = chunk
        self._data = chunk.data if chunk.damage is None else memoryview(chunk.data)[: chunk.damage.position]
        self._headers = headers
        self._flags = (CHECK_CRC if check_crcs else 0) | (SPLIT_TRANSACTIONS if chunk.aborted else 0)
        self._max_rows, self._max_bytes, self._max_slice_rows = max_rows, max_bytes, max_slice_rows
        self._decompressor = Decompressor()
        self._position = 0
        self._next_offset = chunk.fetch_offset
        self._after_last_row = chunk.fetch_offset
        # Aborted transactions that start later in the chunk, and the producer ids of aborted transactions in progress.
        self._upcoming_aborts = sorted(chunk.aborted, key=lambda entry: entry[1])
        self._aborting_producers: set[int] = set()

    def read_blocks(self, timestamp_scale: int) -> Iterator[DecodedRows]:
        """Yield the rows of the chunk, block by block.

        Args:
            timestamp_scale: factor for timestamps: 1 for milliseconds, 1000 for microseconds.

        Raises:
            CorruptRecordError: an entry is corrupt; all rows before it were yielded.
        """
        parts: list[_Part] = []
        rows = size = 0
        damage: CorruptRecordError | None = None
        following = self._read_parts()
        while True:
            try:
                part = next(following, None)
            except CorruptRecordError as error:
                part, damage = None, error
            more_rows = part.segment.rows if part else 0
            more_bytes = part.end - part.start if part else 0
            full = rows + more_rows > self._max_rows or size + more_bytes > self._max_bytes
            if parts and (part is None or full):
                buffers = self._allocate(parts, rows, size)
                yield from self._decode_parts(
                    parts, buffers, part.offset if part else self._next_offset, timestamp_scale
                )
                parts, rows, size = [], 0, 0
            if damage is not None:
                try:
                    raise damage
                finally:
                    damage = None  # breaks a reference cycle with the error's frames, which keep the chunk alive
            if part is None:
                return
            parts.append(part)
            rows += more_rows
            size += more_bytes

    # ---- segments ----

    def _read_parts(self) -> Iterator[_Part]:
        """Yield the parts that contain records to deliver."""
        max_slice_rows = self._max_slice_rows
        while (segment := self._scan_segment()) is not None:
            if not self._is_hidden(segment):
                part = self._build_part(segment)
                if part.segment.rows <= max_slice_rows and part.end - part.start <= MAX_BYTES:
                    yield part
                else:
                    yield from self._slice_part(part)
            self._position = segment.end
            self._next_offset = segment.next_offset

    def _scan_segment(self) -> Segment | None:
        """Return the next segment, or None at the end of the chunk."""
        chunk, data, position = self._chunk, self._data, self._position
        try:
            found = native.scan(
                data, position, chunk.fetch_offset, chunk.until, self._max_rows, self._max_bytes, self._flags
            )
        except ValueError as error:
            reason, position = error.args
            raise corrupt_record_error(self._chunk, reason, position, self._next_offset) from None
        if found is None:
            if chunk.damage is not None:
                raise damage_error(chunk, chunk.damage, self._next_offset)
            if not position and chunk.next_offset == chunk.fetch_offset and len(chunk.data):
                raise corrupt_record_error(self._chunk, "no complete batch", 0, chunk.fetch_offset)
            return None
        segment = Segment(*found)
        # The offset of a compressed message in format 0 or 1 is the offset of its last record, not its first record.
        has_first_offset = segment.magic == 2 or not segment.attributes & CODEC_MASK
        return None if has_first_offset and segment.base_offset >= chunk.until else segment

    def _slice_part(self, part: _Part) -> Iterator[_Part]:
        """Yield the part, divided into slices if it exceeds the limits of a block."""
        rows, size = max(self._max_rows, self._max_slice_rows), max(self._max_bytes, MAX_BYTES)
        start, left = part.start, part.segment.rows
        if left <= rows and part.end - part.start <= size:
            yield part
            return
        if part.record_count < 0:
            start = part.segment.payload
        while start < part.end or left:
            if part.segment.magic == 2:
                count, end = native.split(part.data, start, part.end, left, rows, size)
            else:
                found = Segment(*native.scan(part.data, start, -1 << 63, NO_LIMIT, rows, size, 0))
                count, end = found.rows, found.end
            left -= count
            slice_segment = part.segment._replace(rows=count)
            yield part._replace(segment=slice_segment, start=start, end=end, ends_segment=not left)
            start = end

    def _is_hidden(self, segment: Segment) -> bool:
        """Return whether the segment is a control batch or part of an aborted transaction."""
        if segment.magic < 2:
            return False
        if self._flags & SPLIT_TRANSACTIONS and segment.attributes & TRANSACTIONAL:
            while self._upcoming_aborts and self._upcoming_aborts[0][1] < segment.next_offset:
                self._aborting_producers.add(self._upcoming_aborts.pop(0)[0])
            if not segment.attributes & CONTROL:
                return segment.producer_id in self._aborting_producers
            if self._is_abort_marker(segment):
                self._aborting_producers.discard(segment.producer_id)
        return bool(segment.attributes & CONTROL)

    def _is_abort_marker(self, segment: Segment) -> bool:
        buffers = ColumnBuffers(1, 64, None)
        part = _Part(self._chunk.data, segment, segment.payload, segment.end, self._next_offset)
        _decode_part(part, buffers, 0, NO_LIMIT, 1)
        key = memoryview(buffers.columns[5])[: buffers.counts().key_bytes]
        return len(key) >= _CONTROL_KEY.size and _CONTROL_KEY.unpack_from(key)[1] == _ABORT

    def _build_part(self, segment: Segment) -> _Part:
        """Return the records of a segment as a part, decompressed if necessary."""
        chunk, offset = self._chunk, self._next_offset
        if not segment.attributes & CODEC_MASK:
            if segment.magic < 2:
                segment = segment._replace(base_offset=0, attributes=0)
            return _Part(chunk.data, segment, segment.begin, segment.end, offset)
        data = self._decompress(segment)
        if segment.magic == 2:
            if segment.rows > len(data) // 7:
                raise corrupt_record_error(chunk, DamageKind.COUNT_ABOVE_SIZE.text, segment.begin, offset)
            return _Part(data, segment, 0, len(data), offset)
        try:
            found = native.scan(data, 0, -1 << 63, NO_LIMIT, NO_LIMIT, NO_LIMIT, self._flags & CHECK_CRC)
        except ValueError as error:
            raise corrupt_record_error(chunk, error.args[0], segment.begin, offset) from None
        inner = Segment(*found) if found is not None else None
        if inner is None or inner.end != len(data) or inner.magic > 1 or inner.attributes & CODEC_MASK:
            raise corrupt_record_error(chunk, "corrupt compressed message set", segment.begin, offset)
        # In format 1, inner messages have relative offsets; the wrapper has the absolute offset of the last one.
        shift = segment.base_offset - (inner.next_offset - 1) if segment.magic == 1 else 0
        if not -1 << 63 <= shift < 1 << 63:
            reason = "corrupt compressed message set: offsets are outside the int64 range"
            raise corrupt_record_error(chunk, reason, segment.begin, offset)
        return _Part(data, segment._replace(base_offset=shift, rows=inner.rows), 0, len(data), offset)

    def _decompress(self, segment: Segment) -> Any:
        data = memoryview(self._chunk.data)[segment.payload : segment.end]
        codec, limit = segment.attributes & CODEC_MASK, self._chunk.decompressed_batch_max_bytes
        try:
            content, end = self._decompressor.decompress(codec, data, segment.magic, limit)
        except ValueError as error:
            raise corrupt_record_error(self._chunk, str(error), segment.begin, self._next_offset) from None
        if ignored := len(data) - end:
            topic, partition = self._chunk.partition
            offset = self._next_offset
            _log.debug("trailing_bytes_ignored", topic=topic, partition=partition, offset=offset, byte_count=ignored)
        return content

    # ---- rows ----

    def _allocate(self, parts: Sequence[_Part], rows: int, size: int) -> ColumnBuffers:
        headers = None
        if self._headers:
            measured = [native.measure(p.data, p.start, p.end, p.record_count) for p in parts if p.segment.magic == 2]
            headers = tuple(sum(column) for column in zip(*measured, strict=True)) if measured else (0, 0, 0)
        return ColumnBuffers(rows, size, headers)

    def _decode_parts(
        self, parts: Sequence[_Part], buffers: ColumnBuffers, following_offset: int, timestamp_scale: int
    ) -> Iterator[DecodedRows]:
        """Yield the rows of the parts; if a batch is corrupt, yield only the rows before it and raise its error.

        Args:
            following_offset: offset after the parts and the hidden segments that follow them.
        """
        chunk = self._chunk
        failed = -1
        for part in parts:
            failed = _decode_part(part, buffers, chunk.fetch_offset, chunk.until, timestamp_scale)
            if failed >= 0:
                break
        counts = buffers.counts()
        if counts.rows and (failed >= 0 or not part.ends_segment):
            self._after_last_row = buffers.offset_at(counts.rows - 1) + 1
        next_offset = following_offset if part.ends_segment else self._after_last_row
        damage: CorruptRecordError | None = None
        if failed >= 0:
            damage, next_offset = self._malformed_record_error(part, failed)
        if counts.rows:
            yield DecodedRows(chunk.partition, counts.rows, next_offset, buffers.columns, buffers.headers, counts)
        if damage is not None:
            try:
                raise damage
            finally:
                damage = None

    # ---- errors ----

    def _malformed_record_error(self, part: _Part, failed: int) -> tuple[CorruptRecordError, int]:
        """Return the error for the entry at byte ``failed`` of a part, and the offset where reading resumes."""
        segment = part.segment
        offset, position = max(part.offset, min(self._after_last_row, segment.next_offset)), segment.begin
        if part.is_run:
            position = failed  # all entries before the corrupt entry were decoded
            decoded = memoryview(part.data)[part.start : failed]
            offset = max(offset, native.next_offset(decoded, -1 << 63, -1 << 63, NO_LIMIT)[0])
        return corrupt_record_error(self._chunk, "corrupt record", position, offset), offset


def _decode_part(part: _Part, buffers: ColumnBuffers, from_offset: int, until: int, timestamp_scale: int) -> int:
    """Append the rows of a part to the buffers; return -1, or the position of the first corrupt entry."""
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
            part.record_count,
            from_offset,
            until,
            timestamp_scale,
            buffers.state,
            buffers.columns,
            buffers.headers,
        )
    )


def read_messages(
    chunk: Chunk,
    decoders: MessageDecoders = NO_DECODERS,
    *,
    check_crcs: bool = True,
    max_rows: int,
    max_slice_rows: int = MAX_ROWS,
) -> Iterator[tuple[MessageRows[MessageAndMetadata], int]]:
    """Yield the messages of the chunk block by block, each block with the next offset to read.

    Args:
        decoders: decoders of keys and values.
        check_crcs: see ``ChunkReader``.
        max_rows: see ``ChunkReader``.
        max_slice_rows: see ``ChunkReader``.

    Raises:
        CorruptRecordError: see ``ChunkReader.read_blocks``.
    """
    reader = ChunkReader(chunk, headers=True, check_crcs=check_crcs, max_rows=max_rows, max_slice_rows=max_slice_rows)
    for block in reader.read_blocks(1):
        rows = MessageRows(MessageAndMetadata, block.partition, block.rows, block.columns, block.headers, decoders)
        yield rows, block.next_offset
