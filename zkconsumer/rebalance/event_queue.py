"""EventQueue: the events of one group member, in the order in which they arrive."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.zookeeper.session import Event


@dataclass(frozen=True, slots=True)
class _Request:
    """A function that another thread has submitted, to run in the member's thread."""

    function: Callable[[], Any]
    result: Future[Any]


_STOP = object()
_WAKE = object()


class EventQueue:
    """The queue on which all events arrive: fired watches, session state changes, and requests from other threads.

    Any thread may call ``submit``, ``wake`` and ``stop``. The other methods are for the member's thread, which calls
    ``process`` in its main loop and while a step of a rebalance waits. So a request never runs at the same time as a
    step of a rebalance, and no lock is needed.

    Attributes:
        queue: receives the events of the ZooKeeper session.
        on_zookeeper_event: called by ``process``; set before the first call of it.
        is_stopping: whether ``stop`` was called; written by the member's thread, or by ``MemberThread.stop`` if that
            thread does not run.
    """

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.on_zookeeper_event: Callable[[Event], None]
        self.is_stopping = False
        self._is_open = False  # whether a thread calls process()
        self._failure: ZkConsumerError | None = None

    # ---- any thread ----

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run ``function`` in the member's thread; the future fails with the member's error if it does not run.

        If the function returns a future, its result completes the request; the member's thread does not wait for it.
        """
        request = _Request(function, Future())
        self.queue.put(request)
        if not self._is_open:
            self._reject_requests()
        return request.result

    def wake(self) -> None:
        """Make the current or the next ``process`` return early."""
        self.queue.put(_WAKE)

    def stop(self) -> None:
        """Make ``process`` set ``is_stopping``."""
        self.queue.put(_STOP)

    # ---- the member's thread ----

    def open(self) -> None:
        """Accept requests; called before the member's thread starts."""
        self._is_open = True

    def close(self, failure: ZkConsumerError | None = None) -> None:
        """Reject all requests from now on; the member's thread terminates.

        Args:
            failure: the error with which requests fail; None for ``ClosedError``.
        """
        self._failure = failure
        self.is_stopping, self._is_open = True, False
        self._reject_requests()

    def process(self, timeout_s: float | None) -> None:
        """Wait for the first event for at most ``timeout_s`` seconds, and process those that are in the queue then.

        Events that arrive meanwhile are left for the next call: threads that commit each message would keep the member
        from everything else.

        Args:
            timeout_s: None waits without a limit.
        """
        try:
            self._process(self.queue.get(timeout=timeout_s))
            for _ in range(self.queue.qsize()):
                self._process(self.queue.get_nowait())
        except queue.Empty:
            pass

    def _process(self, item: Any) -> None:
        if item is _STOP:
            self.is_stopping = True
        elif isinstance(item, _Request):
            if item.result.set_running_or_notify_cancel():
                try:
                    result = item.function()
                except BaseException as error:
                    item.result.set_exception(error)
                else:
                    _complete(item.result, result)
        elif isinstance(item, Event):
            self.on_zookeeper_event(item)

    def _reject_requests(self) -> None:
        while True:
            try:
                item = self.queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, _Request) and item.result.set_running_or_notify_cancel():
                item.result.set_exception(
                    self._failure or ClosedError("the consumer has been shut down; offsets can no longer be committed")
                )


def _complete(request: Future[Any], result: Any) -> None:
    """Set the result of a request, at once or when the future that is its result is done."""
    if not isinstance(result, Future):
        request.set_result(result)
        return

    def copy(done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            request.set_exception(error)
        else:
            request.set_result(done.result())

    result.add_done_callback(copy)
