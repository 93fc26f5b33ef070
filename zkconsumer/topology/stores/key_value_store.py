"""Key-value stores, with and without timestamps.

Source: Kafka 3.9 org.apache.kafka.streams.state.KeyValueStore and TimestampedKeyValueStore.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from zkconsumer.topology.errors import WrongTypeError
from zkconsumer.topology.serdes import Codec, Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.native import PagedMap, SerdeMap
from zkconsumer.topology.stores.serde_map import Conversions

V = TypeVar("V")

_TIMESTAMP = struct.Struct(">q")


class ValueAndTimestamp(NamedTuple):
    """A value and its timestamp, in milliseconds since the epoch."""

    value: Any
    timestamp: int


class KeyValueStore(SerdeStore, Generic[V]):
    """A key-value store, sorted by serialized key. A value of None means that the key does not exist.

    ``get``, ``put``, ``put_if_absent`` and ``delete`` access one page. ``range`` and ``prefix_scan`` read the pages of
    the key range, and ``all`` reads the whole store; they return a snapshot that later changes do not affect.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent)
        self._map: PagedMap
        self._objects: SerdeMap

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        self._map = context.byte_map(self.name)
        self._objects = SerdeMap(self._map, self._conversions())

    def get(self, key: Any) -> V | None:
        """Return the value of ``key``, or None if there is none."""
        return self._objects.get(key)  # type: ignore[no-any-return]

    def put(self, key: Any, value: V | None) -> None:
        """Set the value of ``key``; None deletes the key."""
        self._objects.put(key, value)

    def put_if_absent(self, key: Any, value: V | None) -> V | None:
        """Set the value of ``key`` if it has none. Return the previous value, or None if there was none."""
        self._map.require_writable()
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[Any, V | None]]) -> None:
        """Put several entries, in order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> V | None:
        """Delete ``key``, and return its value, or None if there was none."""
        return self._objects.delete(key)  # type: ignore[no-any-return]

    def range(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, V]]:
        """Return the entries from ``first`` to ``last``, inclusive; None means no bound."""
        start = b"" if first is None else self._serialize_key(first)
        stop = None if last is None else self._serialize_key(last) + b"\0"
        return self._decode_entries(self._map.scan(start, stop, reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Any, V]]:
        """Return all entries."""
        return self._decode_entries(self._map.scan(reverse=reverse))

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[Any, V]]:
        """Return the entries whose serialized key starts with ``prefix``."""
        return self._decode_entries(self._map.scan(prefix, next_prefix(prefix)))

    def approximate_num_entries(self) -> int:
        """Return the number of keys. The number is exact unless the store is cached."""
        return len(self._map)

    def _decode_entries(self, found: list[tuple[bytes, bytes]]) -> Iterator[tuple[Any, V]]:
        return ((self._deserialize_key(key), self._decode_value(data)) for key, data in found)

    def _conversions(self) -> Conversions:
        return Conversions(self._serialize_key, self._encode_value, self._decode_value, self._codecs)

    def _decode_value(self, data: bytes) -> V:
        return self._deserialize_value(data)  # type: ignore[no-any-return]

    def _encode_value(self, value: V) -> bytes | None:
        return self._serialize_value(value)


class TimestampedKeyValueStore(KeyValueStore[ValueAndTimestamp]):
    """A key-value store of ``ValueAndTimestamp``. A ``ValueAndTimestamp`` whose value is None deletes the key."""

    def _conversions(self) -> Conversions:
        key, serialize, deserialize = self._codecs
        codecs = (key, serialize + Codec.TIMESTAMPED, deserialize + Codec.TIMESTAMPED)
        return super()._conversions()._replace(codecs=codecs)

    def _decode_value(self, data: bytes) -> ValueAndTimestamp:
        return decode_timestamped(data, self._deserialize_value)

    def _encode_value(self, value: ValueAndTimestamp) -> bytes | None:
        checked = none_if_empty(self.name, value)
        return None if checked is None else encode_timestamped(checked, self._serialize_value)


def none_if_empty(store: str, value: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
    """Return ``value``, or None if ``value`` or ``value.value`` is None.

    Raises:
        TypeError: ``value`` is not a ``ValueAndTimestamp`` with a 64-bit integer timestamp.
    """
    if value is None:
        return None
    if not isinstance(value, ValueAndTimestamp) or not isinstance(value.timestamp, int):
        raise WrongTypeError(
            f"store {store!r}: the value must be ValueAndTimestamp(value, milliseconds), got {value!r}"
        )
    if value.value is None:
        return None
    if not -1 << 63 <= value.timestamp < 1 << 63:
        raise WrongTypeError(f"store {store!r}: the timestamp must be a 64-bit integer, got {value.timestamp}")
    return value


def decode_timestamped(data: bytes, deserialize: Callable[[bytes], Any]) -> ValueAndTimestamp:
    """Decode a value and timestamp that were encoded by ``encode_timestamped``."""
    return ValueAndTimestamp(deserialize(data[8:]), _TIMESTAMP.unpack_from(data)[0])


def encode_timestamped(value: ValueAndTimestamp, serialize: Callable[[Any], bytes]) -> bytes:
    """Encode a value and its timestamp."""
    return _TIMESTAMP.pack(value.timestamp) + serialize(value.value)


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest key that is greater than all keys starting with ``prefix``; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
