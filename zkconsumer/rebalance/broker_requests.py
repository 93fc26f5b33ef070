"""BrokerRequestThread: sends a group member's requests that may have to wait for brokers.

The member thread registers the member, and claims and releases partitions. If it waited for a broker, the whole group
would wait.

See docs/decisions/05-requests-to-brokers-have-deadlines.rst.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.health import Problem
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.metadata.base import Cluster, FoundTopics
from zkconsumer.rebalance.futures import wait_until_done
from zkconsumer.rebalance.handler import failure_of
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.threads import OwnedThread

T = TypeVar("T")

#: Maximum seconds to wait for an aborted function to return.
_JOIN_TIMEOUT_S = 5.0

#: Maximum seconds to wait for a function that is called without a deadline.
_MAX_CALL_S = 600.0

#: Initial grace period, in seconds, before a partition lookup is abandoned when the group changes.
LOOKUP_GRACE_S = 1.0

#: Maximum grace period in seconds. The grace period doubles with each abandoned lookup, because brokers may be slow.
_MAX_LOOKUP_GRACE_S = 4.0


class BrokerRequestThread:
    """Runs functions one after another in a separate thread.

    Each function must have its own deadline, because subsequent functions wait for it.

    Args:
        thread_name: name of the thread.
        watch: session watch that the member thread uses to wait for the result of a function.
        join_timeout_s: maximum seconds that ``join`` waits for an aborted function to return.

    Attributes:
        watch: session watch of the member.
    """

    def __init__(self, thread_name: str, watch: SessionWatch, *, join_timeout_s: float = _JOIN_TIMEOUT_S) -> None:
        self.watch = watch
        self._join_timeout_s = join_timeout_s
        self._mailbox = Mailbox("the consumer was shut down")
        self._thread = OwnedThread(self._run, thread_name, lambda error: self._mailbox.close(failure_of(error)))
        self._log = get_logger("zkconsumer.rebalance")

    def start(self) -> None:
        """Start the thread."""
        self._mailbox.open()
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a function after all previously submitted functions; return its future. May be called from any thread."""
        return self._mailbox.submit(function)

    def post(self, function: Callable[[], object], result: Future[Any]) -> None:
        """Run a function after all previously submitted functions; see ``Mailbox.post``."""
        self._mailbox.post(function, result)

    def call(
        self,
        function: Callable[[], T],
        deadline: float | None = None,
        *,
        wait: Callable[[float], object] | None = None,
    ) -> T:
        """Run a function and return its result; the member thread processes events while it waits.

        Args:
            function: function to run.
            deadline: value of ``time.monotonic()`` until which to wait; None to rely on the function's own deadline.
            wait: function that is called instead of ``SessionWatch.wait``; an exception that it raises aborts the call.

        Raises:
            TimeoutError: the function did not return by ``deadline``; it will not run if it has not started.
            BrokerUnavailableError: the function did not return despite its own deadline.
            SessionLostError: the session was lost in the meantime.
        """
        future = self.submit(function)
        future.add_done_callback(lambda _: self.watch.wake())
        try:
            limit = time.monotonic() + _MAX_CALL_S if deadline is None else deadline
            if not wait_until_done(future, wait or self.watch.wait, limit):
                raise TimeoutError if deadline else BrokerUnavailableError(f"no response within {_MAX_CALL_S:g} s")
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def process_events_for(self, duration_s: float) -> None:
        """Process the member's events for ``duration_s`` seconds."""
        deadline = time.monotonic() + duration_s
        while (remaining := deadline - time.monotonic()) > 0:
            self.watch.wait(remaining)

    def close(self, abort: Callable[[], object]) -> None:
        """Run no further functions; the thread terminates when the running function returns.

        Args:
            abort: function that makes the running function return; called as soon as no other function can start.
        """
        self._mailbox.close()
        abort()

    def join(self) -> None:
        """Wait a limited time for the thread to terminate after ``close``."""
        if not self._thread.join(self._join_timeout_s) and not self._thread.is_current:
            self._log.warning("broker_call_abandoned", timeout_s=self._join_timeout_s)

    def _run(self) -> None:
        while not self._mailbox.is_stopping:
            self._mailbox.process(None)


class ClusterProxy:
    """A ``Cluster`` that sends requests to brokers in a ``BrokerRequestThread``. Used by the member thread.

    If the group changes while a lookup waits for brokers, the lookup is abandoned after a grace period, so that the
    next rebalance can release partitions based on the last known metadata. The grace period doubles with each
    abandoned lookup, up to a limit, and is reset when a lookup of partitions succeeds. With a constant grace period,
    every lookup could be abandoned if the group changes frequently and the brokers are slow.

    Args:
        cluster: cluster metadata. If it is not polled, its lookups run in the member thread.
        requests: thread that sends the requests to brokers.
        on_change: function that is called if a poll finds different partitions than the previous lookup. It is not
            called after other lookups, because the event that triggers them also reaches the other members.
        lookup_grace_s: initial grace period in seconds.

    Attributes:
        cluster: wrapped cluster metadata.
        poll_interval_s: see ``Cluster``.
    """

    def __init__(
        self,
        cluster: Cluster,
        requests: BrokerRequestThread,
        on_change: Callable[[], object],
        *,
        lookup_grace_s: float = LOOKUP_GRACE_S,
    ) -> None:
        self.poll_interval_s = cluster.poll_interval_s
        self.cluster = cluster
        self._requests = requests
        self._on_change = on_change
        self._is_polling = False
        self._last: dict[str, list[int]] | None = None
        self._began_at = 0.0
        self._lookup_grace_s = self._grace_s = lookup_grace_s

    def start(self) -> None:
        """Start the thread if the metadata is requested from brokers."""
        if self.poll_interval_s is not None:
            self._requests.start()

    def mark_next_lookup_as_poll(self) -> None:
        """Treat the next lookup as a poll; called when ``poll_interval_s`` has passed."""
        self._is_polling = True

    @property
    def problems(self) -> Mapping[str, Problem]:
        """See ``Cluster``."""
        return self.cluster.problems

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """See ``Cluster``."""
        return self.cluster.topic_ids

    def brokers(self) -> list[Endpoint]:
        """See ``Cluster``."""
        return self.cluster.brokers()

    def topics(self) -> list[str]:
        """See ``Cluster``."""
        return self._look_up(self.cluster.topics)

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """See ``Cluster``."""
        found = self._look_up(lambda: self.cluster.partitions(topics))
        if self._is_polling and found != self._last is not None:
            self._on_change()
        self._is_polling, self._last, self._grace_s = False, found, self._lookup_grace_s
        return found

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        """See ``Cluster``."""
        return self.cluster.look_up_topic_ids(topics)

    def _look_up(self, function: Callable[[], T]) -> T:
        if self.poll_interval_s is None:
            return function()
        self._began_at = time.monotonic()
        return self._requests.call(function, wait=self._wait)

    def _wait(self, timeout_s: float) -> None:
        watch = self._requests.watch
        grace_s = self._began_at + self._grace_s - time.monotonic()
        watch.wait(min(timeout_s, grace_s) if grace_s > 0.0 else timeout_s)
        if watch.needs_rebalance and time.monotonic() - self._began_at >= self._grace_s:
            self._grace_s = min(2 * self._grace_s, _MAX_LOOKUP_GRACE_S)
            raise BrokerUnavailableError("the group changed before a broker returned the partition metadata")

    def close(self) -> None:
        """Abort the running request, and reject all others."""
        self._requests.close(abort=self.cluster.close)

    def join(self) -> None:
        """Wait a limited time for the thread to terminate after ``close``."""
        self._requests.join()
