"""Objects by key and time in a byte map, in Python; ``_pages.c`` has the same class."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

from zkconsumer.topology.stores.pages import PagedMap
from zkconsumer.topology.stores.serde_map import Conversions

#: The latest time, in milliseconds, and the largest number of a segment.
MAX_TIME = (1 << 63) - 1

#: Bytes of a segment's number, and of a time.
_NUMBER_BYTES = 8


class Windowed(NamedTuple):
    """A key, and start and end of a window in milliseconds. The end of a session is inclusive, others are exclusive."""

    key: Any
    start: int
    end: int


class TimeMap:
    """An object map with keys of four parts: the number of a segment, a key, a time and a second number.

    Arguments are positional. The numbers must not be negative, and must fit in 8 bytes, or ``second_bytes``.

    Args:
        entries: the byte map.
        conversions: conversions of keys and values.
        deserialize_key: returns the object of a serialized key.
        second_bytes: bytes of the second number, 4 or 8.
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
        """Return the key in the byte map.

        Raises:
            OverflowError: a number is negative or too large.
        """
        last = _pack(second, self._second_bytes)
        raw_key = self._conversions.serialize_key(key)
        return _pack(segment) + raw_key + _pack(time_ms) + last

    def get(self, segment: int, key: Any, time_ms: int, second: int) -> Any:
        """Return a value, or None."""
        data = self._entries.get(self.encode_key(segment, key, time_ms, second))
        return None if data is None else self._conversions.deserialize_value(data)

    def put(self, segment: int, key: Any, time_ms: int, second: int, value: Any) -> None:
        """Set a value; None deletes it."""
        raw_key = self.encode_key(segment, key, time_ms, second)
        data = None if value is None else self._conversions.serialize_value(value)
        if data is None:
            self._entries.delete(raw_key)
        else:
            self._entries.put(raw_key, data)

    def find_sessions(
        self, segment: int, key: Any, first_ms: int, last_ms: int, latest_start_ms: int, reverse: bool
    ) -> list[tuple[Windowed, Any]]:
        """Return the sessions of a key in a segment whose time, the end, is from ``first_ms`` to ``last_ms``.

        Args:
            segment: number of the segment.
            key: the key.
            first_ms: the first end.
            last_ms: the last end.
            latest_start_ms: the latest start, which is the second number.
            reverse: whether the last session comes first.
        """
        if self._second_bytes != _NUMBER_BYTES:
            raise TypeError("the second number of a session needs 8 bytes")
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
    """Return the sessions of one key in a range of entries between keys of sessions of that key.

    Entries of longer keys that start with the key can lie between them.

    Args:
        found: the entries.
        key_bytes: bytes of the keys of the sessions.
        latest_start_ms: later sessions are skipped.
        deserialize_key: returns the object of a serialized key.
        conversions: conversions of values.
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
