"""Tests of decompression of data in Kafka's framing: known bytes, damaged data, and memory limits."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator

import batches
import pyarrow as pa
import pytest
from batches import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.fetcher import codecs

TEXT = b"the quick brown fox jumps over the lazy dog " * 12

# Written by hand according to the specification of each format, not with the library under test.
HELLO_GZIP_STORED = bytes.fromhex("1f8b08000000000000ff 01 0500 faff 68656c6c6f 86a61036 05000000")
HELLO_SNAPPY = b"\x05\x10hello"
ABABABABAB_SNAPPY = b"\x0a\x04ab\x11\x02"  # two letters, then a copy of 8 bytes from 2 bytes before
HELLO_LZ4 = bytes.fromhex("04224d18 60 40 82 05000080 68656c6c6f 00000000")
HELLO_LZ4_FORMAT_0 = bytes.fromhex("04224d18 60 40 1a 05000080 68656c6c6f 00000000")
HELLO_LZ4_SIZED = bytes.fromhex("04224d18 68 40 0500000000000000 61 05000080 68656c6c6f 00000000")
HELLO_ZSTD = bytes.fromhex("28b52ffd 20 05 290000 68656c6c6f")


def decompressed(codec: int, data: bytes, magic: int = 2, limit: int = 1 << 40) -> bytes:
    return bytes(codecs.decompress(codec, memoryview(data), magic, limit))


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Return Arrow's memory pool, whose peak starts at 0."""
    with batches.arrow_memory() as proxy:
        yield proxy


# ---- known bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "magic", "data", "content"),
    [
        (GZIP, 2, HELLO_GZIP_STORED, b"hello"),
        (GZIP, 1, HELLO_GZIP_STORED, b"hello"),
        (SNAPPY, 2, HELLO_SNAPPY, b"hello"),
        (SNAPPY, 0, ABABABABAB_SNAPPY, b"ababababab"),
        (SNAPPY, 2, b"\x00", b""),
        (SNAPPY, 2, batches.XERIAL_HEADER, b""),
        (SNAPPY, 2, batches.XERIAL_HEADER + b"\x00\x00\x00\x07" + HELLO_SNAPPY, b"hello"),
        (LZ4, 2, HELLO_LZ4, b"hello"),
        (LZ4, 1, HELLO_LZ4_SIZED, b"hello"),
        (LZ4, 0, HELLO_LZ4_FORMAT_0, b"hello"),
        (LZ4, 0, HELLO_LZ4, b"hello"),
        (LZ4, 0, HELLO_LZ4_SIZED, b"hello"),
        (ZSTD, 2, HELLO_ZSTD, b"hello"),
    ],
    ids=lambda value: None if isinstance(value, int) else value.hex()[:24],
)
def test_known_bytes_have_the_known_content(codec: int, magic: int, data: bytes, content: bytes) -> None:
    assert decompressed(codec, data, magic) == content


def test_xxh32_has_the_published_values() -> None:
    vectors = {b"": 0x02CC5D05, b"a": 0x550D7456, b"abc": 0x32D153FF}
    assert {data: codecs._xxh32(data) for data in vectors} == vectors


@given(st.binary(max_size=15))
def test_xxh32_agrees_with_another_implementation(data: bytes) -> None:
    assert codecs._xxh32(data) == batches.xxh32(data)


def test_kafka_content_is_same_in_every_codec() -> None:
    plain = batches.GOLDEN["2 none"][61:]
    packed = {codec: batches.GOLDEN[f"2 {CODEC_NAMES[codec]}"][61:] for codec in (GZIP, SNAPPY, LZ4, ZSTD)}
    assert {codec: decompressed(codec, data) for codec, data in packed.items()} == dict.fromkeys(packed, plain)


def test_lz4_checksum_of_format_0_is_rejected_later() -> None:
    with pytest.raises(ValueError, match=r"corrupt lz4 data: .*header.*[cC]hecksum"):
        decompressed(LZ4, HELLO_LZ4_FORMAT_0, magic=1)


# ---- framings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeat_header", [False, True], ids=["one header", "a header per block"])
@pytest.mark.parametrize("block", [1, 100, 10_000])
def test_xerial_blocks_are_joined(block: int, repeat_header: bool) -> None:
    data = batches.xerial(TEXT, block, repeat_header=repeat_header)
    assert decompressed(SNAPPY, data) == TEXT


def test_concatenated_xerial_streams_are_read_to_the_end() -> None:
    """Some clients concatenate complete streams."""
    assert decompressed(SNAPPY, batches.xerial(b"one") + batches.xerial(b"two")) == b"onetwo"


@pytest.mark.parametrize("version", [struct.pack(">ii", 2, 1), struct.pack("<ii", 1, 1)])
def test_xerial_version_is_ignored(version: bytes) -> None:
    """Redpanda's clients write it in the wrong byte order."""
    data = batches.xerial(TEXT)
    assert decompressed(SNAPPY, data[:8] + version + data[16:]) == TEXT


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_concatenated_frames_are_read_to_the_end(codec: int) -> None:
    data = batches.compress(codec, b"one") + batches.compress(codec, b"two")
    assert decompressed(codec, data) == b"onetwo"


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_empty_input_of_a_stream_has_empty_content(codec: int) -> None:
    assert decompressed(codec, b"") == b""


def test_empty_input_is_not_snappy() -> None:
    with pytest.raises(ValueError, match="implausible snappy block size"):
        decompressed(SNAPPY, b"")


@pytest.mark.parametrize("magic", [0, 1, 2])
@given(content=st.binary(max_size=300) | st.binary(max_size=20).map(lambda piece: piece * 500))
@settings(max_examples=40, deadline=None)
def test_any_content_round_trips(magic: int, content: bytes) -> None:
    for codec in batches.CODECS[magic][1:]:
        assert decompressed(codec, batches.compress(codec, content, magic), magic) == content
    assert decompressed(SNAPPY, batches.compress(SNAPPY, content, raw_snappy=True), magic) == content


def test_large_content_round_trips() -> None:
    content = bytes(3_000_000) + random.Random(7).randbytes(500_000) + bytes(9_000_000)
    assert decompressed(GZIP, gzip.compress(content, 1)) == content
    for codec in (SNAPPY, LZ4, ZSTD):
        assert decompressed(codec, batches.compress(codec, content)) == content


def test_input_can_be_a_slice() -> None:
    data = memoryview(b"before" + HELLO_ZSTD + b"after")[6:-5]
    assert bytes(codecs.decompress(ZSTD, data, 2, 1 << 20)) == b"hello"


# ---- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 5, 6, 7])
def test_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(ValueError, match=f"^unknown compression codec {codec}$"):
        decompressed(codec, TEXT)


@pytest.mark.parametrize(
    ("codec", "magic", "data", "reason"),
    [
        (GZIP, 2, b"not gzip at all", "corrupt gzip data"),
        (LZ4, 2, b"not lz4 at all", "corrupt lz4 data"),
        (ZSTD, 2, b"not zstd at all", "corrupt zstd data"),
        (SNAPPY, 2, b"\x05\x10hell", "corrupt snappy data"),
        (SNAPPY, 2, b"\x04\x10hello", "corrupt snappy data"),
        (SNAPPY, 2, b"\x80\x80\x80\x80\x80\x01", "implausible snappy block size"),
        (SNAPPY, 2, batches.XERIAL_HEADER + b"\xff\xff\xff\xff", "truncated snappy block"),
        (SNAPPY, 2, batches.XERIAL_HEADER + b"\x00\x00\x00\x08" + HELLO_SNAPPY, "truncated snappy block"),
        (SNAPPY, 2, batches.XERIAL_HEADER + b"\x00\x00\x00", "corrupt snappy data"),
        (SNAPPY, 2, batches.XERIAL_HEADER + b"\x00\x00\x00\x00", "implausible snappy block size"),
        (LZ4, 0, b"", "not an LZ4 frame"),
        (LZ4, 0, b"\x04\x22\x4d\x18\x60\x40", "not an LZ4 frame"),
        (LZ4, 0, b"not lz4 at all", "not an LZ4 frame"),
        (LZ4, 0, HELLO_LZ4_SIZED[:14], "truncated LZ4 frame"),
    ],
    ids=lambda value: value.hex()[:24] if isinstance(value, bytes) else None,
)
def test_corrupt_data_raises_value_error(codec: int, magic: int, data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decompressed(codec, data, magic)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_truncated_stream_is_corrupt(codec: int, magic: int) -> None:
    data = batches.compress(codec, TEXT, magic)
    for end in range(1, len(data)):
        with pytest.raises(ValueError, match=r"corrupt|LZ4 frame"):
            decompressed(codec, data[:end], magic)


def test_truncated_raw_snappy_is_corrupt() -> None:
    data = batches.snappy_block(TEXT)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="snappy"):
            decompressed(SNAPPY, data[:end])


def test_truncated_xerial_block_is_corrupt() -> None:
    data = batches.xerial(TEXT)
    for end in range(len(batches.XERIAL_HEADER) + 1, len(data)):
        with pytest.raises(ValueError, match="snappy"):
            decompressed(SNAPPY, data[:end])


def test_truncated_xerial_header_is_corrupt() -> None:
    for end in range(len(batches.XERIAL_HEADER)):
        with pytest.raises(ValueError, match="snappy"):
            decompressed(SNAPPY, batches.XERIAL_HEADER[:end])


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_random_corruption_gives_content_or_value_error(codec: int, data: st.DataObject) -> None:
    magic = data.draw(st.sampled_from([m for m in (0, 1, 2) if codec in batches.CODECS[m]]))
    raw = data.draw(st.booleans())
    damaged = bytearray(batches.compress(codec, TEXT, magic, raw_snappy=raw))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        content = decompressed(codec, bytes(damaged), magic)
    except ValueError:
        return
    assert len(content) < 1 << 20


# ---- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 20, 1 << 28, (1 << 31) - 1, (1 << 32) - 1, (1 << 35) - 1])
def test_oversized_snappy_claim_allocates_nothing(pool: pa.MemoryPool, size: int) -> None:
    block = bytearray()
    while size >= 0x80:
        block.append(size & 0x7F | 0x80)
        size >>= 7
    block.append(size)
    block += b"\x10hello"
    xerial = batches.XERIAL_HEADER + struct.pack(">i", len(block)) + block
    for data in (bytes(block), xerial):
        with pytest.raises(ValueError, match="implausible snappy block size"):
            decompressed(SNAPPY, data)
    assert pool.max_memory() < 1 << 20


def test_oversized_lz4_claim_allocates_nothing(pool: pa.MemoryPool) -> None:
    frame = bytearray(HELLO_LZ4_SIZED)
    frame[6:14] = struct.pack("<q", 1 << 40)
    frame[14] = batches.xxh32(bytes(frame[4:14])) >> 8 & 0xFF
    with pytest.raises(ValueError, match="corrupt lz4 data"):
        decompressed(LZ4, bytes(frame))
    assert pool.max_memory() < 4 << 20


def test_oversized_zstd_claim_allocates_nothing(pool: pa.MemoryPool) -> None:
    frame = bytes.fromhex("28b52ffd e0") + struct.pack("<Q", 1 << 40) + HELLO_ZSTD[6:]
    with pytest.raises(ValueError, match="corrupt zstd data"):
        decompressed(ZSTD, frame)
    assert pool.max_memory() < 4 << 20


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_content_above_limit_is_rejected(pool: pa.MemoryPool, codec: int) -> None:
    data = batches.compress(codec, bytes(64 << 20))
    reason = f"^{CODEC_NAMES[codec]} content is larger than decompressed.batch.max.bytes = 4194304$"
    with pytest.raises(ValueError, match=reason):
        decompressed(codec, data, limit=4 << 20)
    assert pool.max_memory() < 32 << 20


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_content_at_limit_is_read(codec: int) -> None:
    content = bytes(4 << 20)
    assert decompressed(codec, batches.compress(codec, content), limit=len(content)) == content
