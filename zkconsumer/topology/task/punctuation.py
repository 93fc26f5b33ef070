"""The punctuator schedules of a task.

Source: Kafka 3.9 PunctuationQueue and PunctuationSchedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zkconsumer.errors import StreamsError
from zkconsumer.topology.loop.java_order import PriorityQueue
from zkconsumer.topology.loop.native import NEVER
from zkconsumer.topology.processor import Processor, PunctuationType, Punctuator

#: ``ScheduleKey.method`` of schedules that were created in ``init``.
IN_INIT = "init"


class ScheduleKey(NamedTuple):
    """The identity of a schedule, which does not change when the task is re-created.

    Attributes:
        node: name of the node that created the schedule.
        method: ``init`` if the schedule was created in ``init``; otherwise the name of the processor method that the
            schedule calls, or an empty string if it calls another function.
        ordinal: number of schedules with the same node and method that were created earlier.
    """

    node: str
    method: str
    ordinal: int


class Schedule:
    """A punctuator with its interval and next due time.

    Args:
        key: identity of the schedule.
        due_ms: time of the first call, in milliseconds.
        interval_ms: interval between two calls, in milliseconds.
        punctuator: function to call.
    """

    __slots__ = ("due_ms", "interval_ms", "is_cancelled", "key", "punctuator")

    def __init__(self, key: ScheduleKey, due_ms: int, interval_ms: int, punctuator: Punctuator) -> None:
        self.key, self.due_ms, self.interval_ms, self.punctuator = key, due_ms, interval_ms, punctuator
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel the schedule."""
        self.is_cancelled = True

    def advance(self, now_ms: int) -> None:
        """Advance the due time by a multiple of the interval, to a time after ``now_ms``."""
        missed = max(now_ms - self.due_ms, 0) // self.interval_ms
        self.due_ms += (missed + 1) * self.interval_ms


class PunctuationQueue:
    """The schedules of one punctuation type.

    Attributes:
        queue: all schedules except ``called``.
        called: schedule whose punctuator is being called, or None.
    """

    def __init__(self) -> None:
        self.queue: PriorityQueue[Schedule] = PriorityQueue(lambda schedule: schedule.due_ms)
        self.called: Schedule | None = None

    @property
    def schedules(self) -> list[Schedule]:
        """All schedules, including the one whose punctuator is being called."""
        return self.queue.items if self.called is None else [*self.queue.items, self.called]

    @property
    def due_ms(self) -> int:
        """Time at which the next schedule is due; ``NEVER`` if there is no schedule."""
        first = self.queue.peek()
        return NEVER if first is None else first.due_ms

    def add(self, schedule: Schedule) -> None:
        """Add a schedule."""
        self.queue.add(schedule)

    def punctuate(self, now_ms: int, call: Callable[[Schedule, int], object]) -> bool:
        """Call all due schedules, including newly added schedules, and return whether any was due.

        Args:
            now_ms: current stream time or wall-clock time, in milliseconds.
            call: function that is called with each due schedule and ``now_ms``.
        """
        has_called = False
        while (schedule := self.queue.peek()) is not None and schedule.due_ms <= now_ms:
            self.queue.poll()
            if schedule.is_cancelled:
                continue
            self.called = schedule
            try:
                call(schedule, now_ms)
            finally:
                self.called = None
                # Advance the schedule even if the call failed, so that the call is not repeated immediately.
                schedule.advance(now_ms)
                if not schedule.is_cancelled:
                    self.queue.add(schedule)
            has_called = True
        return has_called


class SavedSchedule(NamedTuple):
    """A schedule in a snapshot."""

    key: ScheduleKey
    due_ms: int
    interval_ms: int
    is_cancelled: bool


class SavedSchedules(NamedTuple):
    """The schedules of a task in a snapshot.

    Attributes:
        queues: schedules of each punctuation type, in heap array order.
        created: number of created schedules, by node and method.
    """

    queues: Mapping[PunctuationType, tuple[SavedSchedule, ...]]
    created: Mapping[tuple[str, str], int]


class TaskSchedules:
    """The stream-time and wall-clock punctuation schedules of a task. They can be saved and restored.

    A schedule created in ``init`` is identified by its ordinal, because a re-created task calls ``init`` again. Other
    schedules are identified by the name of the processor method that they call.

    Args:
        task_id: task id, used in error messages.
        requires_methods: whether to reject schedules that could not be restored.
    """

    def __init__(self, task_id: str, requires_methods: bool) -> None:
        self._task_id, self._requires_methods = task_id, requires_methods
        self.queues = {kind: PunctuationQueue() for kind in PunctuationType}
        self._created: dict[tuple[str, str], int] = defaultdict(int)
        self._restored: dict[ScheduleKey, tuple[PunctuationType, Schedule]] = {}
        self._created_before: Mapping[tuple[str, str], int] = {}

    @property
    def stream_time_due_ms(self) -> int:
        """Stream time at which the next schedule is due, capped at ``NEVER``."""
        return min(self.queues[PunctuationType.STREAM_TIME].due_ms, NEVER)

    def create_in_init(
        self, node: str, kind: PunctuationType, due_ms: int, interval_ms: int, punctuator: Punctuator
    ) -> Schedule:
        """Create a schedule in ``init``, or return the restored schedule that an earlier ``init`` call created.

        Raises:
            StreamsError: the restored schedule has another punctuation type.
        """
        key = self._next_key(node, IN_INIT)
        found = self._restored.pop(key, None)
        if found is None:
            schedule = Schedule(key, due_ms, interval_ms, punctuator)
            if key.ordinal < self._created_before.get((node, IN_INIT), 0):
                schedule.cancel()  # it was cancelled before the task was saved
            else:
                self.queues[kind].add(schedule)
            return schedule
        saved_kind, schedule = found
        if saved_kind is not kind:
            raise StreamsError(
                f"processor {node!r}: schedule {key.ordinal} of init() uses {kind.value}, but was saved with "
                f"{saved_kind.value}; keep the order and types of saved schedules, and create new schedules after them"
            )
        schedule.interval_ms, schedule.punctuator = interval_ms, punctuator
        return schedule

    def create(
        self,
        node: str,
        processor: Processor,
        kind: PunctuationType,
        due_ms: int,
        interval_ms: int,
        punctuator: Punctuator,
    ) -> Schedule:
        """Create a schedule outside ``init``.

        Raises:
            StreamsError: the task takes snapshots, and the punctuator is not a method of the processor.
        """
        method = _find_method(processor, punctuator)
        if self._requires_methods and not method:
            raise StreamsError(_describe_unnamed(node))
        schedule = Schedule(self._next_key(node, method), due_ms, interval_ms, punctuator)
        self.queues[kind].add(schedule)
        return schedule

    def find(self, node: str) -> dict[tuple[str, int], Schedule]:
        """Return the active schedules of a node, by method and ordinal."""
        schedules = (schedule for queue in self.queues.values() for schedule in queue.schedules)
        return {one.key[1:]: one for one in schedules if one.key.node == node and not one.is_cancelled}

    # ---- snapshots ----

    def save(self) -> SavedSchedules:
        """Return all schedules for a snapshot.

        Raises:
            StreamsError: a schedule cannot be restored, because its punctuator is not a method of the processor.
        """
        for schedule in (item for queue in self.queues.values() for item in queue.queue.items):
            if not schedule.key.method and not schedule.is_cancelled:
                raise StreamsError(f"task {self._task_id}: {_describe_unnamed(schedule.key.node)}")
        queues = {
            kind: tuple(SavedSchedule(s.key, s.due_ms, s.interval_ms, s.is_cancelled) for s in queue.queue.items)
            for kind, queue in self.queues.items()
        }
        return SavedSchedules(queues, dict(self._created))

    def restore(self, saved: SavedSchedules) -> None:
        """Restore saved schedules; called before the processors are initialized."""
        self._created.clear()
        self._created.update({key: count for key, count in saved.created.items() if key[1] != IN_INIT})
        self._created_before = saved.created
        for kind, schedules in saved.queues.items():
            restored = []
            for key, due_ms, interval_ms, is_cancelled in schedules:
                schedule = Schedule(key, due_ms, interval_ms, _do_nothing)
                schedule.is_cancelled = is_cancelled
                restored.append(schedule)
                self._restored[key] = kind, schedule
            self.queues[kind].queue.items[:] = restored

    def attach(self, node: str, processor: Processor) -> None:
        """Attach the restored schedules that were created outside ``init`` to the node's new processor.

        Raises:
            StreamsError: a schedule calls a method that the processor does not have.
        """
        for key in [key for key in self._restored if key.node == node and key.method != IN_INIT]:
            _, schedule = self._restored.pop(key)
            method = getattr(processor, key.method, None)
            if method is None and not schedule.is_cancelled:
                raise StreamsError(
                    f"task {self._task_id}: a saved schedule calls the method {key.method!r}, but processor {node!r} "
                    "has no such method"
                )
            schedule.punctuator = method or _do_nothing

    def finish_restoring(self) -> None:
        """Cancel restored schedules that ``init`` no longer creates; called after all processors are initialized."""
        for _, schedule in self._restored.values():
            schedule.cancel()
        self._restored.clear()
        self._created_before = {}

    def _next_key(self, node: str, method: str) -> ScheduleKey:
        ordinal = self._created[node, method]
        self._created[node, method] = ordinal + 1
        return ScheduleKey(node, method, ordinal)


def _find_method(processor: Processor, punctuator: Punctuator) -> str:
    """Return the method name if the punctuator is a method of the processor, else an empty string."""
    name: Any = getattr(punctuator, "__name__", "")
    is_method = getattr(punctuator, "__self__", None) is processor and hasattr(type(processor), str(name))
    return str(name) if is_method else ""


def _describe_unnamed(node: str) -> str:
    return (
        f"processor {node!r}: a schedule created outside init() cannot be saved, because its punctuator is not a "
        "method of the processor; pass a method such as self.punctuate"
    )


def _do_nothing(_now_ms: int) -> None:
    pass
