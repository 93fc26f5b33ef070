"""Plans of the batches of a source, and which batches are completed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

#: Maximum number of completed batches to keep. Usually ``forget_before`` removes them earlier.
_RETAINED_BATCHES = 1000


class Ledger:
    """The plans of batches by batch time, in milliseconds; part of a checkpoint.

    A batch is committable when it and all earlier batches are completed. Otherwise the commit of a later batch would
    let a restarted application skip a failed one.

    Thread-safe: one thread plans batches, and another one completes them.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[int, Any] = OrderedDict()
        self._completed: set[int] = set()
        self._committable: set[int] = set()
        self._restored: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # checkpoints contain these keys
            return {"entries": self._plans.copy(), "done": set(self._completed), "settled": set(self._committable)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._plans, self._completed, self._committable = state["entries"], state["done"], state["settled"]
        self._restored = frozenset(self._plans)

    def __contains__(self, time_ms: int) -> bool:
        with self._lock:
            return time_ms in self._plans

    def get(self, time_ms: int) -> Any:
        """Return the plan of a batch, or None."""
        with self._lock:
            return self._plans.get(time_ms)

    def add(self, time_ms: int, plan: Any) -> None:
        """Add a batch. If there are too many, remove the oldest batches that are committable."""
        with self._lock:
            self._plans[time_ms] = plan
            while len(self._plans) > _RETAINED_BATCHES and self._remove_oldest():
                pass

    def forget_before(self, time_ms: int) -> None:
        """Remove the batches before a time, up to the first one that is not committable."""
        with self._lock:
            while self._plans and next(iter(self._plans)) < time_ms and self._remove_oldest():
                pass

    def _remove_oldest(self) -> bool:
        oldest = next(iter(self._plans))
        if oldest not in self._committable:
            return False
        del self._plans[oldest]
        self._completed.discard(oldest)
        self._committable.discard(oldest)
        return True

    def is_restored(self, time_ms: int) -> bool:
        """Return whether a batch comes from a checkpoint."""
        return time_ms in self._restored

    def uncompleted(self) -> set[int]:
        """Return the times of the batches that are not known to be completed."""
        with self._lock:
            return self._plans.keys() - self._completed

    def complete(self, times_ms: Iterable[int]) -> list[Any]:
        """Mark batches as completed; those without a plan are ignored.

        Returns:
            the plans that have become committable, oldest first.
        """
        plans = []
        with self._lock:
            self._completed.update(self._plans.keys() & set(times_ms))
            for time_ms, plan in self._plans.items():
                if time_ms not in self._completed:
                    break
                if time_ms not in self._committable:
                    self._committable.add(time_ms)
                    plans.append(plan)
        return plans
