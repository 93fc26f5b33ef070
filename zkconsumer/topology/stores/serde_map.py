"""Object maps, which store serialized objects in a byte map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zkconsumer.topology.stores.pages import PagedMap


class Conversions(NamedTuple):
    """Functions that convert keys and values to bytes and back.

    Attributes:
        serialize_key: function that returns the serialized key, or raises an error that contains the store name.
        serialize_value: like ``serialize_key``, but for values. A result of None deletes the key.
        deserialize_value: function that returns the value, or raises an error that contains the store name.
        codecs: the ``serdes.Codec`` of each function. ``Codec.TIMESTAMPED`` is added if the values are
            ``ValueAndTimestamp``.
    """

    serialize_key: Callable[[Any], bytes]
    serialize_value: Callable[[Any], bytes | None]
    deserialize_value: Callable[[bytes], Any]
    codecs: tuple[int, int, int]


class SerdeMap:
    """An object map, which stores serialized objects in a byte map.

    Args:
        entries: byte map that contains the entries.
        conversions: key and value conversions.
    """

    __slots__ = ("_deserialize_value", "_entries", "_serialize_key", "_serialize_value")

    def __init__(self, entries: PagedMap, conversions: Conversions) -> None:
        self._entries = entries
        self._serialize_key, self._serialize_value, self._deserialize_value, _ = conversions

    def get(self, key: Any) -> Any:
        """Return the value of ``key``, or None if there is none."""
        data = self._entries.get(self._serialize_key(key))
        return None if data is None else self._deserialize_value(data)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of ``key``; None deletes the key."""
        raw_key = self._serialize_key(key)
        data = None if value is None else self._serialize_value(value)
        if data is None:
            self._entries.delete(raw_key)
        else:
            self._entries.put(raw_key, data)

    def delete(self, key: Any) -> Any:
        """Delete ``key``, and return its value, or None if there was none."""
        data = self._entries.delete(self._serialize_key(key))
        return None if data is None else self._deserialize_value(data)
