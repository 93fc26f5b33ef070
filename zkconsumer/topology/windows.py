"""Windows of a record, and the time at which a window is closed.

Source: Kafka 3.9 TimeWindows, SessionWindows, SlidingWindows, JoinWindows, KStreamWindowAggregate and
KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.topology.errors import describe_integer


class TimeWindow(NamedTuple):
    """A window from ``start``, included, to ``end``, excluded, in milliseconds since the epoch."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class TimeWindows:
    """Windows of a fixed size, which start at multiples of the advance.

    Attributes:
        size_ms: milliseconds of a window.
        advance_ms: milliseconds from one window to the next one: less than the size for hopping windows, which overlap;
            None for tumbling windows.
        grace_ms: milliseconds of stream time after the end of a window in which it accepts late records.

    Raises:
        ValueError: an attribute is invalid.
    """

    size_ms: int
    advance_ms: int | None = None
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _check("size_ms", self.size_ms, 1)
        _check("grace_ms", self.grace_ms, 0)
        if self.advance_ms is not None:
            _check("advance_ms", self.advance_ms, 1)
            if self.advance_ms > self.size_ms:
                raise ValueError(f"advance_ms must be at most size_ms ({self.size_ms}), got {self.advance_ms}")

    @property
    def retention_ms(self) -> int:
        """The least retention of a window store that keeps windows while they accept records.

        The put of a later window can remove them from then on, so windows are to be forwarded before that put.
        """
        return self.size_ms + self.grace_ms

    def windows_for(self, timestamp: int) -> list[TimeWindow]:
        """Return the windows that contain a timestamp, in milliseconds, in the order of their starts."""
        advance_ms = self.advance_ms or self.size_ms
        first = max(timestamp - self.size_ms + advance_ms, 0) // advance_ms * advance_ms
        return [TimeWindow(start, start + self.size_ms) for start in range(first, timestamp + 1, advance_ms)]

    def is_closed(self, end_ms: int, stream_time_ms: int) -> bool:
        """Return whether a window with this end rejects records at this stream time."""
        return end_ms <= stream_time_ms - self.grace_ms


@dataclass(frozen=True, kw_only=True)
class SessionWindows:
    """Windows of a key that end after a time without records.

    Attributes:
        gap_ms: milliseconds without records after which a session ends.
        grace_ms: milliseconds of stream time after the end of a session in which it accepts late records.

    Raises:
        ValueError: an attribute is invalid.
    """

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _check("gap_ms", self.gap_ms, 1)
        _check("grace_ms", self.grace_ms, 0)

    @property
    def retention_ms(self) -> int:
        """The least retention of a session store that keeps sessions until they are closed."""
        return self.gap_ms + self.grace_ms

    def is_closed(self, end_ms: int, stream_time_ms: int) -> bool:
        """Return whether a session whose last record has this timestamp rejects records at this stream time."""
        return end_ms < stream_time_ms - self.grace_ms - self.gap_ms


@dataclass(frozen=True, kw_only=True)
class SlidingWindows:
    """Windows that end at a record or start right after one, and contain records that are close together.

    Attributes:
        difference_ms: the greatest difference of the timestamps of two records in a window, in milliseconds.
        grace_ms: milliseconds of stream time after the end of a window in which it accepts late records.

    Raises:
        ValueError: an attribute is invalid.
    """

    difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _check("difference_ms", self.difference_ms, 0)
        _check("grace_ms", self.grace_ms, 0)

    @property
    def retention_ms(self) -> int:
        """The least retention of a window store that keeps windows while they accept records."""
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, kw_only=True)
class JoinWindows:
    """Which records of two streams are joined: those whose timestamps are close to each other.

    Attributes:
        before_ms: milliseconds by which a record of the other stream may be earlier.
        after_ms: milliseconds by which it may be later.
        grace_ms: milliseconds of stream time after the end of a window in which it accepts late records.

    Raises:
        ValueError: an attribute is invalid, or the end of a window is before its start.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        for name in ("before_ms", "after_ms"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} must be an integer, got {getattr(self, name)!r}")
        _check("grace_ms", self.grace_ms, 0)
        if self.size_ms < 0:
            raise ValueError(f"before_ms + after_ms must not be negative, got {self.before_ms} and {self.after_ms}")

    @property
    def size_ms(self) -> int:
        """Milliseconds of a window."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """The retention of the stores of the join."""
        return self.size_ms + self.grace_ms


def _check(name: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be {describe_integer(minimum)}, got {value!r}")
