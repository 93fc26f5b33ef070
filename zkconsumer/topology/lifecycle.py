"""Application states and their transitions.

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

#: Ignored transitions: repeated shutdown requests and late state reports from threads are normal.
_IGNORED: dict[ApplicationState, frozenset[ApplicationState]] = {
    _S.PENDING_SHUTDOWN: frozenset(_S) - {_S.NOT_RUNNING},
    _S.NOT_RUNNING: frozenset({_S.PENDING_SHUTDOWN, _S.NOT_RUNNING}),
    _S.REBALANCING: frozenset({_S.REBALANCING}),
    _S.ERROR: frozenset({_S.PENDING_ERROR, _S.ERROR}),
    _S.PENDING_ERROR: frozenset(_S) - {_S.ERROR},
}

#: Function that is called with the new and the old state. The thread that changes the state calls it without holding
#: a lock.
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
        """Set the state listener, which replaces any previous listener; None removes it.

        Raises:
            StreamsError: the application was already started.
        """
        with self._changed:
            if self._state is not ApplicationState.CREATED:
                raise StreamsError(
                    f"a state listener must be set before the application is started; the state is {self._state.name}"
                )
            self._listener = listener

    def set_state(self, new: ApplicationState) -> bool:
        """Change the state, and return whether the change was accepted.

        Returns False if the change is ignored, because a shutdown or failure is in progress or complete, or because the
        application is already rebalancing.

        Raises:
            StreamsError: the transition is not allowed.
        """
        with self._changed:
            old, listener = self._state, self._listener
            if new in _IGNORED.get(old, ()):
                return False
            if new not in TRANSITIONS[old]:
                raise StreamsError(f"invalid state transition from {old.name} to {new.name}")
            self._state = new
            self._changed.notify_all()
        if listener is not None:
            listener(new, old)
        return True

    def wait_for(self, *states: ApplicationState, timeout_s: float | None = None) -> bool:
        """Wait for one of ``states``, and return whether it was reached before the timeout expired.

        Args:
            states: states to wait for.
            timeout_s: maximum time to wait, in seconds; None waits indefinitely.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._state in states, timeout_s)
