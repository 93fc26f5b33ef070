"""Encoder of record batches and messages of formats 0, 1 and 2, for the tests of the decoder.

This module does not import zkconsumer, so an error in zkconsumer cannot affect both encoder and decoder. Checksums come
from kafka-python and zlib, codecs from pyarrow with Kafka's framings. ``GOLDEN`` contains bytes that Kafka's own
classes have written.

Source: Kafka 3.9 DefaultRecordBatch, DefaultRecord, LegacyRecord, MemoryRecordsBuilder, Lz4BlockOutputStream.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from kafka.record.util import calc_crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
#: The codecs of each message format; zstd was added after format 1.
CODECS = {0: (NONE, GZIP, SNAPPY, LZ4), 1: (NONE, GZIP, SNAPPY, LZ4), 2: (NONE, GZIP, SNAPPY, LZ4, ZSTD)}

LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024

Headers = tuple[tuple[str, "bytes | None"], ...]


class Record(NamedTuple):
    """A record to be encoded; ``timestamp`` in milliseconds."""

    offset: int
    timestamp: int = 1_600_000_000_000
    key: bytes | None = None
    value: bytes | None = b""
    headers: Headers = ()


# ---- codecs ----------------------------------------------------------------------------------------


def compress(codec: int, data: bytes, magic: int = 2, *, raw_snappy: bool = False) -> bytes:
    """Compress like Kafka's producer; with ``raw_snappy`` without blocks, as librdkafka and Sarama may do."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return snappy_block(data) if raw_snappy else xerial(data)
    packed = pa.Codec(CODEC_NAMES[codec]).compress(data, asbytes=True)
    return with_old_lz4_checksum(packed) if codec == LZ4 and magic == 0 else packed


def snappy_block(data: bytes) -> bytes:
    """Return raw snappy data: the length as a varint, then the compressed bytes."""
    compressed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return compressed


def xerial(data: bytes, block: int = _XERIAL_BLOCK, *, repeat_header: bool = False) -> bytes:
    """Return a header and blocks of snappy data, as snappy-java's SnappyOutputStream writes them."""
    out = XERIAL_HEADER
    for at in range(0, len(data), block):
        packed = snappy_block(data[at : at + block])
        if repeat_header and at:
            out += XERIAL_HEADER
        out += struct.pack(">i", len(packed)) + packed
    return out


def xxh32(data: bytes) -> int:
    """Return the XXH32 with seed 0 of at most 15 bytes (steps 1, 4, 5 and 6 of the specification)."""
    if len(data) > 15:
        raise ValueError(f"at most 15 bytes are supported, got {len(data)}")
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    acc = (p5 + len(data)) & mask
    words = len(data) // 4
    for (lane,) in struct.iter_unpack("<I", data[: 4 * words]):
        acc = (rotated((acc + lane * p3) & mask, 17) * p4) & mask
    for byte in data[4 * words :]:
        acc = (rotated((acc + byte * p5) & mask, 11) * p1) & mask
    acc = ((acc ^ (acc >> 15)) * p2) & mask
    acc = ((acc ^ (acc >> 13)) * p3) & mask
    return acc ^ (acc >> 16)


def with_old_lz4_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame of format 0, whose checksum also covers the magic number (KAFKA-3160)."""
    end = 6 + (8 if frame[4] & 0x08 else 0)
    return frame[:end] + bytes([xxh32(frame[:end]) >> 8 & 0xFF]) + frame[end + 1 :]


# ---- format 2 --------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Return the zigzag varint of a number modulo 2^64, as in Java."""
    value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    value = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encoded_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return a record of format 2, including its length."""
    body = b"\x00" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for name, content in record.headers:
        body += _sized(name.encode("utf-8", "surrogateescape")) + _sized(content)
    return varint(len(body)) + body


def batch(
    records: Sequence[Record],
    codec: int = NONE,
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
    raw_snappy: bool = False,
    count: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """Return a batch of format 2.

    A ``base_offset`` below and a ``last_offset`` above the offsets of the records create gaps as compaction does;
    without records, the batch is empty. ``count`` and ``payload`` replace the computed values.
    """
    first = records[0].offset if base_offset is None else base_offset
    last = (records[-1].offset if records else first) if last_offset is None else last_offset
    times = [record.timestamp for record in records] or [-1]
    base_time = times[0] if delete_horizon is None else delete_horizon
    if payload is None:
        plain = b"".join(encoded_record(record, first, base_time) for record in records)
        payload = compress(codec, plain, raw_snappy=raw_snappy)
    attributes = (
        codec
        | (LOG_APPEND if log_append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    header = struct.pack(
        ">hiqqqhii",
        attributes,
        last - first,
        base_time,
        max(times) if log_append_time is None else log_append_time,
        producer_id,
        0 if producer_id >= 0 else -1,
        0 if producer_id >= 0 and not control else -1,
        len(records) if count is None else count,
    )
    body = header + payload
    return struct.pack(">qiibI", first, len(body) + 9, 7, 2, calc_crc32c(body)) + body


def control_batch(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Return a control batch with the marker that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    marker = Record(offset, key=key, value=struct.pack(">hi", 0, 3))
    return batch([marker], producer_id=producer_id, transactional=True, control=True)


# ---- formats 0 and 1 -------------------------------------------------------------------------------


def message(magic: int, record: Record, attributes: int = 0) -> bytes:
    """Return a message of format 0 or 1."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", record.timestamp)
    for data in (record.key, record.value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", record.offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(
    magic: int,
    records: Sequence[Record],
    codec: int = NONE,
    *,
    log_append_time: int | None = None,
    raw_snappy: bool = False,
    relative: bool = True,
) -> bytes:
    """Return messages of format 0 or 1, inside a wrapper message if ``codec`` is not ``NONE``.

    A wrapper has the offset of its last message. The inner offsets are absolute in format 0. In format 1 they are
    relative to the first, or absolute with ``relative=False``, as some clients send them.
    """
    attributes = 0 if log_append_time is None else LOG_APPEND
    if codec == NONE:
        stamped = [r if log_append_time is None else r._replace(timestamp=log_append_time) for r in records]
        return b"".join(message(magic, record, attributes) for record in stamped)
    shift = records[0].offset if magic == 1 and relative else 0
    inner = b"".join(message(magic, r._replace(offset=r.offset - shift)) for r in records)
    time = max(r.timestamp for r in records) if log_append_time is None else log_append_time
    packed = compress(codec, inner, magic, raw_snappy=raw_snappy)
    return message(magic, Record(records[-1].offset, time, None, packed), attributes | codec)


def entry(magic: int, records: Sequence[Record], codec: int = NONE, **options: Any) -> bytes:
    """Return ``batch`` for format 2, else ``message_set``."""
    if magic == 2:
        return batch(records, codec, **options)
    return message_set(magic, records, codec, **options)


def expected(record: Record, magic: int, log_append_time: int | None = None) -> Expected:
    """Return the expected result of decoding ``record``."""
    offset, timestamp, key, value, headers = record
    if magic == 0:
        return Expected(offset, key, value, -1, -1, ())
    if log_append_time is not None:
        return Expected(offset, key, value, log_append_time, 1, headers if magic == 2 else ())
    return Expected(offset, key, value, timestamp, 0, headers if magic == 2 else ())


class Expected(NamedTuple):
    """A decoded record: the fields of MessageAndMetadata without topic and partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    timestamp_type: int
    headers: Headers


# ---- memory ----------------------------------------------------------------------------------------

_POOLS: list[pa.MemoryPool] = []


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """Set a default memory pool of Arrow whose peak starts at 0.

    The pool exists until the process ends: frames of an exception may keep buffers alive for a long time, and freeing
    a buffer of a deleted pool crashes the process.
    """
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(usual)


# ---- entries of a chunk ----------------------------------------------------------------------------


def entry_bounds(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end position of each complete entry."""
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        if end > len(data) or end < at + 17:
            return
        yield at, end
        at = end


def with_right_crcs(data: bytes | bytearray) -> bytes:
    """Return the entries with recomputed checksums, up to the first entry with an invalid size."""
    fixed = bytearray(data)
    for at, end in entry_bounds(bytes(data)):
        if fixed[at + 16] == 2 and end - at > 21:
            struct.pack_into(">I", fixed, at + 17, calc_crc32c(bytes(fixed[at + 21 : end])))
        elif fixed[at + 16] < 2:
            struct.pack_into(">I", fixed, at + 12, zlib.crc32(fixed[at + 16 : end]))
    return bytes(fixed)


def patched(data: bytes, position: int, fmt: str, *values: int) -> bytes:
    """Return a copy in which big-endian numbers at ``position`` are replaced."""
    copy = bytearray(data)
    struct.pack_into(f">{fmt}", copy, position, *values)
    return bytes(copy)


# ---- bytes written by Kafka ------------------------------------------------------------------------

#: Records of each golden entry except control batches and empty batches.
GOLDEN_RECORDS = (
    Record(100, 1_600_000_000_000, b"key", b"value", (("h", b"1"), ("n", None), ("", b""))),
    Record(101, 1_600_000_000_005, None, b"another value"),
    Record(102, 1_599_999_999_990, b"", None),
    Record(105, 1_600_000_000_001, b"k" * 40, b"v" * 40, (("\u00e9", b"\xff"),)),
)
GOLDEN_APPEND_TIME = 1_700_000_000_000

# Written by org.apache.kafka.common.record.MemoryRecordsBuilder and DefaultRecordBatch.writeEmptyHeader of
# kafka-clients 3.9.2: format, codec and special properties. Control batches have offset 106 and producer 4242,
# the empty batch offsets 200 to 209.
_GOLDEN = """
0 none:
    AAAAAAAAAGQAAAAWI1bBNwAAAAAAA2tleQAAAAV2YWx1ZQAAAAAAAABlAAAAG42Xc8QAAP////8AAAANYW5vdGhlciB2YWx1ZQAA
    AAAAAABmAAAADj0xSJUAAAAAAAD/////AAAAAAAAAGkAAABeNdzivQAAAAAAKGtra2tra2tra2tra2tra2tra2tra2tra2tra2tr
    a2tra2tra2tra2sAAAAodnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dg==
0 gzip:
    AAAAAAAAAGkAAAB165SGAgAB/////wAAAGcfiwgAAAAAAAD/Y2AAgxQgFlMOO2gO5jFnp1YCKdayxJzSVIgCBhAt3Tu9+AgDw38g
    APJ4E/PySzJSixSQlaUBMZ+tocdUCBeqFAQygTjO9M6jvWCeRjaRAKS2jEgAAD62ZufNAAAA
0 snappy:
    AAAAAAAAAGkAAACQjBCzkQAC/////wAAAIKCU05BUFBZAAAAAAEAAAABAAAAbs0BAAAJASBkAAAAFiNWwTcFDzADa2V5AAAABXZh
    bHVlBRIEAAABCFgbjZdzxAAA/////wAAAA1hbm90aGVyIC4nACBmAAAADj0xSJUJNw0rAQEkaQAAAF413OK9AAEBBChrmgEAEAAA
    ACh2mgEA
0 lz4:
    AAAAAAAAAGkAAACQiyoNBAAD/////wAAAIIEIk0YYEAacwAAABIAAQCRZAAAABYjVsE3DwDRA2tleQAAAAV2YWx1ZRIAIAAACAD4
    CBuNl3PEAAD/////AAAADWFub3RoZXIgJwCQZgAAAA49MUiVNAAFKwAAAgCQaQAAAF413OK9DQA/AChrAQAUACwAH3YBAA9QdnZ2
    dnYAAAAA
1 none:
    AAAAAAAAAGQAAAAe+o+A9QEAAAABdIdugAAAAAADa2V5AAAABXZhbHVlAAAAAAAAAGUAAAAjpMFwDgEAAAABdIdugAX/////AAAA
    DWFub3RoZXIgdmFsdWUAAAAAAAAAZgAAABZF4/F/AQAAAAF0h25/9gAAAAD/////AAAAAAAAAGkAAABm3O3x3AEAAAABdIdugAEA
    AAAoa2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2trawAAACh2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2
    dnZ2dnZ2dnZ2dnZ2
1 none append:
    AAAAAAAAAGQAAAAeRtvODwEIAAABi8/laAAAAAADa2V5AAAABXZhbHVlAAAAAAAAAGUAAAAjtcKH5AEIAAABi8/laAD/////AAAA
    DWFub3RoZXIgdmFsdWUAAAAAAAAAZgAAABbcLGETAQgAAAGLz+VoAAAAAAD/////AAAAAAAAAGkAAABmIBmMBgEIAAABi8/laAAA
    AAAoa2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2trawAAACh2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2
    dnZ2dnZ2dnZ2dnZ2
1 gzip:
    AAAAAAAAAGkAAACJySqqwgEBAAABdIdugAX/////AAAAcx+LCAAAAAAAAP9jYIADuV/9DV8ZgQzGkva8BpAIc3ZqJZBiLUvMKU2F
    qgIpUF5ysIAPrpL1PxAAObyJefklGalFCsjKmYBYzPXxx3qY8vpvIGGoFhBgBeK0O28/3oEbCGJoZBMJQGrLiAQALF5ire0AAAA=
1 gzip append:
    AAAAAAAAAGkAAACEyXDX2QEJAAABi8/laAD/////AAAAbh+LCAAAAAAAAP9jYIADObfb5/gZORgYGLvPP80AiTBnp1YCKdayxJzS
    VKgqRiBW3nqo/QlC5X8gAIryJubll2SkFikgK2cCYrE7OonCKAbDtIAAKxCnKUj2sKGo0MgmEoDUlhEJANtVIhrtAAAA
1 snappy:
    AAAAAAAAAGkAAACs6fpdMQECAAABdIdugAX/////AAAAloJTTkFQUFkAAAAAAQAAAAEAAACC7QEAABkBNB76j4D1AQAAAAF0h26A
    ARgwA2tleQAAAAV2YWx1ZQERCAAAAAEhECOkwXAOAQkFKkAF/////wAAAA1hbm90aGVyIC4vACACAAAAFkXj8X8RLxR/9gAAAAAN
    MwEBIAUAAABm3O3x3BEiAIABCQQoa5oBABAAAAAodpoBAA==
1 snappy append:
    AAAAAAAAAGkAAACkONt/UgEKAAABi8/laAD/////AAAAjoJTTkFQUFkAAAAAAQAAAAEAAAB67QEAABkBNB5G284PAQgAAAGLz+Vo
    ARgwA2tleQAAAAV2YWx1ZQERMAAAAAEAAAAjtcKH5AEVKjz/////AAAADWFub3RoZXIgLi8AJAIAAAAW3CxhEwEVLwEBDTMBASAF
    AAAAZiAZjAYyIgAEKGuaAQAQAAAAKHaaAQA=
1 lz4:
    AAAAAAAAAGkAAACpqcFxxAEDAAABdIdugAX/////AAAAkwQiTRhgQIKEAAAAFgABAOAe+o+A9QEAAAABdIdugBgA0ANrZXkAAAAF
    dmFsdWURAAAdAIUAAAAjpMFwDioA+AIF/////wAAAA1hbm90aGVyIC8AlAIAAAAWRePxfy8AIH/2RwADMwAAAgCUBQAAAGbc7fHc
    IgAQgAkALyhrAQAUXwAAACh2AQAPUHZ2dnZ2AAAAAA==
1 lz4 append:
    AAAAAAAAAGkAAACj1ypH/AELAAABi8/laAD/////AAAAjQQiTRhgQIJ+AAAAFgABAOAeRtvODwEIAAABi8/laBgA0ANrZXkAAAAF
    dmFsdWURAMYAAAABAAAAI7XCh+QqAPgB/////wAAAA1hbm90aGVyIC8AlgIAAAAW3CxhEy8AAEcAAzMAAAIAmQUAAABmIBmMBiIA
    LyhrAQAUXwAAACh2AQAPUHZ2dnZ2AAAAAA==
2 none:
    AAAAAAAAAGQAAADBAAAABwLYPU3wAAAAAAAFAAABdIdugAAAAAF0h26ABf//////////////////AAAABC4AAAAGa2V5CnZhbHVl
    BgJoAjECbgEAACYACgIBGmFub3RoZXIgdmFsdWUADAATBAABALYBAAIKUGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
    a2tra2tra2tQdnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dgIEw6kC/w==
2 none append:
    AAAAAAAAAGQAAADBAAAABwJCoD3QAAgAAAAFAAABdIdugAAAAAGLz+VoAP//////////////////AAAABC4AAAAGa2V5CnZhbHVl
    BgJoAjECbgEAACYACgIBGmFub3RoZXIgdmFsdWUADAATBAABALYBAAIKUGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
    a2tra2tra2tQdnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dgIEw6kC/w==
2 gzip:
    AAAAAAAAAGQAAACIAAAABwIBs2MKAAEAAAAFAAABdIdugAAAAAF0h26ABf//////////////////AAAABB+LCAAAAAAAAP/TY2Bg
    YMtOreQqS8wpTWVjymAyZMpjZGBQY+BiYpRKzMsvyUgtUgBLMvAwCLMwMDJsY2Rg4grIJhIElBEJmFgOr2T6DwAo7yCSkAAAAA==
2 gzip append:
    AAAAAAAAAGQAAACIAAAABwI4I8LGAAkAAAAFAAABdIdugAAAAAGLz+VoAP//////////////////AAAABB+LCAAAAAAAAP/TY2Bg
    YMtOreQqS8wpTWVjymAyZMpjZGBQY+BiYpRKzMsvyUgtUgBLMvAwCLMwMDJsY2Rg4grIJhIElBEJmFgOr2T6DwAo7yCSkAAAAA==
2 snappy:
    AAAAAAAAAGQAAACRAAAABwKdZkzFAAIAAAAFAAABdIdugAAAAAF0h26ABf//////////////////AAAABIJTTkFQUFkAAAAAAQAA
    AAEAAABMkAGYLgAAAAZrZXkKdmFsdWUGAmgCMQJuAQAAJgAKAgEaYW5vdGhlciB2AR04AAwAEwQAAQC2AQACClBrmgEABFB2mgEA
    FAIEw6kC/w==
2 snappy append:
    AAAAAAAAAGQAAACRAAAABwJftm86AAoAAAAFAAABdIdugAAAAAGLz+VoAP//////////////////AAAABIJTTkFQUFkAAAAAAQAA
    AAEAAABMkAGYLgAAAAZrZXkKdmFsdWUGAmgCMQJuAQAAJgAKAgEaYW5vdGhlciB2AR04AAwAEwQAAQC2AQACClBrmgEABFB2mgEA
    FAIEw6kC/w==
2 lz4:
    AAAAAAAAAGQAAACLAAAABwKGHTyhAAMAAAAFAAABdIdugAAAAAF0h26ABf//////////////////AAAABAQiTRhgQIJLAAAA8Rcu
    AAAABmtleQp2YWx1ZQYCaAIxAm4BAAAmAAoCARphbm90aGVyIB0A/wAADAATBAABALYBAAIKUGsBABQvUHYBABRgAgTDqQL/AAAA
    AA==
2 lz4 append:
    AAAAAAAAAGQAAACLAAAABwJpkixGAAsAAAAFAAABdIdugAAAAAGLz+VoAP//////////////////AAAABAQiTRhgQIJLAAAA8Rcu
    AAAABmtleQp2YWx1ZQYCaAIxAm4BAAAmAAoCARphbm90aGVyIB0A/wAADAATBAABALYBAAIKUGsBABQvUHYBABRgAgTDqQL/AAAA
    AA==
2 zstd:
    AAAAAAAAAGQAAACGAAAABwJhhixjAAQAAAAFAAABdIdugAAAAAF0h26ABf//////////////////AAAABCi1L/0AWEwCANQDLgAA
    AAZrZXkKdmFsdWUGAmgCMQJuAQAAJgAKAgEaYW5vdGhlciAADAATBAABALYBAAIKUGtQdgIEw6kC/wMAQInBlWogKDIBAAA=
2 zstd append:
    AAAAAAAAAGQAAACGAAAABwIMgwG7AAwAAAAFAAABdIdugAAAAAGLz+VoAP//////////////////AAAABCi1L/0AWEwCANQDLgAA
    AAZrZXkKdmFsdWUGAmgCMQJuAQAAJgAKAgEaYW5vdGhlciAADAATBAABALYBAAIKUGtQdgIEw6kC/wMAQInBlWogKDIBAAA=
2 none transactional:
    AAAAAAAAAGQAAADBAAAABwLrA6JDABAAAAAFAAABdIdugAAAAAF0h26ABQAAAAAAABCSAAAAAAAAAAAABC4AAAAGa2V5CnZhbHVl
    BgJoAjECbgEAACYACgIBGmFub3RoZXIgdmFsdWUADAATBAABALYBAAIKUGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
    a2tra2tra2tQdnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dgIEw6kC/w==
2 none delete horizon:
    AAAAAAAAAGQAAADVAAAABwLMkd3IAEAAAAAFAAABgCup9AAAAAF0h26ABf//////////////////AAAABDgA/8/bw/QCAAZrZXkK
    dmFsdWUGAmgCMQJuAQAAMAD1z9vD9AICARphbm90aGVyIHZhbHVlABYAk9Dbw/QCBAABAMABAP3P28P0AgpQa2tra2tra2tra2tr
    a2tra2tra2tra2tra2tra2tra2tra2tra2tra1B2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2AgTDqQL/
2 ABORT:
    AAAAAAAAAGoAAABCAAAAAAJaWCDZADAAAAAAAAABdIdugAAAAAF0h26AAAAAAAAAABCSAAD/////AAAAASAAAAAIAAAAAAwAAAAA
    AAMA
2 COMMIT:
    AAAAAAAAAGoAAABCAAAAAAKuZvaRADAAAAAAAAABdIdugAAAAAF0h26AAAAAAAAAABCSAAD/////AAAAASAAAAAIAAAAAQwAAAAA
    AAMA
2 empty:
    AAAAAAAAAMgAAAAxAAAAAAIZeIZLABAAAAAJ//////////8AAAF0h26AAAAAAAAAABCSAAAAAAAAAAAAAA==
"""


def _golden(lines: Iterable[str]) -> dict[str, bytes]:
    texts: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.endswith(":"):
            name = line[:-1]
        else:
            texts[name] = texts.get(name, "") + line.strip()
    return {name: base64.b64decode(text) for name, text in texts.items()}


#: Bytes of an entry or a message set by name, such as "1 lz4 append".
GOLDEN = _golden(_GOLDEN.strip().splitlines())
