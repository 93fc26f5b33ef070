"""Stores whose entries expire one time segment at a time.

A segment is a time range. Each key starts with its segment number, so the keys of a segment form one key range. An
expired segment is therefore removed with one operation, even if its keys are never accessed again.

Source: Kafka 3.9 AbstractRocksDBSegmentedBytesStore and AbstractSegments.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Protocol

from zkconsumer.topology.errors import InvalidArgumentError
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.native import TimeMap
from zkconsumer.topology.stores.pages import PagedMap
from zkconsumer.topology.stores.serde_map import Conversions
from zkconsumer.topology.stores.time_map import Windowed

#: Format of the segment number at the start of each key.
SEGMENT = struct.Struct(">Q")
_STATE = struct.Struct("<qI")

#: Key under which the stream time and the sequence number are saved. It is greater than the keys of all segments.
_STATE_KEY = b"\xff" * 9


def segment_interval_ms(retention_ms: int) -> int:
    """Return the segment interval of a window or session store, in milliseconds."""
    return max(retention_ms // 2, 60_000)


def check_time(store: str, start_ms: int) -> None:
    """Check the time of an entry.

    Raises:
        ValueError: the time is negative or not an integer.
    """
    if not isinstance(start_ms, int) or start_ms < 0:
        raise InvalidArgumentError(f"store {store!r}: a time must be a non-negative integer, got {start_ms!r}")


def check_session(store: str, start_ms: int, end_ms: int) -> None:
    """Check the start and the end of a session.

    Raises:
        ValueError: a time is negative or not an integer, or the end is before the start.
    """
    check_time(store, start_ms)
    if not isinstance(end_ms, int) or end_ms < start_ms:
        raise InvalidArgumentError(
            f"store {store!r}: the end must be an integer greater than or equal to the start {start_ms}, got {end_ms!r}"
        )


class SegmentedMap:
    """A byte map whose entries expire one segment at a time.

    Args:
        entries: byte map of the store.
        retention_ms: retention period, in milliseconds.
        interval_ms: segment interval, in milliseconds.

    Attributes:
        stream_time_ms: stream time, which is the highest entry time, in milliseconds; -1 before the first entry.
        first_writable: number of the first segment that accepts entries.
    """

    def __init__(self, entries: PagedMap, retention_ms: int, interval_ms: int) -> None:
        self._map = entries
        self._retention_ms, self._interval_ms = retention_ms, interval_ms
        self.load()

    def load(self) -> None:
        """Load the stream time and the sequence number from the map."""
        state = self._map.get(_STATE_KEY)
        time, sequence = _STATE.unpack(state) if state is not None else (-1, 0)
        self.stream_time_ms, self._sequence = int(time), int(sequence)
        self.first_writable = self._first_live = self._segment_number(self.stream_time_ms - self._retention_ms)
        self._is_changed = False

    def save(self) -> None:
        """Save the stream time and the sequence number to the map, if they changed."""
        if self._is_changed:
            self._map.put(_STATE_KEY, _STATE.pack(self.stream_time_ms, self._sequence))
            self._is_changed = False

    def require_writable(self) -> None:
        """Raise an error if the map is read-only."""
        self._map.require_writable()

    @property
    def live_from(self) -> int:
        """The lowest entry time that has not expired, in milliseconds."""
        return self.stream_time_ms - self._retention_ms + 1

    def next_sequence(self) -> int:
        """Return the next sequence number, which distinguishes entries with the same key and time."""
        self._map.require_writable()
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        self._is_changed = True
        return self._sequence

    @property
    def sequence(self) -> int:
        """The last sequence number that ``next_sequence`` returned."""
        return self._sequence

    def put(self, time_ms: int, key: bytes, value: bytes | None) -> bool:
        """Set or delete an entry; return False if its segment has expired."""
        if time_ms > self.stream_time_ms or self._map.is_read_only:
            self.advance_stream_time(time_ms)
        number = time_ms // self._interval_ms
        if number < self._first_live:
            return False
        if value is None:
            self._map.delete(SEGMENT.pack(number) + key)
        else:
            self._map.put(SEGMENT.pack(number) + key, value)
        return True

    def get(self, time_ms: int, key: bytes) -> bytes | None:
        """Return the value of an entry, or None if it does not exist or has expired."""
        if time_ms <= self.stream_time_ms - self._retention_ms:
            return None
        return self._map.get(SEGMENT.pack(time_ms // self._interval_ms) + key)

    def scan(
        self, first_ms: int, last_ms: int, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return the entries of all segments between ``first_ms`` and ``last_ms``, sorted by segment and key.

        Args:
            first_ms: any time in the first segment, in milliseconds.
            last_ms: any time in the last segment, in milliseconds.
            start: lower bound of the keys in each segment, inclusive.
            stop: upper bound of the keys in each segment, exclusive; None for no bound.
            reverse: whether to return the entries in descending order.
        """
        return [(key[8:], value) for key, value in self.scan_segments(first_ms, last_ms, start, stop, reverse)]

    def scan_segments(
        self, first_ms: int, last_ms: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return the result of ``scan``, with each key prefixed with its segment number."""
        found: list[tuple[bytes, bytes]] = []
        for low, high in self.segment_ranges(first_ms, last_ms, start, stop, reverse):
            if not found:
                found = self._map.scan(low, high, reverse)
            else:
                found += self._map.scan(low, high, reverse)
        return found

    def segment_ranges(
        self, first_ms: int, last_ms: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return the lower (inclusive) and upper (exclusive) bound of each key range that ``scan`` reads."""
        if start == b"" and stop is None:
            low, high = SEGMENT.pack(self._segment_number(first_ms)), SEGMENT.pack(self._segment_number(last_ms) + 1)
            return [(low, high)]
        first, last = self._segment_number(first_ms), self._segment_number(min(last_ms, self.stream_time_ms))
        numbers = range(max(first, self._first_live), last + 1)
        ranges = []
        for number in reversed(numbers) if reverse else numbers:
            prefix = SEGMENT.pack(number)
            ranges.append((prefix + start, SEGMENT.pack(number + 1) if stop is None else prefix + stop))
        return ranges

    def advance_stream_time(self, time_ms: int) -> None:
        """Advance stream time, and remove expired segments."""
        if self._map.is_read_only:
            self._map.require_writable()
        if time_ms <= self.stream_time_ms:
            return
        self.stream_time_ms = time_ms
        self._is_changed = True
        first_live = (time_ms - self._retention_ms) // self._interval_ms
        if first_live > self._first_live:
            self._map.discard(b"", SEGMENT.pack(first_live))
            self.first_writable = self._first_live = first_live

    def _segment_number(self, time_ms: int) -> int:
        return time_ms // self._interval_ms if time_ms > 0 else 0


class SegmentedStore(SerdeStore):
    """A store whose entries expire one segment at a time.

    Args:
        name: name of the store.
        serdes: key and value serdes.
        is_persistent: see ``StateStore``.
        retention_ms: retention period, in milliseconds.
        interval_ms: segment interval, in milliseconds.
        details: text to append to the layout.
    """

    def __init__(
        self,
        name: str,
        serdes: tuple[Serde, Serde],
        is_persistent: bool,
        retention_ms: int,
        interval_ms: int,
        details: str = "",
    ) -> None:
        super().__init__(name, serdes, is_persistent, f"{self.default_layout()}, segments of {interval_ms} ms{details}")
        self._retention_ms, self._interval_ms = retention_ms, interval_ms
        self._segments: SegmentedMap
        self._context: StoreContext

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        self._context = context
        self._segments = SegmentedMap(context.byte_map(self.name), self._retention_ms, self._interval_ms)

    def flush(self) -> None:
        """Save the stream time and the sequence number."""
        self._segments.save()

    def rollback(self) -> None:
        """Reload the stream time and the sequence number."""
        self._segments.load()


class TimedObjects(Protocol):
    """The methods of ``TimeMap``, which stores objects by key and time."""

    def get(self, segment: int, key: Any, time_ms: int, second: int, /) -> Any:
        """Return the value stored under this key, or None if there is none; for the key parts, see ``TimeMap``."""

    def put(self, segment: int, key: Any, time_ms: int, second: int, value: Any, /) -> None:
        """Set the value stored under this key; None deletes it. For the key parts, see ``TimeMap``."""

    def find_sessions(
        self, segment: int, key: Any, first_ms: int, last_ms: int, latest_start_ms: int, reverse: bool, /
    ) -> list[tuple[Windowed, Any]]:
        """Return the sessions of ``key`` in ``segment`` and a time range; see ``TimeMap.find_sessions``."""


class TimedStore(SegmentedStore):
    """A segmented store whose keys consist of a serialized key, a time, and a sequence number or session start."""

    #: Size of the last key part (sequence number or session start), in bytes.
    SECOND_BYTES: ClassVar[int]

    _objects: TimedObjects

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        super().init(context)
        self._objects = self._create_map(context)

    def _create_map(self, context: StoreContext) -> TimeMap:
        return TimeMap(context.byte_map(self.name), self._conversions(), self._deserialize_key, self.SECOND_BYTES)

    def _conversions(self) -> Conversions:
        return Conversions(self._serialize_key, self._serialize_value, self._deserialize_value, self._codecs)

    def _get(self, key: Any, time_ms: int, second: int) -> Any:
        """Return a value, or None if it does not exist or has expired."""
        if time_ms <= self._segments.stream_time_ms - self._retention_ms:
            self._serialize_key(key)  # raises an error for a key of the wrong type, even if the entry has expired
            return None
        return self._objects.get(time_ms // self._interval_ms, key, time_ms, second)

    def _put(self, key: Any, time_ms: int, second: int, value: Any) -> None:
        """Set or delete a value, unless its segment has expired."""
        segments, number = self._segments, time_ms // self._interval_ms
        if number < segments.first_writable:
            self._reject(key, value)
            return
        self._objects.put(number, key, time_ms, second, value)
        if time_ms > segments.stream_time_ms:
            segments.advance_stream_time(time_ms)

    def _delete(self, key: Any, time_ms: int, second: int) -> None:
        """Delete a value."""
        self._objects.put(time_ms // self._interval_ms, key, time_ms, second, None)
        if time_ms > self._segments.stream_time_ms:
            self._segments.advance_stream_time(time_ms)

    def _reject(self, key: Any, value: Any) -> None:
        """Count an expired entry. If the key or value has the wrong type, raise the same error as ``TimeMap.put``."""
        conversions = self._conversions()
        conversions.serialize_key(key)
        if value is not None:
            conversions.serialize_value(value)
        self._segments.require_writable()
        self._context.count_expired(self.name)
