"""Window definitions: they determine which windows contain a record, and when a window closes.

All durations are numbers of milliseconds or ``timedelta`` objects; the attributes are integers.

Source: Kafka 3.9 TimeWindows, SessionWindows, SlidingWindows, JoinWindows, KStreamWindowAggregate and
KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.checked_arguments import check_arguments_as, set_fields
from zkconsumer.durations import Milliseconds
from zkconsumer.topology.errors import InvalidArgumentError


class TimeWindow(NamedTuple):
    """A window from ``start`` (inclusive) to ``end`` (exclusive), in milliseconds since the epoch."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True, init=False)
class TimeWindows:
    """Fixed-size windows, which start at multiples of the advance interval.

    Attributes:
        size_ms: window size in milliseconds.
        advance_ms: advance interval in milliseconds: less than the size for hopping windows, which overlap; None for
            tumbling windows.
        grace_ms: grace period in milliseconds: stream time after the window end during which late records are accepted.

    Raises:
        ValueError: an attribute has the wrong type or is out of range.
    """

    size_ms: int
    advance_ms: int | None
    grace_ms: int

    @check_arguments_as(InvalidArgumentError)
    def __init__(
        self, *, size_ms: Milliseconds, advance_ms: Milliseconds | None = None, grace_ms: Milliseconds = 0
    ) -> None:
        set_fields(self, size_ms=size_ms, advance_ms=advance_ms, grace_ms=grace_ms)
        if self.advance_ms is not None and self.advance_ms > self.size_ms:
            raise InvalidArgumentError(f"advance_ms must be at most size_ms ({self.size_ms}), got {self.advance_ms}")

    @property
    def retention_ms(self) -> int:
        """Minimum retention period for a window store that keeps windows while they accept records.

        A put can remove windows that are older than this period, so closed windows must be forwarded before the put.
        """
        return self.size_ms + self.grace_ms

    def windows_for(self, timestamp: int) -> list[TimeWindow]:
        """Return the windows that contain ``timestamp`` (in milliseconds), ordered by start time."""
        advance_ms = self.advance_ms or self.size_ms
        first = max(timestamp - self.size_ms + advance_ms, 0) // advance_ms * advance_ms
        return [TimeWindow(start, start + self.size_ms) for start in range(first, timestamp + 1, advance_ms)]

    def is_closed(self, end_ms: int, stream_time_ms: int) -> bool:
        """Return whether a window that ends at ``end_ms`` rejects records at stream time ``stream_time_ms``."""
        return end_ms <= stream_time_ms - self.grace_ms


@dataclass(frozen=True, kw_only=True, init=False)
class SessionWindows:
    """Session windows, which end after a period without records for their key.

    Attributes:
        gap_ms: inactivity gap in milliseconds after which a session ends.
        grace_ms: grace period in milliseconds: stream time after the session end during which late records are
            accepted.

    Raises:
        ValueError: an attribute has the wrong type or is out of range.
    """

    gap_ms: int
    grace_ms: int

    @check_arguments_as(InvalidArgumentError)
    def __init__(self, *, gap_ms: Milliseconds, grace_ms: Milliseconds = 0) -> None:
        set_fields(self, gap_ms=gap_ms, grace_ms=grace_ms)

    @property
    def retention_ms(self) -> int:
        """Minimum retention period for a session store that keeps sessions until they are closed."""
        return self.gap_ms + self.grace_ms

    def is_closed(self, end_ms: int, stream_time_ms: int) -> bool:
        """Return whether a session whose last record is at ``end_ms`` rejects records at this stream time."""
        return end_ms < stream_time_ms - self.grace_ms - self.gap_ms


@dataclass(frozen=True, kw_only=True, init=False)
class SlidingWindows:
    """Sliding windows, which end at a record or start right after a record.

    Attributes:
        difference_ms: maximum time difference between two records in a window, in milliseconds.
        grace_ms: grace period in milliseconds: stream time after the window end during which late records are accepted.

    Raises:
        ValueError: an attribute has the wrong type or is out of range.
    """

    difference_ms: int
    grace_ms: int

    @check_arguments_as(InvalidArgumentError)
    def __init__(self, *, difference_ms: Milliseconds, grace_ms: Milliseconds = 0) -> None:
        set_fields(self, difference_ms=difference_ms, grace_ms=grace_ms)

    @property
    def retention_ms(self) -> int:
        """Minimum retention period for a window store that keeps windows while they accept records."""
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, kw_only=True, init=False)
class JoinWindows:
    """Join windows: two records are joined if their timestamps are close enough.

    Attributes:
        before_ms: maximum time by which a record of the other stream may be earlier, in milliseconds.
        after_ms: maximum time by which a record of the other stream may be later, in milliseconds.
        grace_ms: grace period in milliseconds: stream time after the window end during which late records are accepted.

    Raises:
        ValueError: an attribute has the wrong type, ``grace_ms`` is negative, or ``before_ms + after_ms`` is negative.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @check_arguments_as(InvalidArgumentError)
    def __init__(self, *, before_ms: Milliseconds, after_ms: Milliseconds, grace_ms: Milliseconds = 0) -> None:
        set_fields(self, before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)
        if self.size_ms < 0:
            raise InvalidArgumentError(
                f"before_ms + after_ms must not be negative, got {self.before_ms} and {self.after_ms}"
            )

    @property
    def size_ms(self) -> int:
        """Window size in milliseconds."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """Retention period of the join stores, in milliseconds."""
        return self.size_ms + self.grace_ms
