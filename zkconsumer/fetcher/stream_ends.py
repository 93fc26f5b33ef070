"""Find the end of compressed data that is followed by other bytes, as the Java client does.

Brokers accept such batches, because they read no further than the Java client.
"""

from __future__ import annotations

import struct
import zlib

#: Minimum number of bytes after a gzip member that may be another member. Source: JDK GZIPInputStream.readTrailer.
_MIN_GZIP_MEMBER = 19
_GZIP_MAGIC = b"\x1f\x8b\x08"
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16
#: Number of compressed bytes per call of zlib, which copies the unused bytes at the end of each member.
_GZIP_INPUT = 1 << 12
_GZIP_OUTPUT = 1 << 20

#: Size field of an LZ4 block.
_BLOCK_SIZE = struct.Struct("<I")

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_RESERVED_BIT = 8
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3


def find_gzip_end(data: memoryview, limit: int) -> int:
    """Return the end of the last member; the bytes after it are not a member. Return ``len(data)`` for corrupt data.

    Args:
        limit: maximum decompressed size in bytes; larger data is considered corrupt.

    Source: JDK GZIPInputStream.readTrailer, readHeader.
    """
    end = size = 0
    while _has_gzip_header(data, end) and (not end or len(data) - end >= _MIN_GZIP_MEMBER):
        member, at, rest = zlib.decompressobj(wbits=31), end, b""
        while not member.eof:
            if not rest:
                rest, at = bytes(data[at : at + _GZIP_INPUT]), at + _GZIP_INPUT
            try:
                size += len(member.decompress(rest, _GZIP_OUTPUT))
            except zlib.error:
                return len(data)
            if not rest or size > limit:
                return len(data)
            rest = member.unconsumed_tail
        end = min(at, len(data)) - len(member.unused_data)
    return end or len(data)


def _has_gzip_header(data: memoryview, at: int) -> bool:
    """Return whether a complete and valid gzip header starts at ``at``."""
    header = data[at : at + (1 << 16) + 64]  # an extra field has at most 64 KiB
    if len(header) < 10 or header[:3] != _GZIP_MAGIC:
        return False
    flags, position = header[3], 10
    if flags & _FEXTRA:
        position += 2 + int.from_bytes(header[position : position + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            position = bytes(header).find(0, position) + 1
            if not position:
                return False
    if flags & _FHCRC:
        checksum = int.from_bytes(header[position : position + 2], "little")
        if position + 2 > len(header) or checksum != zlib.crc32(header[:position]) & 0xFFFF:
            return False
    return position <= len(header)


def find_lz4_end(data: memoryview) -> int:
    """Return the end of the first frame; the Java client reads only this frame. Return ``len(data)`` for corrupt data.

    Source: Kafka 3.9 Lz4BlockInputStream.readBlock.
    """
    if len(data) < 7:
        return len(data)
    has_block_checksums, has_size, has_checksum = data[4] & 0x10, data[4] & 0x08, data[4] & 0x04
    at = 15 if has_size else 7
    while at + 4 <= len(data):
        size = _BLOCK_SIZE.unpack_from(data, at)[0] & 0x7FFFFFFF  # the highest bit marks uncompressed blocks
        at += 4
        if not size:
            return min(at + (4 if has_checksum else 0), len(data))
        at += size + (4 if has_block_checksums else 0)
    return len(data)


def find_zstd_end(data: memoryview) -> int:
    """Return the end of the last complete frame if an incomplete frame follows, otherwise ``len(data)``.

    Source: zstd-jni 1.5 ZstdInputStreamNoFinalizer.readInternal.
    """
    end = 0
    while end < len(data):
        following = _find_zstd_frame_end(data, end)
        if following < 0:
            return len(data)
        if following > len(data):
            break
        end = following
    return end or len(data)


def _find_zstd_frame_end(data: memoryview, at: int) -> int:
    """Return the end of a frame, which is beyond ``len(data)`` if the frame is incomplete; -1 if it is corrupt."""
    magic, incomplete = bytes(data[at : at + 4]), len(data) + 1
    if magic[1:] == b"\x2a\x4d\x18"[: len(magic) - 1] and magic[0] & 0xF0 == 0x50:  # a skippable frame
        size = bytes(data[at + 4 : at + 8])
        return at + 8 + int.from_bytes(size, "little") if len(size) == 4 else incomplete
    if magic != _ZSTD_MAGIC[: len(magic)]:
        return -1
    if at + 5 > len(data):
        return incomplete
    descriptor = data[at + 4]
    if descriptor & _RESERVED_BIT:
        return -1
    is_single_segment = descriptor >> 5 & 1
    at += 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + (is_single_segment, 2, 4, 8)[descriptor >> 6]
    is_last = 0
    while not is_last:
        if at + 3 > len(data):
            return incomplete
        block = int.from_bytes(data[at : at + 3], "little")
        is_last, kind = block & 1, block >> 1 & 3
        if kind == _RESERVED_BLOCK:
            return -1
        at += 3 + (1 if kind == _RLE_BLOCK else block >> 3)
    return at + (4 if descriptor >> 2 & 1 else 0)
