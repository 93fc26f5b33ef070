"""The processor that aggregates a stream by key and sliding window.

Source: Kafka 3.9 KStreamSlidingWindowAggregate.
"""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.dsl.window_aggregates import ClosedWindows, WindowedAggregate
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import ProcessorContext
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.windows import SlidingWindows


class _Neighbours(NamedTuple):
    """Existing windows near a record.

    Attributes:
        starts: start times of the windows.
        left: aggregate of the window that contains the preceding records; None if there is none.
        right: aggregate of a window that also contains later records; None if there is none.
        has_left: whether the window that ends at the record's timestamp exists.
        has_right: whether the window that starts right after the record's timestamp exists.
        previous: timestamp of the preceding record; None if there is none.
    """

    starts: set[int]
    left: ValueAndTimestamp | None
    right: ValueAndTimestamp | None
    has_left: bool
    has_right: bool
    previous: int | None


class SlidingWindowAggregate(WindowedAggregate[SlidingWindows]):
    """Aggregates values by key and sliding window."""

    ACCEPTS_NONE = False

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._size = self._windows.difference_ms
        super().init(context)

    def _create_closed(self, context: ProcessorContext) -> ClosedWindows:
        return ClosedWindows(context, self._size)

    def _update(self, record: Record) -> None:
        close_ms = self._observed.value - self._windows.grace_ms
        if record.timestamp + self._size < close_ms:
            self._context.drop(DropReason.CLOSED_WINDOW)
            return
        if record.timestamp < self._size:
            self._update_early(record, close_ms)
            return
        expected = self._count_expiring(record, close_ms)
        found = self._update_existing(record, close_ms)
        if found is not None:
            self._create_windows(record, close_ms, found)
        # As in Kafka Streams, closed windows are not forwarded after a record whose timestamp is below the window size.
        if self._closed is not None and self._closed.start_search(close_ms):
            closed = self._find_closed(close_ms)
            self._forward_closed(record, closed)
            self._closed.report_lost(expected - len(closed))
            self._closed.finish(close_ms)

    def _count_expiring(self, record: Record, close_ms: int) -> int:
        """Return the number of closed windows to forward if the record can make some of them expire, or else 0."""
        if self._closed is None or self._store.first_readable_after(record.timestamp) <= self._first_closed_ms():
            return 0
        return len(self._find_closed(close_ms))

    def _find_closed(self, close_ms: int) -> list[tuple[Windowed, ValueAndTimestamp]]:
        """Return the windows that ended before ``close_ms`` and were not forwarded."""
        return list(self._store.fetch_all(self._first_closed_ms(), close_ms - self._size - 1))

    def _first_closed_ms(self) -> int:
        assert self._closed is not None
        return max(0, self._closed.last_close_ms - self._size)

    def _fetch(self, record: Record, first_ms: int, *, reverse: bool) -> list[tuple[int, ValueAndTimestamp]]:
        last_ms = record.timestamp + 1
        found = self._store.fetch_keys(record.key, record.key, max(0, first_ms), last_ms, reverse=reverse)
        return [(window.start, value) for window, value in found]

    def _update_existing(self, record: Record, close_ms: int) -> _Neighbours | None:
        """Add the record to its existing windows. Return the windows near it; None if no new windows are needed."""
        starts: set[int] = set()
        left = right = previous = None
        has_left = has_right = False
        for start, value in self._fetch(record, record.timestamp - 2 * self._size, reverse=True):
            starts.add(start)
            end = start + self._size
            if start == record.timestamp + 1:
                has_right = True
            elif end > record.timestamp:
                right = right or value
                self._add(record, start, value, close_ms)
            elif end == record.timestamp:
                has_left = True
                self._add(record, start, value, close_ms)
                if value.timestamp >= record.timestamp:
                    return None
                previous = value.timestamp
            else:
                left, previous = value, value.timestamp
                break
        return _Neighbours(starts, left, right, has_left, has_right, previous)

    def _update_early(self, record: Record, close_ms: int) -> None:
        """Add a record whose left window would start before time 0."""
        starts: set[int] = set()
        combined = right = previous = None
        has_right = False
        for start, value in self._fetch(record, 0, reverse=False):
            starts.add(start)
            if start == 0:
                combined = value
                if value.timestamp < record.timestamp:
                    previous = value.timestamp
            elif start <= record.timestamp:
                right = value
                self._add(record, start, value, close_ms)
            else:
                has_right = True
        if right is None and combined is not None and combined.timestamp > record.timestamp:
            right = combined
        if not has_right and right is not None and right.timestamp > record.timestamp:
            self._create_right(record, right)
        if previous is not None and previous + 1 not in starts:
            self._create(record, previous + 1, close_ms)
        if combined is None:
            self._create(record, 0, close_ms)
        else:
            self._add(record, 0, combined, close_ms)

    def _create_windows(self, record: Record, close_ms: int, found: _Neighbours) -> None:
        previous, timestamp = found.previous, record.timestamp
        if previous is not None and previous + 1 not in found.starts and previous + 1 + self._size >= timestamp:
            self._create(record, previous + 1, close_ms)
        if not found.has_left:
            start = timestamp - self._size
            if previous is not None and start <= previous and found.left is not None:
                self._add(record, start, ValueAndTimestamp(found.left.value, timestamp), close_ms)
            else:
                self._create(record, start, close_ms)
        if not found.has_right and found.right is not None and found.right.timestamp > timestamp:
            self._create_right(record, found.right)

    def _create(self, record: Record, start: int, close_ms: int) -> None:
        """Create a window, and add the record to it."""
        self._add(record, start, ValueAndTimestamp(self._initializer(), record.timestamp), close_ms)

    def _create_right(self, record: Record, value: ValueAndTimestamp) -> None:
        """Create the window that starts right after the record's timestamp and contains the later records."""
        start = record.timestamp + 1
        self._put(record, start, start + self._size, None, value.value, value.timestamp)

    def _add(self, record: Record, start: int, value: ValueAndTimestamp, close_ms: int) -> None:
        """Add the record to a window, unless the window is closed."""
        end, old = start + self._size, value.value
        if end < close_ms:
            self._context.drop(DropReason.CLOSED_WINDOW)
            return
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp if old is None else max(record.timestamp, value.timestamp)
        self._put(record, start, end, old, new, timestamp)
