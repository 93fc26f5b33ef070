"""Plans of the batches of a source, and which batches are completed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

#: Maximum number of completed batches to keep. Usually ``forget_before`` removes them earlier.
_RETAINED_BATCHES = 1000


class Ledger:
    """The plans of a source by batch time, in milliseconds; part of a checkpoint.

    A plan is run by the batch of its time, or by a later one as in ``zkconsumer.spark.dstreams.batches``. It is
    committable when it and all plans before it are completed. Otherwise the commit of a later plan would let a
    restarted application skip a failed one.

    Thread-safe: one thread plans batches, and another one completes them.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[int, Any] = OrderedDict()
        self._completed: set[int] = set()
        self._committable: set[int] = set()
        self._batches: dict[int, int] = {}  # by time of the plan; none if the batch is not recorded
        self._submitted: set[int] = set()  # batches
        self._rescheduled: set[int] = set()  # batches; decided again after a recovery
        self._restored: frozenset[int] = frozenset()  # batches
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # checkpoints contain these keys
            return {
                "entries": self._plans.copy(),
                "done": set(self._completed),
                "settled": set(self._committable),
                "batches": dict(self._batches),
                "submitted": set(self._submitted),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._plans, self._completed, self._committable = state["entries"], state["done"], state["settled"]
        self._batches = state.get("batches", {})
        self._restored = frozenset(map(self._find_batch, self._plans))
        # Checkpoints of earlier versions do not contain the submitted batches.
        self._submitted = state.get("submitted", set(self._restored))

    def __contains__(self, time_ms: int) -> bool:
        with self._lock:
            return time_ms in self._plans

    def get(self, time_ms: int) -> Any:
        """Return the plan of a batch time, or None."""
        with self._lock:
            return self._plans.get(time_ms)

    def times(self, batch_ms: int) -> list[int]:
        """Return the times of the plans that a batch runs."""
        with self._lock:
            return [time_ms for time_ms in self._plans if self._find_batch(time_ms) == batch_ms]

    def add(self, time_ms: int, plan: Any, batch_ms: int | None = None) -> None:
        """Add a plan. If there are too many, remove the oldest ones that are committable.

        Args:
            batch_ms: the batch that runs the plan; None if it is not recorded.
        """
        with self._lock:
            self._plans[time_ms] = plan
            self._record_batch(time_ms, batch_ms)
            while len(self._plans) > _RETAINED_BATCHES and self._remove_oldest():
                pass

    def forget_before(self, time_ms: int) -> None:
        """Remove the plans before a time, up to the first one that is not committable."""
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
        self._batches.pop(oldest, None)
        return True

    def _find_batch(self, time_ms: int) -> int:
        return self._batches.get(time_ms, time_ms)

    def _record_batch(self, time_ms: int, batch_ms: int | None) -> None:
        if batch_ms is not None:
            self._batches[time_ms] = batch_ms

    def uncompleted(self) -> set[int]:
        """Return the batches that are not known to be completed, without those that are rescheduled."""
        with self._lock:
            return {self._find_batch(time_ms) for time_ms in self._plans.keys() - self._completed} - self._rescheduled

    def submit(self, batch_ms: int) -> None:
        """Record that Spark submitted the jobs of a batch."""
        with self._lock:
            if any(self._find_batch(time_ms) == batch_ms for time_ms in self._plans.keys() - self._completed):
                self._submitted.add(batch_ms)

    def was_submitted_before_recovery(self, batch_ms: int) -> bool:
        """Return whether a batch comes from a checkpoint that was written after its jobs had been submitted."""
        with self._lock:
            return batch_ms in self._restored and batch_ms in self._submitted

    def complete(self, batches_ms: Iterable[int]) -> list[Any]:
        """Mark batches as completed; those without a plan are ignored.

        Returns:
            the plans that have become committable, oldest first.
        """
        batches, plans = set(batches_ms), []
        with self._lock:
            self._completed.update(time_ms for time_ms in self._plans if self._find_batch(time_ms) in batches)
            self._submitted -= batches
            self._rescheduled -= batches
            for time_ms, plan in self._plans.items():
                if time_ms not in self._completed:
                    break
                if time_ms not in self._committable:
                    self._committable.add(time_ms)
                    plans.append(plan)
        return plans

    def reschedule(self, batch_ms: int) -> bool:
        """Let later batch times take over the plans of a batch that was not run.

        Returns:
            False if the batch is not recorded: a later batch may run its plans.
        """
        with self._lock:
            if batch_ms not in self._batches.values():
                return False
            self._submitted.discard(batch_ms)
            self._rescheduled.add(batch_ms)
            return True

    def take_over(self, time_ms: int, batch_ms: int | None) -> bool:
        """Move the first rescheduled plan to a new batch time. Its place in the order of commits stays the same.

        Args:
            batch_ms: the batch that runs the plan now; None if it is not recorded.

        Returns:
            False if there is none.
        """
        with self._lock:
            uncompleted = {t: self._find_batch(t) for t in self._plans if t not in self._completed}
            old = next((t for t, batch in uncompleted.items() if batch in self._rescheduled), None)
            if old is None:
                return False
            times = list(self._plans)
            self._plans[time_ms] = self._plans[old]
            for later in times[times.index(old) + 1 :]:
                self._plans.move_to_end(later)
            self._plans[old] = None  # windows may request the old time again
            self._completed.add(old)
            self._rescheduled.intersection_update(batch for t, batch in uncompleted.items() if t != old)
            self._record_batch(time_ms, batch_ms)
            return True
