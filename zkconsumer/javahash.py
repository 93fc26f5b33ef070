"""Java's hash of a text, which decides who gets a partition and which fetcher reads it."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of ASCII text: signed 32 bits."""
    value = 0
    for unit in text:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return signed32(value)


def signed32(value: int) -> int:
    """Return the low 32 bits as Java's ``int`` has them."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
