"""Limits the number of log events with the same cause.

The limits apply to the whole process, because Spark creates the objects that log these events again for each task and
batch.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
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
        events: number of events in the interval.
        unlogged: number of occurrences since the last event.
    """

    since_s: float
    events: int = 0
    unlogged: int = 0


class EventLimiter:
    """Counts occurrences by cause, and determines which of them are logged. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: OrderedDict[Hashable, _Cause] = OrderedDict()  # ordered by ``since_s``

    def add(self, cause: Hashable, amount: int, max_events: int) -> int:
        """Count occurrences, and return the number of occurrences to log; see ``count_to_log``."""
        with self._lock:
            now_s, found = time.monotonic(), self._causes.get(cause)
            if found is None or now_s - found.since_s >= _INTERVAL_S:
                found = self._causes[cause] = _Cause(now_s, unlogged=0 if found is None else found.unlogged)
                self._causes.move_to_end(cause)
                if len(self._causes) > _MAX_CAUSES:
                    self._causes.popitem(last=False)
            found.unlogged += amount
            if found.events >= max_events:
                return 0
            found.events += 1
            count, found.unlogged = found.unlogged, 0
            return count


_limiter = EventLimiter()


def count_to_log(cause: Hashable, amount: int = 1, *, max_events: int = 1) -> int:
    """Return the number of occurrences to log now, including earlier ones that were not logged; 0 to log no event.

    Args:
        cause: identifies the events that are limited together.
        amount: number of occurrences.
        max_events: maximum number of events per minute.
    """
    return _limiter.add(cause, amount, max_events)
