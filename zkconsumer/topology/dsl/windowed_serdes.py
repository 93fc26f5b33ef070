"""Serdes of windowed keys, which are ``Windowed`` objects.

Source: Kafka 3.9 TimeWindowedSerializer, SessionWindowedSerializer and WindowedStreamPartitioner.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Self

from zkconsumer.topology.nodes import Partitioner
from zkconsumer.topology.serdes import Serde, choose_serde
from zkconsumer.topology.stores.time_map import Windowed

_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")


@dataclass(frozen=True)
class WindowedKeys:
    """A conversion of windowed keys.

    Attributes:
        inner: serde of the keys; None for that of the application.
    """

    inner: Serde | None

    def with_default(self, default: Serde) -> Self:
        """Return a conversion with another serde of the keys, if there is none."""
        return replace(self, inner=choose_serde(self.inner, default))

    def _serialize(self, topic: str, key: Any) -> bytes:
        assert self.inner is not None
        return self.inner.serialize(topic, key) or b""

    def _deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        return self.inner.deserialize(topic, data)


@dataclass(frozen=True)
class SerializeTimeWindowed(WindowedKeys):
    """Serializes the key, followed by the start of the window in 8 bytes."""

    def __call__(self, topic: str, windowed: Windowed | None) -> bytes | None:
        """Return the bytes."""
        return None if windowed is None else self._serialize(topic, windowed.key) + _TIME.pack(windowed.start)


@dataclass(frozen=True)
class DeserializeTimeWindowed(WindowedKeys):
    """Reverses ``SerializeTimeWindowed`` for windows of a size in milliseconds."""

    size_ms: int

    def __call__(self, topic: str, data: bytes | None) -> Windowed | None:
        """Return the object."""
        if not data:
            return None
        (start,) = _TIME.unpack(data[-8:])
        return Windowed(self._deserialize(topic, data[:-8]), start, start + self.size_ms)


@dataclass(frozen=True)
class SerializeSessionWindowed(WindowedKeys):
    """Serializes the key, followed by end and start of the session in 8 bytes each."""

    def __call__(self, topic: str, windowed: Windowed | None) -> bytes | None:
        """Return the bytes."""
        if windowed is None:
            return None
        return self._serialize(topic, windowed.key) + _TIMES.pack(windowed.end, windowed.start)


@dataclass(frozen=True)
class DeserializeSessionWindowed(WindowedKeys):
    """Reverses ``SerializeSessionWindowed``."""

    def __call__(self, topic: str, data: bytes | None) -> Windowed | None:
        """Return the object."""
        if not data:
            return None
        end, start = _TIMES.unpack(data[-16:])
        return Windowed(self._deserialize(topic, data[:-16]), start, end)


def time_windowed(inner: Serde | None, size_ms: int) -> Serde:
    """Return a serde of keys of time windows and sliding windows.

    Args:
        inner: serde of the keys; None for that of the application.
        size_ms: milliseconds of a window.
    """
    return Serde(SerializeTimeWindowed(inner), DeserializeTimeWindowed(inner, size_ms))


def session_windowed(inner: Serde | None) -> Serde:
    """Return a serde of keys of session windows.

    Args:
        inner: serde of the keys; None for that of the application.
    """
    return Serde(SerializeSessionWindowed(inner), DeserializeSessionWindowed(inner))


@dataclass(frozen=True)
class PartitionByInnerKey(WindowedKeys):
    """A partitioner that sends all windows of a key to the partition of the key."""

    def __call__(self, topic: str, windowed: Any, _value: Any, partitions: int) -> int:
        """Return the partition that the default partitioner of Kafka's Java producer selects for the key."""
        return (murmur2(self._serialize(topic, windowed.key)) & 0x7FFFFFFF) % partitions


def find_partitioner(key: Serde | None) -> Partitioner | None:
    """Return the partitioner of a sink with this key serde, or None for the producer's choice."""
    serialize = None if key is None else key.serialize
    if isinstance(serialize, SerializeTimeWindowed | SerializeSessionWindowed):
        return PartitionByInnerKey(serialize.inner)
    return None


def murmur2(data: bytes) -> int:
    """Return the hash of a key as an unsigned integer of 32 bits. Source: Kafka 3.9 Utils.murmur2."""
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
