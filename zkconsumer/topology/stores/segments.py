"""Entries with a time, which expire by segments.

The key of an entry starts with the number of its segment, a range of time, so an expired segment is a range of keys
that is removed at once, even if its keys were not used since.

Source: Kafka 3.9 AbstractRocksDBSegmentedBytesStore and AbstractSegments.
"""

from __future__ import annotations

import struct

from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.pages import PagedMap

#: The number of a segment, with which the key of an entry starts.
SEGMENT = struct.Struct(">Q")
_STATE = struct.Struct("<qI")

#: Key of the latest time and of the sequence number; it is greater than the keys of all segments.
_STATE_KEY = b"\xff" * 9

#: The latest time, in milliseconds.
MAX_TIME = (1 << 63) - 1


def segment_interval_ms(retention_ms: int) -> int:
    """Return the length of a segment of window and session stores."""
    return max(retention_ms // 2, 60_000)


def check_times(store: str, start_ms: int, end_ms: int | None = None) -> None:
    """Check the times of an entry.

    Raises:
        ValueError: a time is negative or not an integer, or the end is before the start.
    """
    if not isinstance(start_ms, int) or start_ms < 0:
        raise ValueError(f"store {store!r}: a time must be an integer of at least 0, got {start_ms!r}")
    if end_ms is not None and (not isinstance(end_ms, int) or end_ms < start_ms):
        raise ValueError(
            f"store {store!r}: the end must be an integer of at least the start {start_ms}, got {end_ms!r}"
        )


class SegmentedMap:
    """A map of bytes whose entries expire.

    Args:
        entries: the map of the store.
        retention_ms: milliseconds after which an entry is no longer returned.
        interval_ms: milliseconds of a segment.
    """

    def __init__(self, entries: PagedMap, retention_ms: int, interval_ms: int) -> None:
        self._map = entries
        self._retention_ms, self._interval_ms = retention_ms, interval_ms
        self.load()

    def load(self) -> None:
        """Read the latest time and the sequence number from the map."""
        state = self._map.get(_STATE_KEY)
        time, sequence = _STATE.unpack(state) if state is not None else (-1, 0)
        self.stream_time_ms, self._sequence = int(time), int(sequence)
        self._first_live = self._segment_number(self.stream_time_ms - self._retention_ms)
        self._is_changed = False

    def save(self) -> None:
        """Write the latest time and the sequence number to the map, if they changed."""
        if self._is_changed:
            self._map.put(_STATE_KEY, _STATE.pack(self.stream_time_ms, self._sequence))
            self._is_changed = False

    @property
    def live_from(self) -> int:
        """The first time, in milliseconds, of entries that are returned."""
        return self.stream_time_ms - self._retention_ms + 1

    def next_sequence(self) -> int:
        """Return the next number of an entry, which distinguishes entries with equal keys and times."""
        self._map.require_writable()
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        self._is_changed = True
        return self._sequence

    @property
    def sequence(self) -> int:
        """The last number that ``next_sequence`` returned."""
        return self._sequence

    def put(self, time_ms: int, key: bytes, value: bytes | None) -> bool:
        """Set or delete an entry, and return whether its segment still exists."""
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

    def remove(self, time_ms: int, key: bytes) -> None:
        """Delete an entry."""
        if time_ms > self.stream_time_ms or self._map.is_read_only:
            self.advance_stream_time(time_ms)
        self._map.delete(SEGMENT.pack(time_ms // self._interval_ms) + key)

    def get(self, time_ms: int, key: bytes) -> bytes | None:
        """Return an entry that has not expired, or None."""
        if time_ms <= self.stream_time_ms - self._retention_ms:
            return None
        return self._map.get(SEGMENT.pack(time_ms // self._interval_ms) + key)

    def scan(
        self, first_ms: int, last_ms: int, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return the entries of the segments from one time to another, by segment and key.

        Args:
            first_ms: time in the first segment.
            last_ms: time in the last segment.
            start: first key in each segment.
            stop: key after the last one in each segment; None for no limit.
            reverse: whether the last entry comes first.
        """
        return [(key[8:], value) for key, value in self.scan_segments(first_ms, last_ms, start, stop, reverse)]

    def scan_segments(
        self, first_ms: int, last_ms: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return what ``scan`` returns, with the number of the segment before each key."""
        if stop is not None:  # as for one key, whose entries are usually in one segment
            number = max(first_ms // self._interval_ms, self._first_live)
            if number == min(last_ms, self.stream_time_ms) // self._interval_ms:
                prefix = SEGMENT.pack(number)
                return self._map.scan(prefix + start, prefix + stop, reverse)
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
        """Return first key and key after the last one of each range that ``scan`` reads."""
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
        """Advance the latest time, and remove expired segments."""
        if self._map.is_read_only:
            self._map.require_writable()
        if time_ms <= self.stream_time_ms:
            return
        self.stream_time_ms = time_ms
        self._is_changed = True
        first_live = (time_ms - self._retention_ms) // self._interval_ms
        if first_live > self._first_live:
            self._map.discard(b"", SEGMENT.pack(first_live))
            self._first_live = first_live

    def _segment_number(self, time_ms: int) -> int:
        return time_ms // self._interval_ms if time_ms > 0 else 0


class SegmentedStore(SerdeStore):
    """A store whose entries expire by segments.

    Args:
        name: name of the store.
        serdes: serdes of keys and values.
        is_persistent: see ``StateStore``.
        retention_ms: milliseconds after which an entry is no longer returned.
        interval_ms: milliseconds of a segment.
        details: what else the layout depends on.
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
        """Save the latest time."""
        self._segments.save()

    def rollback(self) -> None:
        """Read the latest time again."""
        self._segments.load()
