"""Session stores.

Source: Kafka 3.9 org.apache.kafka.streams.state.SessionStore and its RocksDB implementation (RocksDBSessionStore,
SessionKeySchema).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar

from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.key_value_store import next_prefix
from zkconsumer.topology.stores.segments import TimedStore, check_session, segment_interval_ms
from zkconsumer.topology.stores.time_map import MAX_TIME, Windowed

_SUFFIX = struct.Struct(">QQ")

V = TypeVar("V")


class SessionStore(TimedStore, Generic[V]):
    """Stores aggregates by key and session until they expire.

    An aggregate expires ``retention_ms`` after the end of its session. A put is dropped and counted if all entries of
    its segment have expired; see ``WindowStore``. ``find_sessions`` reads the pages of the key's sessions that end at
    ``earliest_end_ms`` or later. ``find_sessions_of_keys`` reads the pages of the key range in each segment, starting
    with the segment of ``earliest_end_ms``.

    Args:
        name: name of the store.
        retention_ms: retention period, in milliseconds.
        serdes: key and aggregate serdes.
        is_persistent: see ``StateStore``.
    """

    SECOND_BYTES: ClassVar[int] = 8  # the last key part is the session start

    def __init__(self, name: str, retention_ms: int, serdes: tuple[Serde, Serde], is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent, retention_ms, segment_interval_ms(retention_ms))

    def put(self, session: Windowed, aggregate: V | None) -> None:
        """Set the aggregate of a session; None deletes the session.

        Raises:
            ValueError: a time is negative or not an integer, or the session ends before its start.
        """
        key, start_ms, end_ms = session
        if not (type(start_ms) is type(end_ms) is int and 0 <= start_ms <= end_ms):
            check_session(self.name, start_ms, end_ms)
        self._put(key, end_ms, start_ms, aggregate)

    def remove(self, session: Windowed) -> None:
        """Delete a session."""
        key, start_ms, end_ms = session
        if not (type(start_ms) is type(end_ms) is int and 0 <= start_ms <= end_ms):
            check_session(self.name, start_ms, end_ms)
        self._delete(key, end_ms, start_ms)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> V | None:
        """Return the aggregate of a session, or None if there is none."""
        if start_ms < 0:
            return None
        check_session(self.name, start_ms, end_ms)
        return self._get(key, end_ms, start_ms)  # type: ignore[no-any-return]

    def find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, V]]:
        """Return the sessions of ``key`` in a time range, sorted by end.

        The range contains the sessions that end at ``earliest_end_ms`` or later, and start at ``latest_start_ms`` or
        earlier.
        """
        latest_end_ms = self._segments.stream_time_ms
        first_ms = latest_end_ms - self._retention_ms + 1
        first_ms = max(earliest_end_ms, first_ms if first_ms > 0 else 0)
        first, last = first_ms // self._interval_ms, latest_end_ms // self._interval_ms
        find = self._objects.find_sessions
        if first == last:
            return iter(find(first, key, first_ms, latest_end_ms, latest_start_ms, reverse))
        self._serialize_key(key)  # raises an error if the key has the wrong type, even if there is no segment to search
        numbers = range(first, last + 1)[:: -1 if reverse else 1]
        found = [find(number, key, first_ms, latest_end_ms, latest_start_ms, reverse) for number in numbers]
        return chain.from_iterable(found)

    def find_sessions_of_keys(
        self, first: Any, last: Any, earliest_end_ms: int, latest_start_ms: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, V]]:
        """Return the sessions of the keys from ``first`` to ``last``, inclusive; None means no bound.

        For the time range, see ``find_sessions``. The sessions are sorted by segment, serialized key, end and start.
        """
        low = b"" if first is None else self._serialize_key(first)
        high = None if last is None else self._serialize_key(last)
        earliest_end_ms = max(earliest_end_ms, self._segments.live_from, 0)
        stop = None if high is None else next_prefix(high + b"\xff" * _SUFFIX.size)
        found = self._segments.scan(earliest_end_ms, MAX_TIME, low, stop, reverse=reverse)
        return self._select(found, low, high, earliest_end_ms, latest_start_ms)

    def first_ended_after(self, end_ms: int) -> int:
        """Return the lowest session end that ``find_ended_sessions`` can return after a put.

        Args:
            end_ms: end of the session that is put, in milliseconds.
        """
        expired_ms = max(end_ms, self._segments.stream_time_ms) - self._retention_ms
        return max(0, expired_ms) // self._interval_ms * self._interval_ms

    def find_ended_sessions(self, first_end_ms: int, last_end_ms: int) -> list[tuple[Windowed, V]]:
        """Return the sessions of all keys that end in a time range, sorted by end, start and serialized key.

        The result includes expired sessions that have not been removed yet.

        Args:
            first_end_ms: lowest session end, inclusive, in milliseconds.
            last_end_ms: highest session end, inclusive, in milliseconds.
        """
        found = self._select(self._segments.scan(first_end_ms, last_end_ms), b"", None, first_end_ms, last_end_ms)
        return sorted(
            (entry for entry in found if entry[0].end <= last_end_ms), key=lambda entry: (entry[0].end, entry[0].start)
        )

    def fetch(self, key: Any, *, reverse: bool = False) -> Iterator[tuple[Windowed, V]]:
        """Return all sessions of ``key``."""
        return self.find_sessions(key, 0, MAX_TIME, reverse=reverse)

    def fetch_keys(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Windowed, V]]:
        """Return all sessions of the keys from ``first`` to ``last``, inclusive; None means no bound."""
        return self.find_sessions_of_keys(first, last, 0, MAX_TIME, reverse=reverse)

    def _select(
        self,
        found: list[tuple[bytes, bytes]],
        low: bytes,
        high: bytes | None,
        earliest_end_ms: int,
        latest_start_ms: int,
    ) -> Iterator[tuple[Windowed, V]]:
        selected = []
        for raw, data in found:
            size = len(raw) - _SUFFIX.size
            end, start = _SUFFIX.unpack_from(raw, size)
            raw_key = raw[:size]
            if end < earliest_end_ms or start > latest_start_ms:
                continue
            if raw_key < low or (high is not None and raw_key > high):
                continue
            session = Windowed(self._deserialize_key(raw_key), start, end)
            selected.append((session, self._deserialize_value(data)))
        return iter(selected)
