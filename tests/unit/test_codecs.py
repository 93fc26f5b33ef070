"""Tests of decompression of data in Kafka's framing: known bytes, damaged data, and memory limits."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.fetcher import codecs
from zkconsumer.fetcher.codecs import Decompressor

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
    return bytes(Decompressor().decompress(codec, memoryview(data), magic, limit)[0])


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


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_concatenated_frames_are_read_to_the_end(codec: int) -> None:
    data = batches.compress(codec, b"one") + batches.compress(codec, b"two")
    assert decompressed(codec, data) == b"onetwo"


def test_first_lz4_frame_is_read_alone() -> None:
    """The Java client stops at the end mark of the first frame."""
    data = batches.compress(LZ4, b"one") + batches.compress(LZ4, b"two")
    assert decompressed(LZ4, data) == b"one"


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
    assert bytes(Decompressor().decompress(ZSTD, data, 2, 1 << 20)[0]) == b"hello"


# ---- bytes after the end -----------------------------------------------------------------------------

MEMBER = gzip.compress(b"two", mtime=0)
FRAME = HELLO_ZSTD

#: Codec, trailing bytes, and the content after ``b"one"``; None if the data is corrupt. The Java client 3.9.2 agrees.
TRAILING: list[tuple[int, bytes, bytes | None]] = [
    *((codec, bytes(count), b"") for codec in (GZIP, LZ4) for count in (1, 3, 4, 18, 19, 20, 5000)),
    *((codec, b"\xff" * count, b"") for codec in (GZIP, LZ4) for count in (1, 3, 4, 18, 19, 20, 5000)),
    (GZIP, MEMBER, b"two"),
    (GZIP, MEMBER + b"\x00" * 100, b"two"),
    (GZIP, b"\x00" + MEMBER, b""),
    (GZIP, MEMBER[:-1], None),  # a truncated member, not trailing bytes
    (GZIP, MEMBER[:10], b""),
    (GZIP, MEMBER[:18], b""),
    (GZIP, b"\x1f\x8b\x07" + bytes(30), b""),
    (GZIP, b"\x1f\x8b\x08\x08" + b"x" * 30, b""),  # the file name does not end
    (GZIP, b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + bytes(30), b""),  # the extra field does not end
    (GZIP, b"\x1f\x8b\x08\x02" + b"x" * 30, b""),  # wrong header checksum
    (GZIP, b"\x1f\x8b\x08" + b"\x00" * 7 + b"\xff" * 30, None),  # a valid header without valid content
    (LZ4, HELLO_LZ4, b""),
    (LZ4, HELLO_LZ4[:9], b""),
    (SNAPPY, b"\x00", b""),
    (SNAPPY, b"\xff\xff\xff", b""),
    (SNAPPY, b"\x00\x00\x00\x00", None),
    (SNAPPY, b"\xff\xff\xff\xff", None),
    (SNAPPY, batches.XERIAL_HEADER[:3], b""),
    (SNAPPY, batches.XERIAL_HEADER[:15], None),
    (SNAPPY, batches.XERIAL_HEADER, b""),
    *((ZSTD, byte * count, None) for byte in (b"\x00", b"\xff") for count in (1, 3, 4, 20)),
    *((ZSTD, FRAME[:count], b"") for count in range(1, 10)),
    *((ZSTD, (b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab" + FRAME)[:count], b"") for count in (1, 4, 8, 9, 10, 12)),
    (ZSTD, b"\x5f\x2a\x4d\x18\x02\x00\x00\x00ab" + FRAME, b"hello"),
]


@pytest.mark.parametrize(
    ("codec", "trailing", "following"), TRAILING, ids=[f"{CODEC_NAMES[c]} {t[:20].hex()}" for c, t, _ in TRAILING]
)
def test_trailing_bytes_are_ignored_as_in_java(codec: int, trailing: bytes, following: bytes | None) -> None:
    data = batches.compress(codec, b"one") + trailing
    if following is None:
        with pytest.raises(ValueError, match=CODEC_NAMES[codec]):
            decompressed(codec, data, limit=1 << 20)
    else:
        content, end = Decompressor().decompress(codec, memoryview(data), 2, 1 << 20)
        assert bytes(content) == b"one" + following
        assert len(data) - len(trailing) <= end <= len(data)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_end_of_random_stream_is_found(data: st.DataObject) -> None:
    """Random members with random optional header fields, block sizes and checksums, and bytes that are no member."""
    codec = data.draw(st.sampled_from([GZIP, LZ4]))
    content = data.draw(st.binary(max_size=200) | st.integers(0, 300_000).map(random.Random(5).randbytes))
    trailing = data.draw(st.binary(min_size=1, max_size=80).filter(lambda rest: rest[0] != 0x1F))
    if codec == GZIP:
        stream = with_optional_fields(gzip.compress(content), data.draw(st.integers(0, 31)))
    else:
        flags = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
        content = content[:15] if any(flags[1:]) else content  # the checksum function accepts no more
        stream = lz4_frame(content, data.draw(st.sampled_from([1 << 10, 1 << 16])), *flags)
    found, end = Decompressor().decompress(codec, memoryview(stream + trailing), 2, 1 << 20)
    assert (bytes(found), end) == (content, len(stream))
    assert decompressed(codec, stream) == content


def with_optional_fields(member: bytes, flags: int) -> bytes:
    """Return a gzip member with the optional header fields that ``flags`` selects."""
    header = member[:3] + bytes([flags]) + member[4:10]
    header += struct.pack("<H", 300) + bytes(300) if flags & 4 else b""
    header += b"name\0" if flags & 8 else b""
    header += b"comment\0" if flags & 16 else b""
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & 2 else b""
    return header + member[10:]


def lz4_frame(content: bytes, block: int, has_size: bool, has_block_checksums: bool, has_checksum: bool) -> bytes:
    """Return an LZ4 frame of uncompressed blocks."""
    descriptor = bytes([0x60 | has_size << 3 | has_block_checksums << 4 | has_checksum << 2, 0x40])
    descriptor += struct.pack("<Q", len(content)) if has_size else b""
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([batches.xxh32(descriptor) >> 8 & 0xFF])
    for start in range(0, len(content), block):
        piece = content[start : start + block]
        frame += struct.pack("<I", len(piece) | 1 << 31) + piece
        frame += struct.pack("<I", batches.xxh32(piece)) if has_block_checksums else b""
    return frame + bytes(4) + (struct.pack("<I", batches.xxh32(content)) if has_checksum else b"")


@pytest.mark.timeout(20)
def test_search_for_end_is_bounded() -> None:
    """Many members, a member that is too large, and many blocks."""
    empty = gzip.compress(b"")
    assert decompressed(GZIP, empty * 50_000 + b"\0") == b""
    with pytest.raises(ValueError, match="gzip"):
        decompressed(GZIP, gzip.compress(bytes(64 << 20)) + b"\0", limit=1 << 20)
    tiny = struct.pack("<I", 1 | 1 << 31) + b"x"
    assert len(decompressed(LZ4, HELLO_LZ4[:7] + tiny * 200_000 + bytes(4) + b"rest")) == 200_000


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


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_batches_do_not_affect_each_other(data: st.DataObject) -> None:
    """Batches of all codecs, some of them damaged, are decompressed in turn, and each of them alone."""
    shared = Decompressor()
    contents = st.binary(max_size=300) | st.integers(0, 300_000).map(lambda size: TEXT * (size // len(TEXT)))
    for _ in range(data.draw(st.integers(2, 8))):
        codec, limit = data.draw(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD])), data.draw(st.sampled_from([100, 1 << 20]))
        batch = batches.compress(codec, data.draw(contents))
        if data.draw(st.booleans()):
            batch = batch[: data.draw(st.integers(0, len(batch)))] + data.draw(st.binary(max_size=40))
        assert outcome(shared, codec, batch, limit) == outcome(Decompressor(), codec, batch, limit)


def outcome(decompressor: Decompressor, codec: int, batch: bytes, limit: int) -> tuple[bytes, int] | str:
    """Return the content and the end of a batch, or the error."""
    try:
        content, end = decompressor.decompress(codec, memoryview(batch), 2, limit)
    except ValueError as error:
        return str(error)
    return bytes(content), end


def test_truncated_raw_snappy_is_corrupt() -> None:
    data = batches.snappy_block(TEXT)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="snappy"):
            decompressed(SNAPPY, data[:end])


def test_truncated_xerial_block_is_corrupt() -> None:
    data = batches.xerial(TEXT)
    for end in range(len(batches.XERIAL_HEADER) + 4, len(data)):
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
