"""The serde for table changes in repartition topics.

Source: Kafka 3.9 ChangedSerializer and ChangedDeserializer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.function_names import function_name
from zkconsumer.topology.serdes import Deserializer, Serde, Serializer, choose_deserializer, choose_serializer

#: Last byte of a serialized change, which indicates the values that the change contains.
_OLD, _NEW, _BOTH = b"\0", b"\1", b"\2"


@dataclass(frozen=True, repr=False)
class SerializeChange:
    """Serializes a table change.

    Args:
        inner: value serializer; None uses the application's default.
    """

    inner: Serializer | None

    def __repr__(self) -> str:
        return f"SerializeChange({function_name(self.inner)})"  # part of the topology fingerprint

    def with_default(self, default: Serde) -> SerializeChange:
        """Return a copy that uses the serializer of ``default`` if ``inner`` is None."""
        return SerializeChange(choose_serializer(self.inner, default))

    def __call__(self, topic: str, change: TableChange | None) -> bytes | None:
        """Return the serialized change, or None if ``change`` is None.

        If both values are present, the data starts with the new value's length, followed by the new value and the old
        value. Otherwise, it starts with the only value that is present. The last byte indicates which values are
        present.

        Raises:
            StreamsError: both values are None.
        """
        if change is None:
            return None
        assert self.inner is not None
        new = None if change.new is None else self.inner(topic, change.new)
        old = None if change.old is None else self.inner(topic, change.old)
        if new is not None and old is not None:
            return _pack_length(len(new)) + new + old + _BOTH
        if new is not None:
            return new + _NEW
        if old is not None:
            return old + _OLD
        raise StreamsError(f"topic {topic!r}: a table change must have a new or an old value")


@dataclass(frozen=True, repr=False)
class DeserializeChange:
    """Deserializes a table change that was serialized by ``SerializeChange``.

    Args:
        inner: value deserializer; None uses the application's default.
    """

    inner: Deserializer | None

    def __repr__(self) -> str:
        return f"DeserializeChange({function_name(self.inner)})"

    def with_default(self, default: Serde) -> DeserializeChange:
        """Return a copy that uses the deserializer of ``default`` if ``inner`` is None."""
        return DeserializeChange(choose_deserializer(self.inner, default))

    def __call__(self, topic: str, data: bytes | None) -> TableChange | None:
        """Return the deserialized change, or None if ``data`` is None.

        Raises:
            StreamsError: ``data`` is malformed.
        """
        if data is None:
            return None
        kind, body = data[-1:], data[:-1]
        if kind == _OLD:
            return TableChange(None, self._decode(topic, body))
        if kind == _NEW:
            return TableChange(self._decode(topic, body))
        if kind != _BOTH:
            raise StreamsError(
                f"topic {topic!r}: malformed table change: the last byte must be 0, 1 or 2, got {kind!r}"
            )
        length, start = _unpack_length(topic, body)
        middle = start + length
        return TableChange(self._decode(topic, body[start:middle]), self._decode(topic, body[middle:]))

    def _decode(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        return self.inner(topic, data)


def create_change_serde(serde: Serde | None) -> Serde:
    """Return a serde for table changes; if ``serde`` is None, values use the application's default serde."""
    if serde is None:
        return Serde(SerializeChange(None), DeserializeChange(None))
    return Serde(SerializeChange(serde.serialize), DeserializeChange(serde.deserialize))


def _pack_length(length: int) -> bytes:
    """Encode a non-negative length as a varint, in the format of Kafka's ``ByteUtils.writeVarint``."""
    rest, packed = length << 1, bytearray()
    while rest > 0x7F:
        packed.append(rest & 0x7F | 0x80)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)


def _unpack_length(topic: str, data: bytes) -> tuple[int, int]:
    """Decode the varint at the start of ``data``, and return its value and its size in bytes."""
    value = shift = 0
    for position, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1, position + 1
        shift += 7
    raise StreamsError(f"topic {topic!r}: malformed table change: truncated length prefix in {data[:40]!r}")
