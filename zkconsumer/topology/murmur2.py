"""The hash function of the Java producer's default partitioner."""

from __future__ import annotations

import struct


def murmur2(data: bytes) -> int:
    """Return the murmur2 hash of ``data`` as an unsigned 32-bit integer. Source: Kafka 3.9 Utils.murmur2."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
