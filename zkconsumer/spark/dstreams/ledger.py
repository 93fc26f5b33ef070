"""Stores the batch plans of a source, and which batches are completed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

#: Maximum number of plans to keep, unless the oldest one is not committable. Usually, ``forget_before`` removes plans
#: earlier.
_RETAINED_BATCHES = 1000


class Ledger:
    """The plans of a source by batch time, in milliseconds. Checkpoints contain the ledger.

    A plan is run by the batch with the same time, or by a later batch; see ``zkconsumer.spark.dstreams.batches``. A
    plan is committable when it and all earlier plans are completed. If a plan were committed earlier than that, a
    restarted application would skip the failed plans before it.

    Thread-safe: one thread plans batches, and another thread completes them.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[int, Any] = OrderedDict()
        self._completed: set[int] = set()
        self._committable: set[int] = set()
        #: Time of the batch that runs a plan, by plan time.
        self._batches: dict[int, int] = {}
        #: Times of uncompleted batches whose jobs Spark submitted.
        self._submitted: set[int] = set()
        #: Times of batches whose plans are taken over by later batches. Not restored, but determined again after a
        #: recovery.
        self._rescheduled: set[int] = set()
        #: Times of the batches that were restored from a checkpoint.
        self._restored: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # the keys are part of the checkpoint format
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
        self._batches, self._submitted = state["batches"], state["submitted"]
        self._restored = frozenset(self._batches[time_ms] for time_ms in self._plans)

    def __contains__(self, time_ms: int) -> bool:
        with self._lock:
            return time_ms in self._plans

    def get(self, time_ms: int) -> Any:
        """Return the plan for batch time ``time_ms``, or None if there is none."""
        with self._lock:
            return self._plans.get(time_ms)

    def times(self, batch_ms: int) -> list[int]:
        """Return the times of the plans that batch ``batch_ms`` runs."""
        with self._lock:
            return [time_ms for time_ms in self._plans if self._batches[time_ms] == batch_ms]

    def add(self, time_ms: int, plan: Any, batch_ms: int) -> None:
        """Add a plan. If there are too many plans, remove the oldest committable ones.

        Args:
            batch_ms: time of the batch that runs the plan.
        """
        with self._lock:
            self._plans[time_ms], self._batches[time_ms] = plan, batch_ms
            while len(self._plans) > _RETAINED_BATCHES and self._remove_oldest():
                pass

    def forget_before(self, time_ms: int) -> None:
        """Remove the plans before ``time_ms``, up to the first plan that is not committable."""
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
        del self._batches[oldest]
        return True

    def uncompleted(self) -> set[int]:
        """Return the times of batches that are not known to be completed, except rescheduled batches."""
        with self._lock:
            return {self._batches[time_ms] for time_ms in self._plans.keys() - self._completed} - self._rescheduled

    def submit(self, batch_ms: int) -> None:
        """Record that Spark submitted the jobs of a batch."""
        with self._lock:
            if any(self._batches[time_ms] == batch_ms for time_ms in self._plans.keys() - self._completed):
                self._submitted.add(batch_ms)

    def was_submitted_before_recovery(self, batch_ms: int) -> bool:
        """Return whether a batch was restored from a checkpoint that was written after its jobs were submitted."""
        with self._lock:
            return batch_ms in self._restored and batch_ms in self._submitted

    def complete(self, batches_ms: Iterable[int]) -> list[Any]:
        """Mark batches as completed; batches without a plan are ignored.

        Returns:
            The plans that became committable, oldest first.
        """
        batches, plans = set(batches_ms), []
        with self._lock:
            self._completed.update(time_ms for time_ms in self._plans if self._batches[time_ms] in batches)
            self._submitted -= batches
            self._rescheduled -= batches
            for time_ms, plan in self._plans.items():
                if time_ms not in self._completed:
                    break
                if time_ms not in self._committable:
                    self._committable.add(time_ms)
                    plans.append(plan)
        return plans

    def reschedule(self, batch_ms: int) -> None:
        """Let later batch times take over the plans of a batch that was not run."""
        with self._lock:
            self._submitted.discard(batch_ms)
            self._rescheduled.add(batch_ms)

    def take_over(self, time_ms: int, batch_ms: int) -> bool:
        """Move the first rescheduled plan to a new batch time. Its position in the commit order does not change.

        Args:
            batch_ms: time of the batch that now runs the plan.

        Returns:
            False if there is no rescheduled plan.
        """
        with self._lock:
            uncompleted = {t: self._batches[t] for t in self._plans if t not in self._completed}
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
            self._batches[time_ms] = batch_ms
            return True
