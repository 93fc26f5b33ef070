"""Limits the number of log events with the same cause.

The limits apply to the whole process, because Spark creates the objects that log these events again for each task and
batch.

The last occurrences before a process ends may not be logged: Spark ends its Python workers without calling exit
handlers.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

#: Length of the interval in which the events with the same cause are limited, in seconds.
_INTERVAL_S = 60.0
#: Maximum number of causes whose state is kept.
_MAX_CAUSES = 10_000


@dataclass(slots=True)
class _Cause:
    """State of a cause in the current interval.

    Attributes:
        since_s: start of the interval (``time.monotonic``).
        max_events: maximum number of events in an interval.
        events: number of events in the interval.
    """

    since_s: float
    max_events: int
    events: int = 0


class EventLimiter:
    """Counts occurrences by cause, and determines which of them are logged. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: OrderedDict[Hashable, _Cause] = OrderedDict()  # ordered by ``since_s``
        #: By cause, the function that logs the first unlogged occurrence, and the number of unlogged occurrences.
        self._unlogged: dict[Hashable, tuple[Callable[[int], object], int]] = {}

    def add(
        self,
        cause: Hashable,
        log: Callable[[int], object],
        amount: int = 1,
        *,
        max_events: int = 1,
        is_deferred: bool = False,
    ) -> None:
        """Count occurrences, and log them now or in a later call.

        Args:
            cause: identifies the events that are limited together.
            log: logs an event, given the number of occurrences since the previous event. The function of the first of
                these occurrences is called.
            amount: number of occurrences.
            max_events: maximum number of events per minute.
            is_deferred: whether to wait for ``log_unlogged``, so that one event contains all occurrences in a batch.
        """
        with self._lock:
            if cause not in self._causes:
                self._causes[cause] = _Cause(time.monotonic(), max_events)
                if len(self._causes) > _MAX_CAUSES:
                    oldest, _ = self._causes.popitem(last=False)
                    self._unlogged.pop(oldest, None)
            first, count = self._unlogged.get(cause, (log, 0))
            self._unlogged[cause] = first, count + amount
            events = [] if is_deferred else self._take([cause])
        _log_all(events)

    def log_unlogged(self) -> None:
        """Log the unlogged occurrences, unless the limit for their cause is reached. Call it after a batch."""
        if not self._unlogged:
            return
        with self._lock:
            events = self._take(list(self._unlogged))
        _log_all(events)

    def _take(self, causes: Iterable[Hashable]) -> list[tuple[Callable[[int], object], int]]:
        """Remove and return the unlogged occurrences of ``causes``, up to the limits."""
        now_s, events = time.monotonic(), []
        for cause in causes:
            found = self._causes[cause]
            if now_s - found.since_s >= _INTERVAL_S:
                found.since_s, found.events = now_s, 0
                self._causes.move_to_end(cause)
            if found.events < found.max_events:
                found.events += 1
                events.append(self._unlogged.pop(cause))
        return events


def _log_all(events: Iterable[tuple[Callable[[int], object], int]]) -> None:
    for log, count in events:
        log(count)


_limiter = EventLimiter()
log_limited = _limiter.add
log_unlogged = _limiter.log_unlogged
