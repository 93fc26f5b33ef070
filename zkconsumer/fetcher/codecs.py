"""Decompression of gzip, snappy, lz4 and zstd in Kafka's framing, with pyarrow.

gzip, lz4 and zstd are decompressed as streams, because their frames do not reliably contain the decompressed size.
Bytes after the end of the compressed data are ignored where the Java client ignores them (``stream_ends``). Corrupt
data raises ``ValueError``; ``decode.py`` adds the topic, partition and offset to the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from zkconsumer.fetcher.stream_ends import find_gzip_end, find_lz4_end, find_zstd_end

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

#: Maximum value of ``decompressed.batch.max.bytes``: Arrow offsets and Kafka's size field are 32-bit signed integers.
_LIMIT = (1 << 31) - 1

_XERIAL = b"\x82SNAPPY\x00"
_STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
#: Minimum bytes per read. It is small because each read allocates this size, even the last read, which returns nothing.
_MIN_READ = 1 << 16


def decompress(
    codec: int,
    data: memoryview,
    magic: int,
    decompressed_batch_max_bytes: int,
    on_trailing_bytes: Callable[[int], object] = lambda _count: None,
) -> Any:
    """Return the content of a compressed batch or message as a buffer.

    Args:
        codec: codec id, the lowest three bits of the attributes.
        magic: message format; LZ4 frames in format 0 have an incorrect header checksum (KAFKA-3160).
        decompressed_batch_max_bytes: maximum decompressed size in bytes.
        on_trailing_bytes: function that is called with the number of ignored bytes after the compressed data.

    Raises:
        ValueError: the codec is unknown, the data is corrupt, or the decompressed size exceeds the limit.
        MemoryError: there is not enough memory.
    """
    limit = min(decompressed_batch_max_bytes, _LIMIT)
    try:
        if codec == SNAPPY:
            content, end = _decompress_snappy(data, limit)
        elif codec not in _STREAMS:
            raise ValueError(f"unknown compression codec {codec}")
        else:
            if codec == LZ4 and magic == 0:
                data = memoryview(_fix_header_checksum(data))
            content, end = _decompress_frames(codec, data, limit)
    except MemoryError:
        raise
    except (OSError, pa.ArrowException, struct.error) as error:
        raise ValueError(f"corrupt {NAMES.get(codec, codec)} data: {error}") from error
    if end < len(data):
        on_trailing_bytes(len(data) - end)
    return content


def _too_large_error(name: str, limit: int) -> ValueError:
    return ValueError(f"{name} content is larger than decompressed.batch.max.bytes = {limit}")


def _decompress_frames(codec: int, data: memoryview, limit: int) -> tuple[Any, int]:
    """Return the content of gzip, lz4 or zstd data, and the end of the data that the Java client reads."""
    if codec == LZ4:
        end = find_lz4_end(data)
        return _decompress_stream("lz4", data[:end], limit), end
    try:
        return _decompress_stream(_STREAMS[codec], data, limit), len(data)
    except (OSError, pa.ArrowException):
        end = find_gzip_end(data, limit) if codec == GZIP else find_zstd_end(data)
        if end == len(data):
            raise
    return _decompress_stream(_STREAMS[codec], data[:end], limit), end


def _decompress_stream(name: str, data: memoryview, limit: int) -> Any:
    with pa.input_stream(pa.py_buffer(data), compression=name) as stream:
        pieces, size, read_size = [], 0, max(_MIN_READ, min(16 * len(data), limit + 1))
        while len(piece := stream.read_buffer(read_size)):
            size += piece.size
            if size > limit:
                raise _too_large_error(name, limit)
            pieces.append(piece)
            read_size = max(_MIN_READ, min(size, 16 * _MIN_READ))
    return _join_blocks(pieces)


def _decompress_snappy(data: memoryview, limit: int) -> tuple[Any, int]:
    """Return the content of snappy data, and the end of its last block.

    Source: snappy-java 1.1.10 SnappyInputStream.hasNextChunk.
    """
    if bytes(data[:8]) != _XERIAL:
        return _decompress_block(data, limit, limit), len(data)
    if len(data) < 16:
        raise ValueError("truncated snappy header")
    pieces, at, size = [], 16, 0
    while len(data) - at >= 4:
        if data[at : at + 8] == _XERIAL:  # each concatenated stream has its own header
            at += 16
            if at > len(data):
                raise ValueError("truncated snappy header")
            continue
        (block,) = struct.unpack_from(">i", data, at)
        start = at + 4
        if block < 0 or block > len(data) - start:
            raise ValueError("truncated snappy block")
        at = start + block
        content = _decompress_block(data[start:at], limit - size, limit)
        size += content.size
        pieces.append(content)
    return _join_blocks(pieces), at


def _decompress_block(block: memoryview, room: int, limit: int) -> Any:
    size = _read_snappy_size(block)
    if size > room:
        raise _too_large_error("snappy", limit)
    return pa.Codec("snappy").decompress(pa.py_buffer(block), size)


def _join_blocks(pieces: list[Any]) -> Any:
    return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


def _read_snappy_size(block: memoryview) -> int:
    """Return the decompressed size, which is encoded as a varint at the start of the snappy block."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            # Snappy's compression ratio is at most about 21. Do not allocate memory for a much larger, corrupt size.
            if size > 64 * len(block) + 64:
                break
            return size
    raise ValueError("implausible snappy block size")


def _fix_header_checksum(frame: memoryview) -> bytes:
    """Return an LZ4 frame with the correct header checksum.

    In message format 0, Kafka included the magic number in the checksum.
    """
    fixed = bytearray(frame)
    if len(fixed) < 7 or fixed[:4] != b"\x04\x22\x4d\x18":
        raise ValueError("not an LZ4 frame")
    end = 6 + (8 if fixed[4] & 0x08 else 0)
    if len(fixed) <= end:
        raise ValueError("truncated LZ4 frame")
    fixed[end] = compute_header_checksum(bytes(fixed[4:end]))
    return bytes(fixed)


def compute_header_checksum(descriptor: bytes) -> int:
    """Return the header checksum of an LZ4 frame descriptor."""
    return (_xxh32(descriptor) >> 8) & 0xFF


def _xxh32(data: bytes) -> int:
    """Return the XXH32 hash of ``data`` with seed 0; the data must be shorter than 16 bytes."""
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
