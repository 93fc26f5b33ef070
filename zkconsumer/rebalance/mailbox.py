"""Mailbox: what other threads want from one thread, in the order in which it arrives."""

from __future__ import annotations

import enum
import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.rebalance.futures import complete_future


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that another thread has submitted."""

    function: Callable[[], Any]
    result: Future[Any]


class _Signal(enum.Enum):
    STOP = enum.auto()
    WAKE = enum.auto()


class Mailbox:
    """The queue on which everything arrives for one thread, the owner: calls of other threads, and events.

    Any thread may put events on ``queue``, and may call ``submit``, ``wake``, ``stop`` and ``close``. The owner calls
    ``process`` in its main loop and while a step of its work waits. So a call never runs at the same time as such a
    step, and needs no lock.

    Args:
        closed_message: text of the error with which calls fail while the mailbox is closed.

    Attributes:
        queue: receives events, for example those of a ZooKeeper session.
        is_stopping: whether the owner must terminate, because ``stop`` was processed or the mailbox was closed.
    """

    def __init__(self, closed_message: str) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_stopping = False
        self._closed_message = closed_message
        self._is_open = False  # whether a thread calls process()
        self._failure: ZkConsumerError | None = None

    # ---- any thread ----

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run ``function`` in the owner's thread; the future fails if the mailbox is closed before that.

        If the function returns a future, its result completes the call; the owner does not wait for it.
        """
        call = _Call(function, Future())
        self.queue.put(call)
        if not self._is_open:  # checked afterwards: the mailbox may be closed at the same time
            self._reject_calls()
        return call.result

    def wake(self) -> None:
        """Make the current or the next ``process`` return early."""
        self.queue.put(_Signal.WAKE)

    def stop(self) -> None:
        """Make ``process`` set ``is_stopping`` when everything before has been processed."""
        self.queue.put(_Signal.STOP)
        if not self._is_open:
            self.is_stopping = True

    def close(self, failure: ZkConsumerError | None = None) -> None:
        """Reject all calls from now on, and make the owner terminate.

        Args:
            failure: the error with which calls fail; None for ``ClosedError``.
        """
        self._failure = failure
        self.is_stopping, self._is_open = True, False
        self._reject_calls()
        self.wake()

    # ---- the owner ----

    def open(self) -> None:
        """Accept calls; called before the owner's thread starts."""
        self._is_open = True

    def process(self, timeout_s: float | None, until: Callable[[Any], bool] = lambda _event: False) -> list[Any]:
        """Wait for the first call or event for at most ``timeout_s`` seconds, and run the calls in the queue.

        What arrives meanwhile is left for the next call: threads that submit functions without a pause would keep the
        owner from everything else.

        Args:
            timeout_s: None waits without a limit.
            until: returns whether what is behind an event is left, too, because calls must see its consequences.

        Returns:
            the events that were in the queue.
        """
        events: list[Any] = []
        try:
            self._process(self.queue.get(timeout=timeout_s), events)
            for _ in range(self.queue.qsize()):
                if events and until(events[-1]):
                    break
                self._process(self.queue.get_nowait(), events)
        except queue.Empty:
            pass
        return events

    def _process(self, item: Any, events: list[Any]) -> None:
        if item is _Signal.STOP:
            self.is_stopping = True
        elif isinstance(item, _Call):
            self._run(item)
        elif item is not _Signal.WAKE:
            events.append(item)

    def _run(self, call: _Call) -> None:
        if self._is_open:
            complete_future(call.result, call.function)
        else:
            self._reject(call)

    def _reject_calls(self) -> None:
        """Make the calls in the queue fail; events and signals stay."""
        others = []
        try:
            while True:
                item = self.queue.get_nowait()
                if isinstance(item, _Call):
                    self._reject(item)
                else:
                    others.append(item)
        except queue.Empty:
            for other in others:
                self.queue.put(other)

    def _reject(self, call: _Call) -> None:
        if call.result.set_running_or_notify_cancel():
            call.result.set_exception(self._failure or ClosedError(self._closed_message))
