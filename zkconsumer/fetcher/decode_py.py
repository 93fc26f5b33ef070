"""Record batches of Kafka's message formats 0, 1 and 2 in plain Python.

The oracle of the tests and the fallback where there is no compiler (``ZKCONSUMER_PURE=1``). It has the
functions of ``_decode.c`` with the same results; what they do is said here.

The buffers of the columns, all little-endian and not initialised by the caller:

- ``columns``: offset i64, timestamp i64, timestamp type i32, then for key and for value: offsets i32 of
  n + 1, validity bits, data;
- ``headers``: list offsets i32 of n + 1, list validity, then for header keys and values the same three;
- ``state``: nine i64 counters that live between calls, see ``STATE``.

Source: Kafka 3.9 DefaultRecordBatch, DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

CODEC_MASK, LOG_APPEND, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
CHECK_CRC, SPLIT_TRANSACTIONS = 1, 2

#: The counters of ``state``: rows, bytes and nulls written so far.
STATE = (
    "rows",
    "key_bytes",
    "value_bytes",
    "key_nulls",
    "value_nulls",
    "headers",
    "header_key_bytes",
    "header_value_bytes",
    "header_lists_null",
)

_BATCH_HEADER, _MIN_RECORD = 61, 7
_MESSAGE_HEADER = {0: 26, 1: 34}
_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


class Segment(NamedTuple):
    """What ``scan`` found.

    Either a run of uncompressed entries, ``[begin, end)``, or one compressed, control or transactional
    entry, whose records start at ``payload``.
    """

    begin: int
    end: int
    next_offset: int
    magic: int
    attributes: int
    rows: int
    payload: int
    base_offset: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int


def _make_crc32c_table() -> list[int]:
    table = []
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C = _make_crc32c_table()


def crc32c(data: Any, /) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = (crc >> 8) ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _wrap64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class _Entry(NamedTuple):
    size: int
    segment: Segment


def _read_entry(data: memoryview, at: int, check_crc: bool) -> _Entry | None:
    """Return the entry at ``at``, or None where it is incomplete; ValueError where it is corrupt."""
    left = len(data) - at
    if left < 17:
        return None
    base_offset, size = struct.unpack_from(">qi", data, at)
    (magic,) = struct.unpack_from(">b", data, at + 16)
    if not 0 <= magic <= 2:
        raise ValueError("unknown message format", at)
    size += 12
    if size < (_BATCH_HEADER if magic == 2 else _MESSAGE_HEADER[magic]) or size < 12:
        raise ValueError("impossible size", at)
    if size > left:
        return None
    end = at + size
    if magic == 2:
        (crc, attributes, last_delta, first_time, max_time, producer_id, count) = struct.unpack_from(
            ">IHiqqq6xi", data, at + 17
        )
        if check_crc and crc32c(data[at + 21 : end]) != crc:
            raise ValueError("CRC does not match", at)
        if last_delta < 0:
            raise ValueError("negative last offset", at)
        if count < 0:
            raise ValueError("negative record count", at)
        if not attributes & CODEC_MASK and count > (size - _BATCH_HEADER) // _MIN_RECORD:
            raise ValueError("more records than bytes", at)
        next_offset = _wrap64(base_offset + last_delta + 1)
        payload = at + _BATCH_HEADER
    else:
        (crc,) = struct.unpack_from(">I", data, at + 12)
        if check_crc and zlib.crc32(data[at + 16 : end]) != crc:
            raise ValueError("CRC does not match", at)
        attributes, first_time, position = data[at + 17], -1, at + 18
        if magic == 1:
            (first_time,) = struct.unpack_from(">q", data, position)
            position += 8
        max_time, producer_id, count = first_time, -1, 1
        (key,) = struct.unpack_from(">i", data, position)
        position += 4
        if key < -1 or max(key, 0) > end - position - 4:
            raise ValueError("impossible key length", at)
        position += max(key, 0)
        (value,) = struct.unpack_from(">i", data, position)
        position += 4
        if value < -1 or max(value, 0) != end - position:
            raise ValueError("impossible value length", at)
        next_offset = _wrap64(base_offset + 1)
        payload = position
    return _Entry(
        size,
        Segment(
            at,
            end,
            next_offset,
            magic,
            attributes,
            count,
            payload,
            base_offset,
            first_time,
            max_time,
            producer_id,
        ),
    )


def _is_plain(entry: Segment, flags: int) -> bool:
    if entry.attributes & CODEC_MASK:
        return False
    if entry.magic < 2:
        return True
    if entry.attributes & CONTROL:
        return False
    return not (flags & SPLIT_TRANSACTIONS and entry.attributes & TRANSACTIONAL)


def scan(
    data: Any, start: int, from_offset: int, until: int, max_rows: int, max_bytes: int, flags: int, /
) -> Segment | None:
    """Find the next segment of a partition's records at or after byte ``start``.

    A run ends before ``until``, before ``max_rows`` or ``max_bytes`` would be passed (its first entry
    apart), and before anything that is not plain. Entries wholly below ``from_offset`` are stepped over,
    control batches apart. ``flags``: CHECK_CRC, and SPLIT_TRANSACTIONS to get transactional batches
    one by one.

    Returns:
        None where no complete entry is left.

    Raises:
        ValueError: ``(reason, byte position)``, where the entry to start with is corrupt.
    """
    view = memoryview(data)
    if not 0 <= start <= len(view):
        raise IndexError("start lies outside of data")
    at = begin = start
    first: Segment | None = None
    rows = next_offset = 0
    while at < len(view):
        try:
            found = _read_entry(view, at, bool(flags & CHECK_CRC))
        except ValueError:
            if first is None:
                raise
            break
        if found is None:
            break
        size, entry = found
        if first is None:
            if entry.next_offset <= from_offset and not (entry.magic == 2 and entry.attributes & CONTROL):
                at = begin = at + size
                continue
            first, rows, next_offset = entry, entry.rows, entry.next_offset
            at += size
            if not _is_plain(entry, flags):
                break
        else:
            if not _is_plain(entry, flags) or (entry.magic == 2) != (first.magic == 2):
                break
            if entry.base_offset >= until:
                break
            if rows + entry.rows > max_rows or at + size - begin > max_bytes:
                break
            rows += entry.rows
            next_offset = entry.next_offset
            at += size
    if first is None:
        return None
    return first._replace(begin=begin, end=at, rows=rows, next_offset=next_offset)


def next_offset(data: Any, /) -> tuple[int, int]:
    """Return the offset after the last complete entry, or -1, and the bytes of complete entries."""
    view = memoryview(data)
    at, following = 0, -1
    while at < len(view):
        try:
            found = _read_entry(view, at, False)
        except ValueError:
            break
        if found is None:
            break
        at += found.size
        following = found.segment.next_offset
    return following, at


class _Malformed(Exception):
    pass


def _varint(data: memoryview, at: int, end: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for i in range(max_bytes):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            value &= (1 << 64) - 1
            return (value >> 1) ^ -(value & 1), at
    raise _Malformed


def _sized(data: memoryview, at: int, end: int, nullable: bool) -> tuple[memoryview | None, int]:
    size, at = _varint(data, at, end, 5)
    if size < (-1 if nullable else 0) or size > end - at:
        raise _Malformed
    if size < 0:
        return None, at
    return data[at : at + size], at + size


class _BytesColumn:
    def __init__(self, offsets: Any, validity: Any, data: Any) -> None:
        self.offsets = memoryview(offsets).cast("B").cast("i")
        self.validity = memoryview(validity).cast("B")
        self.data = memoryview(data).cast("B")

    @property
    def rows_room(self) -> int:
        return min(max(len(self.offsets) - 1, 0), len(self.validity) * 8)

    def put(self, row: int, used: int, value: memoryview | None) -> int:
        if value is not None and len(value):
            if len(value) > len(self.data) - used:
                raise _Malformed
            self.data[used : used + len(value)] = value
            used += len(value)
        self.offsets[row + 1] = used
        set_bit(self.validity, row, value is not None)
        return used

    def get(self, row: int) -> bytes | None:
        if not self.validity[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]])


def set_bit(bitmap: memoryview, row: int, value: bool) -> None:
    """Set bit ``row``; the first bit of a byte clears the others."""
    if row & 7 == 0:
        bitmap[row >> 3] = 0
    bitmap[row >> 3] |= int(value) << (row & 7)


class _Columns:
    def __init__(self, columns: tuple[Any, ...], headers: tuple[Any, ...] | None, state: Any) -> None:
        self.offset = memoryview(columns[0]).cast("B").cast("q")
        self.timestamp = memoryview(columns[1]).cast("B").cast("q")
        self.timestamp_type = memoryview(columns[2]).cast("B").cast("i")
        self.key = _BytesColumn(*columns[3:6])
        self.value = _BytesColumn(*columns[6:9])
        self.rows_room = min(
            len(self.offset),
            len(self.timestamp),
            len(self.timestamp_type),
            self.key.rows_room,
            self.value.rows_room,
        )
        self.headers_room = 0
        self.with_headers = headers is not None
        if headers is not None:
            self.list_offsets = memoryview(headers[0]).cast("B").cast("i")
            self.list_validity = memoryview(headers[1]).cast("B")
            self.header_key = _BytesColumn(*headers[2:5])
            self.header_value = _BytesColumn(*headers[5:8])
            self.rows_room = min(self.rows_room, max(len(self.list_offsets) - 1, 0), len(self.list_validity) * 8)
            self.headers_room = min(self.header_key.rows_room, self.header_value.rows_room)
        self.state = memoryview(state).cast("B").cast("q")
        self.at = dict(zip(STATE, self.state, strict=False))
        if self.rows_room and self.at["rows"] == 0:
            self.key.offsets[0] = self.value.offsets[0] = 0
            if self.with_headers:
                self.list_offsets[0] = 0
        if self.headers_room and self.at["headers"] == 0:
            self.header_key.offsets[0] = self.header_value.offsets[0] = 0

    def save(self) -> None:
        for i, name in enumerate(STATE):
            self.state[i] = self.at[name]

    def put(self, offset: int, timestamp: int, kind: int, key: memoryview | None, value: memoryview | None) -> None:
        at, row = self.at, self.at["rows"]
        if row >= self.rows_room:
            raise _Malformed
        self.offset[row], self.timestamp[row], self.timestamp_type[row] = offset, timestamp, kind
        at["key_bytes"] = self.key.put(row, at["key_bytes"], key)
        at["key_nulls"] += key is None
        at["value_bytes"] = self.value.put(row, at["value_bytes"], value)
        at["value_nulls"] += value is None
        at["rows"] += 1

    def put_header(self, key: memoryview, value: memoryview | None) -> None:
        at, row = self.at, self.at["headers"]
        if row >= self.headers_room:
            raise _Malformed
        at["header_key_bytes"] = self.header_key.put(row, at["header_key_bytes"], key)
        at["header_value_bytes"] = self.header_value.put(row, at["header_value_bytes"], value)
        at["headers"] += 1

    def end_headers(self, count: int) -> None:
        row = self.at["rows"] - 1
        self.list_offsets[row + 1] = self.at["headers"]
        set_bit(self.list_validity, row, count > 0)
        self.at["header_lists_null"] += count == 0


#: One record on its way into the columns: offset, timestamp, timestamp type, key, value.
_Put = Callable[[int, int, int, "memoryview | None", "memoryview | None"], None]


def _decode_records(
    data: memoryview,
    at: int,
    end: int,
    count: int,
    base_offset: int,
    first_time: int,
    max_time: int,
    attributes: int,
    wanted: Callable[[int], bool],
    put: _Put,
    put_header: Callable[[memoryview, memoryview | None], None],
    end_headers: Callable[[int], None] | None,
) -> None:
    append_time = bool(attributes & LOG_APPEND)
    for _ in range(count):
        length, at = _varint(data, at, end, 5)
        if length < 1 or length > end - at:
            raise _Malformed
        stop = at + length
        time_delta, at = _varint(data, at + 1, stop, 10)
        offset_delta, at = _varint(data, at, stop, 5)
        key, at = _sized(data, at, stop, True)
        value, at = _sized(data, at, stop, True)
        offset = _wrap64(base_offset + offset_delta)
        keep = wanted(offset)
        if keep:
            put(offset, max_time if append_time else _wrap64(first_time + time_delta), append_time, key, value)
        if not (keep and end_headers):
            at = stop
            continue
        headers, at = _varint(data, at, stop, 5)
        if headers < 0:
            raise _Malformed
        for _ in range(headers):
            name, at = _sized(data, at, stop, False)
            content, at = _sized(data, at, stop, True)
            assert name is not None
            put_header(name, content)
        if at != stop:
            raise _Malformed
        end_headers(headers)
    if at != end:
        raise _Malformed


def _scaled(timestamp: int, scale: int) -> int:
    return max(_I64_MIN, min(_I64_MAX, timestamp * scale))


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
    """Append the records of one segment, offsets in ``[from_offset, until)``, to the columns.

    - format 2, ``count`` -1: ``[start, end)`` is a run of batches; the numbers in between are not used;
    - format 2, ``count`` 0 or more: ``[start, end)`` is the payload of one batch, decompressed, and the
      numbers are those of its header;
    - formats 0 and 1: ``[start, end)`` is a run of messages, ``base_offset`` is added to their offsets, and
      where ``attributes`` has LOG_APPEND, ``max_timestamp`` is the time of all.

    Timestamps are multiplied by ``timestamp_scale`` and end at the limits of 64 bits.

    Returns:
        -1, or the position of the first malformed entry; all rows before that entry are there.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= end <= len(view):
        raise IndexError("range or state lies outside of its buffer")
    view = view[:end]
    out = _Columns(columns, headers, state)
    end_headers = out.end_headers if out.with_headers else None

    def wanted(offset: int) -> bool:
        return from_offset <= offset < until

    def put(offset: int, timestamp: int, kind: int, key: memoryview | None, value: memoryview | None) -> None:
        out.put(offset, _scaled(timestamp, timestamp_scale), kind, key, value)

    def one_entry(entry: Segment) -> None:
        if magic == 2:
            if entry.magic != 2 or entry.attributes & CODEC_MASK:
                raise _Malformed
            _decode_records(
                view,
                entry.payload,
                entry.end,
                entry.rows,
                entry.base_offset,
                entry.first_timestamp,
                entry.max_timestamp,
                entry.attributes,
                wanted,
                put,
                out.put_header,
                end_headers,
            )
            return
        if entry.magic > 1 or entry.attributes & CODEC_MASK:
            raise _Malformed
        offset = _wrap64(entry.base_offset + base_offset)
        if not wanted(offset):
            return
        wrapped = bool(attributes & LOG_APPEND)
        time = -1 if entry.magic == 0 else max_timestamp if wrapped else entry.max_timestamp
        kind = -1 if entry.magic == 0 else int(wrapped or bool(entry.attributes & LOG_APPEND))
        key_at = entry.begin + (30 if entry.magic == 1 else 22)
        (key_size,) = struct.unpack_from(">i", view, key_at - 4)
        (value_size,) = struct.unpack_from(">i", view, entry.payload - 4)
        put(
            offset,
            time,
            kind,
            None if key_size < 0 else view[key_at : key_at + key_size],
            None if value_size < 0 else view[entry.payload : entry.end],
        )
        if end_headers:
            end_headers(0)

    failed = -1
    at = start
    if magic == 2 and count >= 0:
        before = dict(out.at)
        try:
            _decode_records(
                view,
                start,
                end,
                count,
                base_offset,
                first_timestamp,
                max_timestamp,
                attributes,
                wanted,
                put,
                out.put_header,
                end_headers,
            )
        except _Malformed:
            out.at, failed = before, start
    else:
        while at < end:
            before = dict(out.at)
            try:
                found = _read_entry(view, at, False)
                if found is None:
                    raise _Malformed
                one_entry(found.segment)
            except (_Malformed, ValueError):
                out.at, failed = before, at
                break
            at += found.size
    out.save()
    return failed


def measure(data: Any, start: int, end: int, count: int, /) -> tuple[int, int, int]:
    """Return (headers, bytes of their keys, bytes of their values) of a segment of format 2.

    ``count`` is as for ``decode``. Counting ends at what is malformed; ``decode`` will say where.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= end <= len(view):
        raise IndexError("range lies outside of data")
    view = view[:end]
    total = [0, 0, 0]

    def header(key: memoryview, value: memoryview | None) -> None:
        total[0] += 1
        total[1] += len(key)
        total[2] += len(value or b"")

    def batch(at: int, stop: int, rows: int) -> None:
        _decode_records(
            view,
            at,
            stop,
            rows,
            0,
            0,
            0,
            0,
            lambda _offset: True,
            lambda *_record: None,
            header,
            lambda _count: None,
        )

    try:
        if count >= 0:
            batch(start, end, count)
            return total[0], total[1], total[2]
        at = start
        while at < end:
            before = list(total)
            found = _read_entry(view, at, False)
            if found is None or found.segment.magic != 2 or found.segment.attributes & CODEC_MASK:
                break
            try:
                batch(found.segment.payload, found.segment.end, found.segment.rows)
            except _Malformed:
                total = before
                break
            at += found.size
    except (_Malformed, ValueError):
        pass
    return total[0], total[1], total[2]


def messages(
    cls: type[Any],
    topic: str,
    partition: int,
    rows: int,
    columns: tuple[Any, ...],
    headers: tuple[Any, ...] | None,
    /,
) -> list[Any]:
    """Return the first ``rows`` rows as instances of ``cls``, a tuple of MessageAndMetadata's eight fields.

    The columns must have been filled with a ``timestamp_scale`` of 1. Bytes of header keys that are not
    UTF-8 are escaped as surrogates.
    """
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        raise TypeError("cls must be a tuple type")
    state = bytearray(8 * len(STATE))
    struct.pack_into("<q", state, 0, rows)
    struct.pack_into("<q", state, 8 * STATE.index("headers"), 1)
    c = _Columns(columns, headers, state)
    if not 0 <= rows <= c.rows_room:
        raise IndexError("more rows than the columns hold")

    def headers_of(row: int) -> tuple[tuple[str, bytes | None], ...]:
        if not c.with_headers:
            return ()
        pairs = []
        for i in range(c.list_offsets[row], c.list_offsets[row + 1]):
            name = c.header_key.get(i) or b""
            pairs.append((name.decode("utf-8", "surrogateescape"), c.header_value.get(i)))
        return tuple(pairs)

    return [
        tuple.__new__(
            cls,
            (
                topic,
                partition,
                c.offset[row],
                c.key.get(row),
                c.value.get(row),
                c.timestamp[row],
                max(-1, min(1, c.timestamp_type[row])),
                headers_of(row),
            ),
        )
        for row in range(rows)
    ]
