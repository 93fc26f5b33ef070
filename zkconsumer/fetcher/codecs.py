"""gzip, snappy, lz4 and zstd as Kafka frames them, through pyarrow.

None of the framings but lz4's and zstd's can say how large the content is, so gzip, lz4 and zstd are read
as streams. All errors are ``ValueError``; ``decode.py`` names the place.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

#: No batch can be larger decompressed: Arrow's offsets have 31 bits, as has Kafka's size field.
LIMIT = (1 << 31) - 1

_XERIAL = b"\x82SNAPPY\x00"
_STREAMED = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
#: Bytes that are read at least; small, since each read allocates them, the one that finds the end too.
_PIECE = 1 << 16


def decompress(codec: int, data: memoryview, magic: int) -> Any:
    """Return the content of a compressed entry as a buffer.

    Args:
        codec: the low three bits of the entry's attributes.
        magic: the message format; format 0 has lz4 frames with a wrong header checksum (KAFKA-3160).

    Raises:
        ValueError: the codec is unknown, or the data is damaged or larger than ``LIMIT``.
    """
    try:
        if codec == SNAPPY:
            return _snappy(data)
        if codec not in _STREAMED:
            raise ValueError(f"unknown compression codec {codec}")
        if codec == LZ4 and magic == 0:
            data = memoryview(_with_header_checksum(data))
        return _streamed(_STREAMED[codec], data)
    except (OSError, pa.ArrowException, struct.error) as error:
        raise ValueError(f"{NAMES.get(codec, codec)} data is damaged: {error}") from error


def _streamed(name: str, data: memoryview) -> Any:
    with pa.input_stream(pa.py_buffer(data), compression=name) as stream:
        pieces, size, wanted = [], 0, max(_PIECE, 16 * len(data))
        while len(piece := stream.read_buffer(wanted)):
            size += piece.size
            if size > LIMIT:
                raise ValueError(f"{name} content is larger than {LIMIT} bytes")
            pieces.append(piece)
            wanted = max(_PIECE, min(size, 16 * _PIECE))
    return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


def _snappy(data: memoryview) -> Any:
    codec = pa.Codec("snappy")
    if bytes(data[:8]) != _XERIAL:
        return codec.decompress(pa.py_buffer(data), _snappy_size(data))
    if len(data) < 16:
        raise ValueError("a snappy header is cut off")
    pieces, at, size = [], 16, 0
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL:  # appended streams repeat the header
            at += 16
            continue
        (block,) = struct.unpack_from(">i", data, at)
        at += 4
        if block < 0 or block > len(data) - at:
            raise ValueError("a snappy block is cut off")
        content = codec.decompress(pa.py_buffer(data[at : at + block]), _snappy_size(data[at : at + block]))
        size += content.size
        if size > LIMIT:
            raise ValueError(f"snappy content is larger than {LIMIT} bytes")
        pieces.append(content)
        at += block
    return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


def _snappy_size(block: memoryview) -> int:
    """Return the size of the content, which stands as a varint before raw snappy data."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            # Snappy cannot shrink more than about 21 times; a larger claim is damage, not an allocation.
            if size > LIMIT or size > 64 * len(block) + 64:
                break
            return size
    raise ValueError("a snappy block has an impossible size")


def _with_header_checksum(frame: memoryview) -> bytes:
    """Return an LZ4 frame with its header checksum put right.

    Kafka computed it over the magic number too in message format 0.
    """
    fixed = bytearray(frame)
    if len(fixed) < 7 or fixed[:4] != b"\x04\x22\x4d\x18":
        raise ValueError("not an LZ4 frame")
    end = 6 + (8 if fixed[4] & 0x08 else 0)
    if len(fixed) <= end:
        raise ValueError("an LZ4 frame is cut off")
    fixed[end] = header_checksum(bytes(fixed[4:end]))
    return bytes(fixed)


def header_checksum(descriptor: bytes) -> int:
    """Return the checksum of the descriptor of an LZ4 frame."""
    return (_xxh32(descriptor) >> 8) & 0xFF


def _xxh32(data: bytes) -> int:
    """Return the XXH32 of fewer than 16 bytes, seed 0."""
    mask = 0xFFFFFFFF
    h, at = (374761393 + len(data)) & mask, 0
    while at + 4 <= len(data):
        h = (h + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        h = ((h << 17 | h >> 15) & mask) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        h = (h + byte * 374761393) & mask
        h = ((h << 11 | h >> 21) & mask) * 2654435761 & mask
    h = (h ^ h >> 15) * 2246822519 & mask
    h = (h ^ h >> 13) * 3266489917 & mask
    return h ^ h >> 16
