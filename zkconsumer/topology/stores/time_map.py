"""``TimeMap``, which stores objects by key and time (pure-Python version of the class in ``_pages.c``)."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, Generic, NamedTuple

from zkconsumer.topology.stores.pages import PagedMap
from zkconsumer.topology.stores.serde_map import Conversions
from zkconsumer.topology.type_variables import K

#: Maximum time, in milliseconds, and maximum segment number.
MAX_TIME = (1 << 63) - 1

#: Size of an encoded segment number or timestamp, in bytes.
_NUMBER_BYTES = 8


class Windowed(NamedTuple, Generic[K]):
    """A key with its window's start and end, in milliseconds. Window ends are exclusive, session ends inclusive."""

    key: K
    start: int
    end: int


class TimeMap:
    """An object map whose keys have four parts: segment number, serialized key, time, and a final number, ``second``.

    The final number is a sequence number or a session start. All numbers must be between 0 and ``MAX_TIME``, and
    ``second`` must also fit in ``second_bytes`` bytes. All arguments are positional.

    Args:
        entries: byte map that contains the entries.
        conversions: key and value conversions.
        deserialize_key: function that deserializes a key.
        second_bytes: size of ``second`` in bytes: 4 or 8.
    """

    __slots__ = ("_conversions", "_deserialize_key", "_entries", "_second_bytes")

    def __init__(
        self,
        entries: PagedMap,
        conversions: Conversions,
        deserialize_key: Callable[[bytes], Any],
        second_bytes: int,
    ) -> None:
        if second_bytes not in (4, 8):
            raise ValueError(f"second_bytes must be 4 or 8, got {second_bytes}")
        self._entries, self._conversions = entries, conversions
        self._deserialize_key, self._second_bytes = deserialize_key, second_bytes

    def encode_key(self, segment: int, key: Any, time_ms: int, second: int) -> bytes:
        """Return the byte map key that consists of the given parts.

        Raises:
            OverflowError: a number is negative or too large.
        """
        last = _pack(second, self._second_bytes)
        raw_key = self._conversions.serialize_key(key)
        return _pack(segment) + raw_key + _pack(time_ms) + last

    def get(self, segment: int, key: Any, time_ms: int, second: int) -> Any:
        """Return the value stored under this key, or None if there is none; for the key parts, see ``TimeMap``."""
        data = self._entries.get(self.encode_key(segment, key, time_ms, second))
        return None if data is None else self._conversions.deserialize_value(data)

    def put(self, segment: int, key: Any, time_ms: int, second: int, value: Any) -> None:
        """Set the value stored under this key; None deletes it. For the key parts, see ``TimeMap``."""
        raw_key = self.encode_key(segment, key, time_ms, second)
        data = None if value is None else self._conversions.serialize_value(value)
        if data is None:
            self._entries.delete(raw_key)
        else:
            self._entries.put(raw_key, data)

    def find_sessions(
        self, segment: int, key: Any, first_ms: int, last_ms: int, latest_start_ms: int, reverse: bool
    ) -> list[tuple[Windowed, Any]]:
        """Return the sessions of ``key`` in ``segment`` that end between ``first_ms`` and ``last_ms``, inclusive.

        Args:
            segment: segment number.
            key: session key.
            first_ms: lowest session end, in milliseconds. The end is the time part of the map key.
            last_ms: highest session end, in milliseconds.
            latest_start_ms: highest session start, in milliseconds. The start is the last part of the map key.
            reverse: whether to return the sessions in descending order.
        """
        if self._second_bytes != _NUMBER_BYTES:
            raise TypeError("find_sessions() requires second_bytes=8")
        latest_start_ms = index(latest_start_ms)
        start = self.encode_key(segment, key, first_ms, 0)
        stop = self.encode_key(segment, key, last_ms, MAX_TIME) + b"\0"
        found = self._entries.scan(start, stop, bool(reverse))
        return select_sessions(found, len(start), latest_start_ms, self._deserialize_key, self._conversions)


def select_sessions(
    found: list[tuple[bytes, bytes]],
    key_bytes: int,
    latest_start_ms: int,
    deserialize_key: Callable[[bytes], Any],
    conversions: Conversions,
) -> list[tuple[Windowed, Any]]:
    """Decode the sessions of one key from a range scan.

    The scan can also return entries of longer keys that start with this key; they are skipped.

    Args:
        found: scanned entries.
        key_bytes: length of an encoded map key that contains this session key, in bytes.
        latest_start_ms: highest session start, in milliseconds. Sessions that start later are skipped.
        deserialize_key: function that deserializes a key.
        conversions: key and value conversions.
    """
    sessions = []
    for raw, data in found:
        start = int.from_bytes(raw[-_NUMBER_BYTES:], "big")
        if len(raw) == key_bytes and start <= latest_start_ms:
            end = int.from_bytes(raw[-2 * _NUMBER_BYTES : -_NUMBER_BYTES], "big")
            value = conversions.deserialize_value(data)
            key = deserialize_key(raw[_NUMBER_BYTES : -2 * _NUMBER_BYTES])
            sessions.append((Windowed(key, start, end), value))
    return sessions


def _pack(number: int, size: int = _NUMBER_BYTES) -> bytes:
    if not 0 <= index(number) <= min((1 << 8 * size) - 1, MAX_TIME):
        raise OverflowError(f"{number} does not fit in {size} bytes")
    return index(number).to_bytes(size, "big")
