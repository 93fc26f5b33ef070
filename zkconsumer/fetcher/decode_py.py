"""Pure Python decoder, with the same functions and results as ``_decode.c``.

The tests compare ``_decode.c`` with this module, and the docstrings here document both. This module is used instead of
the compiled decoder if ``ZKCONSUMER_PURE=1`` is set. ``column_writer`` describes the layout of the column buffers.

See docs/decisions/18-compiled-decoder.rst.

Source: Kafka 3.9 DefaultRecordBatch, DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from typing import Any

from zkconsumer.fetcher.column_writer import ColumnWriter
from zkconsumer.fetcher.entry_scan import next_offset, scan
from zkconsumer.fetcher.record_format import (
    CODEC_MASK,
    LOG_APPEND,
    MalformedError,
    Segment,
    crc32c,
    read_entry,
    read_headers,
    read_key_and_value,
    read_records,
    read_varint,
    wrap64,
)

__all__ = ["crc32c", "decode", "measure", "next_offset", "scan", "split"]

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


# ---- decode ----


def decode(
    data: Any,
    start: int,
    end: int,
    magic: int,
    attributes: int,
    base_offset: int,
    first_timestamp: int,
    max_timestamp: int,
    count: int,
    from_offset: int,
    until: int,
    timestamp_scale: int,
    state: Any,
    columns: tuple[Any, ...],
    headers: tuple[Any, ...] | None,
    /,
) -> int:
    """Append a segment's records to the columns, except records with offsets outside ``[from_offset, until)``.

    - Format 2, ``count`` is -1: ``[start, end)`` is a run of batches. ``attributes``, ``base_offset`` and the
      timestamps are not used.
    - Format 2, ``count`` is 0 or more: ``[start, end)`` is the decompressed payload of one batch, and ``count``,
      ``attributes``, ``base_offset`` and the timestamps are taken from the batch header.
    - Formats 0 and 1: ``[start, end)`` is a run of messages. ``base_offset`` is added to their offsets. If
      ``attributes`` has ``LOG_APPEND``, ``max_timestamp`` replaces their timestamps.

    Timestamps are multiplied by ``timestamp_scale`` and clamped to 64 bits.

    Returns:
        -1, or the byte position of the first corrupt entry. The columns then hold all rows before that entry.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= end <= len(view):
        raise IndexError("byte range or state exceeds its buffer")
    writer = ColumnWriter(columns, headers, state)
    appender = _EntryAppender(view[:end], writer, from_offset, until, timestamp_scale)
    segment = _build_payload_segment(
        start,
        end,
        count,
        magic=magic,
        attributes=attributes,
        base_offset=base_offset,
        first_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
    )
    append = appender.append_payload if magic == 2 and count >= 0 else appender.append_entries
    failed = append(segment)
    writer.save()
    return failed


def _build_payload_segment(
    start: int,
    end: int,
    count: int,
    *,
    magic: int = 2,
    attributes: int = 0,
    base_offset: int = 0,
    first_timestamp: int = 0,
    max_timestamp: int = 0,
) -> Segment:
    """Return a segment whose records start at ``start``."""
    return Segment(
        start, end, -1, magic, attributes, count, start, base_offset, first_timestamp, max_timestamp, producer_id=-1
    )


class _EntryAppender:
    """Appends entries of ``data`` to the columns; an entry is appended completely or not at all."""

    def __init__(
        self, data: memoryview, writer: ColumnWriter, from_offset: int, until: int, timestamp_scale: int
    ) -> None:
        self._data = data
        self._writer = writer
        self._from_offset = from_offset
        self._until = until
        self._timestamp_scale = timestamp_scale

    def append_payload(self, batch: Segment) -> int:
        """Append the records of a format 2 batch; return -1, or the position of the batch if it is corrupt."""
        counters = dict(self._writer.counters)
        try:
            self._append_batch(batch)
        except MalformedError:
            self._writer.counters = counters
            return batch.payload
        return -1

    def append_entries(self, run: Segment) -> int:
        """Append the entries in ``[begin, end)``; return -1, or the position of the first corrupt entry."""
        at = run.begin
        while at < run.end:
            counters = dict(self._writer.counters)
            try:
                at = self._append_entry(at, run)
            except ValueError:
                self._writer.counters = counters
                return at
        return -1

    def _append_entry(self, at: int, run: Segment) -> int:
        """Append the entry at byte ``at`` and return the position after it."""
        entry = read_entry(self._data, at, False)
        if entry is None or (entry.magic == 2) != (run.magic == 2) or entry.attributes & CODEC_MASK:
            raise MalformedError
        if entry.magic == 2:
            self._append_batch(entry)
        else:
            self._append_message(entry, run)
        return entry.end

    def _append_batch(self, batch: Segment) -> None:
        writer = self._writer
        for record in read_records(self._data, batch):
            if not self._from_offset <= record.offset < self._until:
                continue
            self._put(record.offset, record.timestamp, record.timestamp_type, record.key, record.value)
            if writer.with_headers:
                count = 0
                for key, value in read_headers(self._data, record):
                    writer.put_header(key, value)
                    count += 1
                writer.end_headers(count)

    def _append_message(self, message: Segment, wrapper: Segment) -> None:
        """Append a message of format 0 or 1, applying the base offset and append time of its wrapper."""
        offset = wrap64(message.base_offset + wrapper.base_offset)
        if not self._from_offset <= offset < self._until:
            return
        key, value = read_key_and_value(self._data, message)
        if message.magic == 0:
            self._put(offset, -1, -1, key, value)
        elif wrapper.attributes & LOG_APPEND:
            self._put(offset, wrapper.max_timestamp, 1, key, value)
        else:
            self._put(offset, message.max_timestamp, int(bool(message.attributes & LOG_APPEND)), key, value)
        if self._writer.with_headers:
            self._writer.end_headers(0)

    def _put(self, offset: int, timestamp: int, kind: int, key: memoryview | None, value: memoryview | None) -> None:
        scaled = timestamp * self._timestamp_scale
        clamped = max(_I64_MIN, min(_I64_MAX, scaled))
        self._writer.put(offset, clamped, kind, key, value)
        self._writer.counters["timestamps_clamped"] += clamped != scaled


# ---- measure ----


def measure(data: Any, start: int, end: int, count: int, /) -> tuple[int, int, int]:
    """Return the number of headers in a format 2 segment, the total header key size and the total header value size.

    ``count`` has the same meaning as for ``decode``. Counting stops at corrupt data, which ``decode`` reports. A
    corrupt batch in a run is not counted.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= end <= len(view):
        raise IndexError("byte range exceeds the data")
    view = view[:end]
    total = [0, 0, 0]
    if count >= 0:
        try:
            _add_headers(view, _build_payload_segment(start, end, count), total)
        except MalformedError:
            pass
        return total[0], total[1], total[2]
    at = start
    while at < end:
        before = list(total)
        try:
            batch = read_entry(view, at, False)
            if batch is None or batch.magic != 2 or batch.attributes & CODEC_MASK:
                break
            _add_headers(view, batch, total)
        except ValueError:
            total = before
            break
        at = batch.end
    return total[0], total[1], total[2]


def _add_headers(data: memoryview, batch: Segment, total: list[int]) -> None:
    for record in read_records(data, batch):
        for key, value in read_headers(data, record):
            total[0] += 1
            total[1] += len(key)
            total[2] += len(value or b"")


def split(data: Any, start: int, end: int, count: int, max_rows: int, max_bytes: int, /) -> tuple[int, int]:
    """Return how many of the ``count`` records in ``[start, end)`` fit into a block, and the byte position after them.

    The records belong to one format 2 batch. The result is at least one record. The last slice ends at ``end``, even if
    other bytes follow the records; so does a slice whose first record is corrupt. ``decode`` reports both errors.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= end <= len(view):
        raise IndexError("byte range exceeds the data")
    rows, at = 0, start
    while rows < min(count, max_rows):
        try:
            length, after = read_varint(view, at, end, 5)
        except MalformedError:
            break
        if length < 1 or length > end - after or (rows and after + length - start > max_bytes):
            break
        rows, at = rows + 1, after + length
    return (count, end) if rows in (0, count) else (rows, at)
