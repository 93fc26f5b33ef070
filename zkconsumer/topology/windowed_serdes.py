"""Serdes for windowed keys, which are ``Windowed`` objects.

Source: Kafka 3.9 TimeWindowedSerializer, SessionWindowedSerializer and WindowedStreamPartitioner.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Self

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.durations import Milliseconds, milliseconds
from zkconsumer.topology.declared.nodes import Partitioner
from zkconsumer.topology.murmur2 import murmur2
from zkconsumer.topology.serdes import Codec, Serde, Serializer, choose_serde, serializer_codec
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.type_variables import K

_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")


@dataclass(frozen=True)
class WindowedKeys:
    """Base class of the callables that serialize, deserialize and partition windowed keys.

    Attributes:
        inner: serde of the inner keys; None uses the application's default.
    """

    inner: Serde | None

    def with_default(self, default: Serde) -> Self:
        """Return a copy that uses ``default`` if ``inner`` is None."""
        return replace(self, inner=choose_serde(self.inner, default))

    def _serialize(self, topic: str, key: Any) -> bytes:
        assert self.inner is not None
        return self.inner.serialize(topic, key) or b""

    def _deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        return self.inner.deserialize(topic, data)


@dataclass(frozen=True)
class SerializeTimeWindowed(WindowedKeys):
    """Serializes a windowed key as the inner key, followed by the 8-byte window start."""

    def __call__(self, topic: str, windowed: Windowed | None) -> bytes | None:
        """Return the serialized key, or None if ``windowed`` is None."""
        return None if windowed is None else self._serialize(topic, windowed.key) + _TIME.pack(windowed.start)


@dataclass(frozen=True)
class DeserializeTimeWindowed(WindowedKeys):
    """Deserializes a key that was serialized by ``SerializeTimeWindowed``. ``size_ms`` is the window size."""

    size_ms: int

    def __call__(self, topic: str, data: bytes | None) -> Windowed | None:
        """Return the windowed key, or None if ``data`` is empty or None."""
        if not data:
            return None
        (start,) = _TIME.unpack(data[-8:])
        return Windowed(self._deserialize(topic, data[:-8]), start, start + self.size_ms)


@dataclass(frozen=True)
class SerializeSessionWindowed(WindowedKeys):
    """Serializes a windowed key as the inner key, followed by the 8-byte session end and the 8-byte session start."""

    def __call__(self, topic: str, windowed: Windowed | None) -> bytes | None:
        """Return the serialized key, or None if ``windowed`` is None."""
        if windowed is None:
            return None
        return self._serialize(topic, windowed.key) + _TIMES.pack(windowed.end, windowed.start)


@dataclass(frozen=True)
class DeserializeSessionWindowed(WindowedKeys):
    """Deserializes a key that was serialized by ``SerializeSessionWindowed``."""

    def __call__(self, topic: str, data: bytes | None) -> Windowed | None:
        """Return the windowed key, or None if ``data`` is empty or None."""
        if not data:
            return None
        end, start = _TIMES.unpack(data[-16:])
        return Windowed(self._deserialize(topic, data[:-16]), start, end)


@check_arguments
def time_windowed(inner: Serde[K] | None, size_ms: Milliseconds) -> Serde[Windowed[K]]:
    """Return a serde for the keys of time windows and sliding windows.

    Args:
        inner: serde of the inner keys; None uses the application's default.
        size_ms: window size, in milliseconds or as a ``timedelta``.
    """
    return Serde(SerializeTimeWindowed(inner), DeserializeTimeWindowed(inner, milliseconds(size_ms)))


@check_arguments
def session_windowed(inner: Serde[K] | None) -> Serde[Windowed[K]]:
    """Return a serde for the keys of session windows.

    Args:
        inner: serde of the inner keys; None uses the application's default.
    """
    return Serde(SerializeSessionWindowed(inner), DeserializeSessionWindowed(inner))


@dataclass(frozen=True)
class PartitionByInnerKey(WindowedKeys):
    """A partitioner that sends all windows of a key to the partition of the inner key."""

    def __call__(self, topic: str, windowed: Any, _value: Any, partitions: int) -> int:
        """Return the partition that the Java producer's default partitioner selects for the inner key."""
        return (murmur2(self._serialize(topic, windowed.key)) & 0x7FFFFFFF) % partitions


def find_partitioner(key: Serde | None) -> Partitioner | None:
    """Return the partitioner of a sink with key serde ``key``, or None to use the producer's partitioner."""
    serialize = None if key is None else key.serialize
    if isinstance(serialize, SerializeTimeWindowed | SerializeSessionWindowed):
        return PartitionByInnerKey(serialize.inner)
    return None


def key_codec(serialize: Serializer) -> int:
    """Return the codec of a sink's key serializer, including those of this module; ``Codec.OTHER`` if there is none."""
    window = _WINDOW_CODECS.get(type(serialize))
    if window is None:
        return serializer_codec(serialize)
    assert isinstance(serialize, WindowedKeys)
    assert serialize.inner is not None
    inner = serializer_codec(serialize.inner.serialize)
    return Codec.OTHER if inner is Codec.OTHER else inner + window


_WINDOW_CODECS: dict[type, Codec] = {
    SerializeTimeWindowed: Codec.TIME_WINDOWED,
    SerializeSessionWindowed: Codec.SESSION_WINDOWED,
}
