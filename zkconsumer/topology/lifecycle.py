"""The states of an application and their transitions.

Source: Kafka 3.9 KafkaStreams.State and KafkaStreams.setState.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable

from zkconsumer.errors import StreamsError


class ApplicationState(enum.Enum):
    """State of an application."""

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending shutdown"
    NOT_RUNNING = "not running"
    PENDING_ERROR = "pending error"
    ERROR = "error"


_S = ApplicationState

TRANSITIONS: dict[ApplicationState, frozenset[ApplicationState]] = {
    _S.CREATED: frozenset({_S.REBALANCING, _S.PENDING_SHUTDOWN}),
    _S.REBALANCING: frozenset({_S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.RUNNING: frozenset({_S.REBALANCING, _S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING}),
    _S.NOT_RUNNING: frozenset(),
    _S.PENDING_ERROR: frozenset({_S.ERROR}),
    _S.ERROR: frozenset(),
}

#: Transitions that are ignored, because a second shutdown or a late report of a thread is normal.
_IGNORED: dict[ApplicationState, frozenset[ApplicationState]] = {
    _S.PENDING_SHUTDOWN: frozenset(_S) - {_S.NOT_RUNNING},
    _S.NOT_RUNNING: frozenset({_S.PENDING_SHUTDOWN, _S.NOT_RUNNING}),
    _S.REBALANCING: frozenset({_S.REBALANCING}),
    _S.ERROR: frozenset({_S.PENDING_ERROR, _S.ERROR}),
    _S.PENDING_ERROR: frozenset(_S) - {_S.ERROR},
}

#: Called with the new and the old state, in the thread that changed it, without a lock.
StateListener = Callable[[ApplicationState, ApplicationState], object]


class Lifecycle:
    """The state of an application. The runtime changes it; any thread may read it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = ApplicationState.CREATED
        self._listener: StateListener | None = None

    @property
    def state(self) -> ApplicationState:
        """The current state."""
        with self._changed:
            return self._state

    def set_listener(self, listener: StateListener | None) -> None:
        """Set the function that is called with each change; there is at most one.

        Raises:
            StreamsError: the application was started.
        """
        with self._changed:
            if self._state is not ApplicationState.CREATED:
                raise StreamsError(
                    f"a state listener can be set only before the start; the state is {self._state.name}"
                )
            self._listener = listener

    def set_state(self, new: ApplicationState) -> bool:
        """Change the state, and return whether it was changed.

        False means that the change was ignored: a shutdown or failure is in progress or complete, or the application is
        already rebalancing.

        Raises:
            StreamsError: the transition is not possible.
        """
        with self._changed:
            old, listener = self._state, self._listener
            if new in _IGNORED.get(old, ()):
                return False
            if new not in TRANSITIONS[old]:
                raise StreamsError(f"the state cannot change from {old.name} to {new.name}")
            self._state = new
            self._changed.notify_all()
        if listener is not None:
            listener(new, old)
        return True

    def wait_for(self, *states: ApplicationState, timeout_s: float | None = None) -> bool:
        """Wait for one of the given states, and return False after the timeout.

        Args:
            states: the states.
            timeout_s: seconds; None waits without a limit.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._state in states, timeout_s)
