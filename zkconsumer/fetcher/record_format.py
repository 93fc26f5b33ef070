"""Entries of Kafka's message formats 0, 1 and 2: header fields, validation, checksums and varints.

An entry is one record batch of format 2, or one message of format 0 or 1.

Source: Kafka 3.9 DefaultRecordBatch, DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from zkconsumer.fetcher.damage import DamageKind

#: Bits of an entry's attributes.
CODEC_MASK, LOG_APPEND, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

#: Flags of ``scan``.
CHECK_CRC, SPLIT_TRANSACTIONS = 1, 2

#: Sizes in bytes. The log overhead is the offset and the size field, which precede every entry.
_LOG_OVERHEAD = 12
_MAGIC_OFFSET = 16
_BATCH_HEADER = 61
_MIN_RECORD = 7
_MESSAGE_HEADER = {0: 26, 1: 34}


class MalformedError(ValueError):
    """A record cannot be parsed, or does not fit in the column buffers."""


class Segment(NamedTuple):
    """Entries that are decoded in one call; the module ``decode`` defines the terms.

    A segment is either a run of uncompressed entries, ``[begin, end)``, or one compressed, control or transactional
    entry, whose records start at ``payload``. ``rows`` is the number of records according to the headers. ``magic`` and
    the fields that follow it, except ``rows``, describe the first entry.
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


def can_join_run(entry: Segment, flags: int) -> bool:
    """Return whether the entry can be part of a run, which is decoded in place."""
    if entry.attributes & CODEC_MASK:
        return False
    if entry.magic < 2:
        return True
    if entry.attributes & CONTROL:
        return False
    return not (flags & SPLIT_TRANSACTIONS and entry.attributes & TRANSACTIONAL)


# ---- numbers ----


def wrap64(value: int) -> int:
    """Wrap a number to a signed 64-bit integer, like Java's ``long`` arithmetic."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def read_varint(data: memoryview, at: int, end: int, max_bytes: int) -> tuple[int, int]:
    """Return a zigzag varint of at most ``max_bytes`` bytes and the position after it."""
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
    raise MalformedError


def read_sized(data: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    """Read length-prefixed bytes; return them (None for length -1) and the position after them."""
    size, at = read_varint(data, at, end, 5)
    if size < -1 or size > end - at:
        raise MalformedError
    if size < 0:
        return None, at
    return data[at : at + size], at + size


# ---- checksums ----


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


# ---- entries ----


def read_entry(data: memoryview, at: int, check_crc: bool) -> Segment | None:
    """Return the entry at byte ``at``, or None if it is incomplete.

    Raises:
        ValueError: the entry is corrupt; the arguments are the reason and ``at``.
    """
    left = len(data) - at
    if left <= _MAGIC_OFFSET:
        return None
    (size,) = struct.unpack_from(">i", data, at + 8)
    (magic,) = struct.unpack_from(">b", data, at + _MAGIC_OFFSET)
    if not 0 <= magic <= 2:
        raise _entry_error(DamageKind.UNKNOWN_FORMAT, at)
    size += _LOG_OVERHEAD
    if size < (_BATCH_HEADER if magic == 2 else _MESSAGE_HEADER[magic]):
        raise _entry_error(DamageKind.INVALID_SIZE, at)
    if size > left:
        return None
    read = _read_batch if magic == 2 else _read_message
    return read(data, at, at + size, check_crc)


def _entry_error(kind: DamageKind, at: int) -> ValueError:
    return ValueError(kind.text, at)


def _read_batch(data: memoryview, at: int, end: int, check_crc: bool) -> Segment:
    """Parse a complete batch of format 2."""
    (base_offset,) = struct.unpack_from(">q", data, at)
    (crc, attributes, last_delta, first_timestamp, max_timestamp, producer_id, count) = struct.unpack_from(
        ">IHiqqq6xi", data, at + 17
    )
    if check_crc and crc32c(data[at + 21 : end]) != crc:
        raise _entry_error(DamageKind.CRC_MISMATCH, at)
    if last_delta < 0:
        raise _entry_error(DamageKind.NEGATIVE_OFFSET_DELTA, at)
    if count < 0:
        raise _entry_error(DamageKind.NEGATIVE_COUNT, at)
    if not attributes & CODEC_MASK and count > (end - at - _BATCH_HEADER) // _MIN_RECORD:
        raise _entry_error(DamageKind.COUNT_ABOVE_SIZE, at)
    return Segment(
        begin=at,
        end=end,
        next_offset=wrap64(base_offset + last_delta + 1),
        magic=2,
        attributes=attributes,
        rows=count,
        payload=at + _BATCH_HEADER,
        base_offset=base_offset,
        first_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
    )


def _read_message(data: memoryview, at: int, end: int, check_crc: bool) -> Segment:
    """Parse a complete message of format 0 or 1."""
    base_offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", data, at)
    if check_crc and zlib.crc32(data[at + _MAGIC_OFFSET : end]) != crc:
        raise _entry_error(DamageKind.CRC_MISMATCH, at)
    timestamp, position = -1, at + 18
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", data, position)
        position += 8
    (key_size,) = struct.unpack_from(">i", data, position)
    position += 4
    if key_size < -1 or max(key_size, 0) > end - position - 4:
        raise _entry_error(DamageKind.INVALID_KEY_LENGTH, at)
    position += max(key_size, 0)
    (value_size,) = struct.unpack_from(">i", data, position)
    position += 4
    if value_size < -1 or max(value_size, 0) != end - position:
        raise _entry_error(DamageKind.INVALID_VALUE_LENGTH, at)
    return Segment(
        begin=at,
        end=end,
        next_offset=wrap64(base_offset + 1),
        magic=magic,
        attributes=attributes,
        rows=1,
        payload=position,
        base_offset=base_offset,
        first_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
    )


def read_key_and_value(data: memoryview, message: Segment) -> tuple[memoryview | None, memoryview | None]:
    """Return the key and the value of a message of format 0 or 1."""
    key_at = message.begin + _MESSAGE_HEADER[message.magic] - 4
    (key_size,) = struct.unpack_from(">i", data, key_at - 4)
    (value_size,) = struct.unpack_from(">i", data, message.payload - 4)
    return (
        None if key_size < 0 else data[key_at : key_at + key_size],
        None if value_size < 0 else data[message.payload : message.end],
    )


# ---- records of format 2 ----


class EncodedRecord(NamedTuple):
    """A record of format 2; its headers are at bytes ``[headers_at, end)`` of the data."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: memoryview | None
    value: memoryview | None
    headers_at: int
    end: int


def read_records(data: memoryview, batch: Segment) -> Iterator[EncodedRecord]:
    """Yield the records in ``[payload, end)`` of a batch.

    Raises:
        MalformedError: the next record is corrupt, or other bytes follow the last record.
    """
    at, end = batch.payload, batch.end
    append_time = bool(batch.attributes & LOG_APPEND)
    for _ in range(batch.rows):
        length, at = read_varint(data, at, end, 5)
        if length < 1 or length > end - at:
            raise MalformedError
        stop = at + length
        timestamp_delta, position = read_varint(data, at + 1, stop, 10)  # the first byte contains unused attributes
        offset_delta, position = read_varint(data, position, stop, 5)
        key, position = read_sized(data, position, stop)
        value, position = read_sized(data, position, stop)
        timestamp = batch.max_timestamp if append_time else wrap64(batch.first_timestamp + timestamp_delta)
        offset = wrap64(batch.base_offset + offset_delta)
        yield EncodedRecord(offset, timestamp, int(append_time), key, value, position, stop)
        at = stop
    if at != end:
        raise MalformedError


def read_headers(data: memoryview, record: EncodedRecord) -> Iterator[tuple[memoryview, memoryview | None]]:
    """Yield the key and the value of each header of a record.

    Raises:
        MalformedError: the next header is corrupt, or other bytes follow the last header.
    """
    count, at = read_varint(data, record.headers_at, record.end, 5)
    if count < 0:
        raise MalformedError
    for _ in range(count):
        key, at = read_sized(data, at, record.end)
        if key is None:
            raise MalformedError
        value, at = read_sized(data, at, record.end)
        yield key, value
    if at != record.end:
        raise MalformedError
