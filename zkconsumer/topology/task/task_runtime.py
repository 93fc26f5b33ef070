"""Services that the runtime provides to a task, and the states of a task."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop.native import RecordCache
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.pages import PageStore


@dataclass(frozen=True, kw_only=True)
class TaskRuntime:
    """Clock, storage and global stores of a task.

    Attributes:
        clock: function that returns the wall-clock time in milliseconds.
        pages: function that returns the page store of a state store, or None to keep its entries in memory.
        commit: function that commits the page changes of all stores atomically, or raises an error. The default does
            nothing, which is sufficient for in-memory stores.
        rollback: function that discards the page changes since the last commit.
        max_waiting: maximum number of records buffered while the task waits for data on empty partitions. Records
            above this limit are processed without waiting. None disables the limit.
        max_waiting_bytes: the same limit for the size of the keys, values and headers, in bytes.
        lag_of: function that returns the lag of a partition, or None if the lag is unknown.
        partition_count: function that returns the partition count of a topic, for use by sink partitioners.
        global_stores: global stores by name.
        cache: record cache limit shared by several tasks, which must run in one thread. If it is None, each task has
            its own limit, ``ApplicationConfig.statestore_cache_max_bytes``.
        continued: hashes of earlier sub-topology fingerprints whose snapshots are accepted; see
            ``snapshot.hash_fingerprint``.
        takes_snapshots: whether tasks resume from snapshots, and must reject schedules that cannot be saved.
    """

    clock: Callable[[], int]
    pages: Callable[[StateStore], PageStore | None]
    commit: Callable[[], object] = lambda: None
    rollback: Callable[[], object] = lambda: None
    max_waiting: int | None = None
    max_waiting_bytes: int | None = None
    lag_of: Callable[[TopicPartition], int | None] = lambda _partition: 0
    partition_count: Callable[[str], int] = lambda _topic: 1
    global_stores: Mapping[str, StateStore] = field(default_factory=dict)
    cache: RecordCache | None = None
    continued: frozenset[str] = frozenset()
    takes_snapshots: bool = False


class TaskState(enum.Enum):
    """State of a task. The value is the end of the error message for a call that the state does not allow.

    ::

        CREATED --initialize--> RUNNING --suspend--> SUSPENDED --resume--> RUNNING
        RUNNING, SUSPENDED --error--> FAILED
        every state --close--> CLOSED

    Source: Kafka 3.9 Task.State. Kafka Streams closes and re-creates a failed task; FAILED is an additional state.
    """

    CREATED = "before initialize()"
    RUNNING = "while the task was running"
    SUSPENDED = "while the task was suspended"
    FAILED = "after the task failed; close it and create a new task, which resumes from the last commit"
    CLOSED = "after close()"


#: Valid transitions: the states that may follow each state.
TRANSITIONS = {
    TaskState.CREATED: {TaskState.RUNNING, TaskState.CLOSED},
    TaskState.RUNNING: {TaskState.SUSPENDED, TaskState.FAILED, TaskState.CLOSED},
    TaskState.SUSPENDED: {TaskState.RUNNING, TaskState.FAILED, TaskState.CLOSED},
    TaskState.FAILED: {TaskState.CLOSED},
    TaskState.CLOSED: {TaskState.CLOSED},
}


class TaskLifecycle:
    """The state of a task, and the error that ended it.

    Args:
        task_id: task id, used in error messages.
    """

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self.state = TaskState.CREATED
        self._failure: BaseException | None = None

    def require(self, call: str, *states: TaskState) -> None:
        """Raise StreamsError unless the task is in one of ``states``."""
        if self.state not in states:
            raise StreamsError(f"task {self._task_id}: {call}() was called {self.state.value}") from self._failure

    def move(self, state: TaskState) -> None:
        """Change the state."""
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state

    def fail(self, failure: BaseException) -> None:
        """Change the state to FAILED because of ``failure``."""
        if self.state is not TaskState.FAILED:
            self.move(TaskState.FAILED)
        self._failure = failure
