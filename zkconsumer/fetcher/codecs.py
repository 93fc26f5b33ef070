"""Decompression of gzip, snappy, lz4 and zstd in Kafka's framing, with pyarrow.

gzip, lz4 and zstd are decompressed as streams, because their frames do not reliably contain the decompressed size.
Bytes after the end of the compressed data are ignored where the Java client ignores them (``stream_ends``). Corrupt
data raises ``ValueError``; ``decode.py`` adds the topic, partition and offset to the message.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from zkconsumer.fetcher.stream_ends import find_gzip_end, find_lz4_end, find_zstd_end

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

#: Maximum value of ``decompressed.batch.max.bytes``: Arrow offsets and Kafka's size field are 32-bit signed integers.
_LIMIT = (1 << 31) - 1

_XERIAL = b"\x82SNAPPY\x00"
_SNAPPY_CODEC = pa.Codec("snappy")
_STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
#: Minimum bytes per read. It is small because each read allocates this size.
_MIN_READ = 1 << 16


class _Source:
    """A file object whose content is the compressed data of the current batch.

    Attributes:
        data: the bytes that have not been read.
    """

    closed = False

    def __init__(self) -> None:
        self.data = memoryview(b"")

    def read(self, size: int) -> memoryview:
        """Return up to ``size`` bytes; no bytes at the end of the batch."""
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def close(self) -> None:
        """Do nothing; pyarrow requires the method."""


class _Stream:
    """Decompresses one batch after another with the same pyarrow stream.

    Creating a stream takes longer than decompressing a small batch. pyarrow continues after the end of the file if the
    source has more bytes by then. The stream must not be used after an error.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._source = _Source()
        self._stream = pa.CompressedInputStream(pa.PythonFile(self._source, mode="r"), name)

    def decompress(self, data: memoryview, limit: int) -> Any:
        """Return the content of a batch as a buffer.

        Raises:
            OSError, pa.ArrowException: the data is corrupt or incomplete.
            ValueError: the content is larger than ``limit`` bytes.
        """
        self._source.data = data
        read_size = max(_MIN_READ, min(16 * len(data), limit + 1))
        pieces = [piece := self._stream.read_buffer(read_size)]
        size = piece.size
        while piece.size == read_size and size <= limit:
            read_size = min(size, 16 * _MIN_READ)
            pieces.append(piece := self._stream.read_buffer(read_size))
            size += piece.size
        if size > limit:
            raise _too_large_error(self._name, limit)
        return _join_blocks(pieces)


class Decompressor:
    """Decompresses the batches of a chunk. Not thread-safe."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}  # by codec id

    def decompress(
        self, codec: int, data: memoryview, magic: int, decompressed_batch_max_bytes: int
    ) -> tuple[Any, int]:
        """Return the content of a compressed batch or message as a buffer, and the end of the compressed data.

        Args:
            codec: codec id, the lowest three bits of the attributes.
            data: the compressed data; bytes after its end are ignored.
            magic: message format; LZ4 frames in format 0 have an incorrect header checksum (KAFKA-3160).
            decompressed_batch_max_bytes: maximum decompressed size in bytes.

        Raises:
            ValueError: the codec is unknown, the data is corrupt, or the decompressed size exceeds the limit.
            MemoryError: there is not enough memory.
        """
        limit = min(decompressed_batch_max_bytes, _LIMIT)
        try:
            if codec == LZ4:
                end = find_lz4_end(data)
                frame = data[:end] if magic else memoryview(_fix_header_checksum(data[:end]))
                return self._decompress_stream(LZ4, frame, limit), end
            if codec == SNAPPY:
                return _decompress_snappy(data, limit)
            if codec in _STREAMS:
                return self._decompress_frames(codec, data, limit)
        except MemoryError:
            raise
        except (OSError, pa.ArrowException, struct.error) as error:
            raise ValueError(f"corrupt {NAMES[codec]} data: {error}") from error
        raise ValueError(f"unknown compression codec {codec}")

    def _decompress_frames(self, codec: int, data: memoryview, limit: int) -> tuple[Any, int]:
        """Return the content of gzip or zstd data, and the end of the data that the Java client reads."""
        try:
            return self._decompress_stream(codec, data, limit), len(data)
        except (OSError, pa.ArrowException):
            end = find_gzip_end(data, limit) if codec == GZIP else find_zstd_end(data)
            if end == len(data):
                raise
        return self._decompress_stream(codec, data[:end], limit), end

    def _decompress_stream(self, codec: int, data: memoryview, limit: int) -> Any:
        stream = self._streams.pop(codec, None) or _Stream(_STREAMS[codec])
        content = stream.decompress(data, limit)
        self._streams[codec] = stream  # not after an error
        return content


def _too_large_error(name: str, limit: int) -> ValueError:
    return ValueError(f"{name} content is larger than decompressed.batch.max.bytes = {limit}")


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
    return _SNAPPY_CODEC.decompress(pa.py_buffer(block), size)


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
