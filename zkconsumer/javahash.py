"""Java's string hash, which determines the round-robin assignment order and the fetcher of each partition."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` of ASCII text, a signed 32-bit integer."""
    value = 0
    for unit in text:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return signed32(value)


def signed32(value: int) -> int:
    """Return the low 32 bits as a signed integer, like a cast to Java's ``int``."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
