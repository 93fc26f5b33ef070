"""Mailbox: a queue of calls and events for one thread, processed in the order of arrival."""

from __future__ import annotations

import enum
import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.rebalance.futures import fail_future


@dataclass(frozen=True, slots=True)
class _Call:
    """A function submitted by another thread, and the future that it completes."""

    function: Callable[[], object]
    result: Future[Any]


class _Signal(enum.Enum):
    STOP = enum.auto()
    WAKE = enum.auto()


class Mailbox:
    """A queue of events and of calls from other threads, processed by the thread that owns the mailbox.

    Any thread may put events on ``queue``, and may call ``submit``, ``post``, ``wake``, ``stop`` and ``close``. The
    owner calls ``process`` in its main loop, and whenever a step of its work has to wait. Calls therefore never run
    concurrently with such a step, and need no lock.

    Args:
        closed_message: message of the ``ClosedError`` for calls that are rejected because the mailbox is closed.

    Attributes:
        queue: queue for events, such as ZooKeeper session events.
        is_stopping: whether the owner must terminate, because ``stop`` was processed or the mailbox was closed.
    """

    def __init__(self, closed_message: str) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_stopping = False
        self._closed_message = closed_message
        self._is_open = False  # whether the owner thread accepts calls
        self._failure: ZkConsumerError | None = None

    # ---- called by any thread ----

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run ``function`` in the owner thread, and return a future with its result.

        The future fails if the mailbox is closed first. If it is cancelled first, ``function`` does not run.
        """
        result: Future[Any] = Future()

        def run() -> None:
            if result.set_running_or_notify_cancel():
                result.set_result(function())

        self.post(run, result)
        return result

    def post(self, function: Callable[[], object], result: Future[Any]) -> None:
        """Run ``function``, which completes ``result`` immediately or later, in the owner thread.

        ``result`` fails if ``function`` raises an exception, or if the mailbox is closed first.
        """
        self.queue.put(_Call(function, result))
        if not self._is_open:  # checked after put(), because the mailbox may be closed concurrently
            self._reject_calls()

    def wake(self) -> None:
        """Make the current or the next ``process`` return early."""
        self.queue.put(_Signal.WAKE)

    def stop(self) -> None:
        """Make ``process`` set ``is_stopping`` after all earlier calls and events have been processed."""
        self.queue.put(_Signal.STOP)
        if not self._is_open:
            self.is_stopping = True

    def close(self, failure: ZkConsumerError | None = None) -> None:
        """Reject pending and future calls, and make the owner terminate.

        Args:
            failure: exception for rejected calls; None for ``ClosedError``.
        """
        self._failure = failure
        self.is_stopping, self._is_open = True, False
        self._reject_calls()
        self.wake()

    # ---- called by the owner thread ----

    def open(self) -> None:
        """Accept calls; must be called before the owner thread starts."""
        self._is_open = True

    def process(self, timeout_s: float | None, until: Callable[[Any], bool] = lambda _event: False) -> list[Any]:
        """Wait for the first call or event, and run the calls in the queue.

        Calls and events that arrive in the meantime are left for the next ``process``. Otherwise, threads that submit
        calls continuously would keep the owner from all other work.

        Args:
            timeout_s: maximum seconds to wait; None waits indefinitely.
            until: function that returns whether to stop after an event, because later calls depend on how the owner
                handles it.

        Returns:
            The events that were taken from the queue.
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
        if not self._is_open:
            self._reject(call)
            return
        try:
            call.function()
        except BaseException as error:
            fail_future(call.result, error)

    def _reject_calls(self) -> None:
        """Reject the calls in the queue, but keep the events and signals."""
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
        fail_future(call.result, self._failure or ClosedError(self._closed_message))
