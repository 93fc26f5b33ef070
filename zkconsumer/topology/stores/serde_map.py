"""The object map: objects by key in a byte map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zkconsumer.topology.stores.pages import PagedMap


class Conversions(NamedTuple):
    """Conversions between objects and bytes.

    Attributes:
        serialize_key: returns bytes, or raises an error that names the store.
        serialize_value: the same for values; None deletes the key.
        deserialize_value: returns the value, or raises an error that names the store.
        codecs: the ``serdes.Codec`` of each function; with ``Codec.TIMESTAMPED`` added, values are
            ``ValueAndTimestamp``.
    """

    serialize_key: Callable[[Any], bytes]
    serialize_value: Callable[[Any], bytes | None]
    deserialize_value: Callable[[bytes], Any]
    codecs: tuple[int, int, int]


class SerdeMap:
    """An object map: objects by key in a byte map.

    Args:
        entries: the byte map.
        conversions: conversions of keys and values.
    """

    __slots__ = ("_deserialize_value", "_entries", "_serialize_key", "_serialize_value")

    def __init__(self, entries: PagedMap, conversions: Conversions) -> None:
        self._entries = entries
        self._serialize_key, self._serialize_value, self._deserialize_value, _ = conversions

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        data = self._entries.get(self._serialize_key(key))
        return None if data is None else self._deserialize_value(data)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it."""
        raw_key = self._serialize_key(key)
        data = None if value is None else self._serialize_value(value)
        if data is None:
            self._entries.delete(raw_key)
        else:
            self._entries.put(raw_key, data)

    def delete(self, key: Any) -> Any:
        """Delete a key, and return its value, or None."""
        data = self._entries.delete(self._serialize_key(key))
        return None if data is None else self._deserialize_value(data)
