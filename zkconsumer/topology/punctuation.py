"""Schedules of a task.

Source: Kafka 3.9 PunctuationQueue and PunctuationSchedule.
"""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.topology.java_order import PriorityQueue
from zkconsumer.topology.processor import Punctuator


class Schedule:
    """A punctuator that is called each time its interval has passed.

    Args:
        node: name of the node that created it.
        due_ms: first time at which it is due.
        interval_ms: milliseconds between two calls.
        punctuator: the function.
    """

    __slots__ = ("due_ms", "interval_ms", "is_cancelled", "node", "punctuator")

    def __init__(self, node: str, due_ms: int, interval_ms: int, punctuator: Punctuator) -> None:
        self.node, self.due_ms, self.interval_ms, self.punctuator = node, due_ms, interval_ms, punctuator
        self.is_cancelled = False

    def cancel(self) -> None:
        """End the schedule."""
        self.is_cancelled = True

    def advance(self, now_ms: int) -> None:
        """Set the next time, which is after ``now_ms`` and a multiple of intervals after the current one."""
        missed = max(now_ms - self.due_ms, 0) // self.interval_ms
        self.due_ms += (missed + 1) * self.interval_ms


class PunctuationQueue:
    """The schedules of one clock."""

    def __init__(self) -> None:
        self._queue: PriorityQueue[Schedule] = PriorityQueue(lambda schedule: schedule.due_ms)

    def add(self, schedule: Schedule) -> None:
        """Add a schedule."""
        self._queue.add(schedule)

    def punctuate(self, now_ms: int, call: Callable[[Schedule, int], object]) -> bool:
        """Call all schedules that are due, including new ones, and return whether there was one.

        Args:
            now_ms: current time of the clock.
            call: called with each schedule and that time.
        """
        has_called = False
        while (schedule := self._queue.peek()) is not None and schedule.due_ms <= now_ms:
            self._queue.poll()
            if schedule.is_cancelled:
                continue
            try:
                call(schedule, now_ms)
            finally:
                # A call that fails is made again at its next time. A punctuator may have cancelled its own schedule.
                schedule.advance(now_ms)
                if not schedule.is_cancelled:
                    self._queue.add(schedule)
            has_called = True
        return has_called
