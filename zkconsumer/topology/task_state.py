"""Task states and their transitions.

Source: Kafka 3.9 Task.State. Kafka Streams closes and re-creates a failed task; FAILED is an additional state.
"""

from __future__ import annotations

import enum

from zkconsumer.errors import StreamsError


class TaskState(enum.Enum):
    """State of a task. The value is the end of the error message for a call that the state does not allow.

    ::

        CREATED --initialize--> RUNNING --suspend--> SUSPENDED --resume--> RUNNING
        RUNNING, SUSPENDED --error--> FAILED
        every state --close--> CLOSED
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
