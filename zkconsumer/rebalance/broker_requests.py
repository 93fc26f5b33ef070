"""BrokerRequestThread: sends the requests of a group member that may have to wait for brokers.

The member's thread registers, claims and releases partitions. If it waited for a broker, the group would wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

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

#: Maximum seconds to wait for a function that does not return after it was aborted.
_JOIN_TIMEOUT_S = 5.0

#: Maximum seconds to wait for a function whose own deadline does not end it.
_MAX_CALL_S = 600.0

#: Minimum seconds for which a lookup of partitions is not abandoned when the group changes.
LOOKUP_GRACE_S = 1.0

#: The grace doubles each time that a lookup is abandoned, up to this limit, so that slow brokers are heard at last.
_MAX_LOOKUP_GRACE_S = 4.0


class BrokerRequestThread:
    """Runs functions one after another in a separate thread.

    Each function must have a deadline of its own, because the functions after it wait for it.

    Args:
        thread_name: name of the thread.
        watch: lets the member's thread wait for the result of a function.
        join_timeout_s: maximum seconds that ``join`` waits for a function that does not return after it was aborted.

    Attributes:
        watch: as above.
    """

    def __init__(self, thread_name: str, watch: SessionWatch, *, join_timeout_s: float = _JOIN_TIMEOUT_S) -> None:
        self.watch = watch
        self._join_timeout_s = join_timeout_s
        self._mailbox = Mailbox("the consumer has been shut down")
        self._thread = OwnedThread(self._run, thread_name, lambda error: self._mailbox.close(failure_of(error)))
        self._log = get_logger("zkconsumer.rebalance")

    def start(self) -> None:
        """Start the thread."""
        self._mailbox.open()
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a function after those that were submitted before; any thread may call it."""
        return self._mailbox.submit(function)

    def call(
        self,
        function: Callable[[], T],
        deadline: float | None = None,
        *,
        wait: Callable[[float], object] | None = None,
    ) -> T:
        """Run a function and return its result; the member's thread processes events while it waits.

        Args:
            deadline: ``time.monotonic`` until which to wait; None for the deadline of the function itself.
            wait: called instead of ``SessionWatch.wait``; an error of it ends the call.

        Raises:
            TimeoutError: the function has not returned by ``deadline``; it is not run if it has not begun.
            BrokerUnavailableError: the function has not returned, in spite of its own deadline.
            SessionLostError: the session was lost meanwhile.
        """
        future = self.submit(function)
        future.add_done_callback(lambda _: self.watch.wake())
        try:
            limit = time.monotonic() + _MAX_CALL_S if deadline is None else deadline
            if not wait_until_done(future, wait or self.watch.wait, limit):
                raise TimeoutError if deadline else BrokerUnavailableError(f"no result within {_MAX_CALL_S:g} s")
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
        """Run no further functions; the thread ends when the one that is running has returned.

        Args:
            abort: makes the function that is running return; called when no other function can begin any more.
        """
        self._mailbox.close()
        abort()

    def join(self) -> None:
        """Wait for the end of the thread after ``close``, for some seconds."""
        if not self._thread.join(self._join_timeout_s) and not self._thread.is_current:
            self._log.warning("broker_call_abandoned", timeout_s=self._join_timeout_s)

    def _run(self) -> None:
        while not self._mailbox.is_stopping:
            self._mailbox.process(None)


class ClusterProxy:
    """A ``Cluster`` whose requests to brokers are sent by ``BrokerRequestThread``. Used by the member's thread.

    If the group changes while a lookup waits for brokers, the lookup is abandoned after some time, so that the next
    rebalance can release what the last known partitions permit. That time doubles until a lookup has succeeded, so that
    frequent changes of the group cannot prevent slow brokers from ever being heard.

    Args:
        cluster: sends the requests; if all changes are events, in the member's thread.
        requests: the thread that sends them.
        on_change: called if a poll finds other partitions than the lookup before it. Lookups for other reasons do not
            call it, because the event that causes them also reaches the other members.
        lookup_grace_s: minimum seconds for which a lookup is not abandoned when the group changes.

    Attributes:
        cluster: as above.
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
        """Start the thread, if requests are sent to brokers."""
        if self.poll_interval_s is not None:
            self._requests.start()

    def mark_next_lookup_as_poll(self) -> None:
        """Treat the next lookup as a poll, because ``poll_interval_s`` has passed."""
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
            raise BrokerUnavailableError("the group changed while no broker returned partition metadata")

    def close(self) -> None:
        """Abort a request that is running, and reject all others."""
        self._requests.close(abort=self.cluster.close)

    def join(self) -> None:
        """Wait for the end of the thread after ``close``, for some seconds."""
        self._requests.join()
