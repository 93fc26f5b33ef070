"""Clocks that tests move."""

from __future__ import annotations


class Clock:
    """A monotonic clock that only a test moves forward."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
