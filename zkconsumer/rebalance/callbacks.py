"""ConsumerRebalanceListener: what a user may have done when partitions come and go, and how it is called.

Source: Kafka 1.1 kafka.javaapi.consumer.ConsumerRebalanceListener. Different on purpose: it is called without any lock
held and for a bounded time, may commit, and is told of the partitions that really go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from typing import Any

from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger


class ConsumerRebalanceListener:
    """Subclass it, and give it to ``set_consumer_rebalance_listener``.

    An exception of a method fails the rebalance, which is tried again. A method that takes longer than
    ``rebalance.max.retries`` times ``rebalance.backoff.ms`` is not waited for any more: that is how long other members
    keep trying to claim what this one gives up.
    """

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        """Called when partitions go to others: nothing more is delivered of them, they are still owned.

        Args:
            partitions: topic to partition numbers. What has been handed out of them is stored, with
                ``auto.commit.enable``; without it, call ``commit_offsets`` here.
        """

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        """Called when the group has a new assignment and this member has claimed its part, before that is fetched.

        Args:
            consumer_id: this member's.
            assignment: topic to partition to thread id, of all members; with ``range`` of this member's topics.
        """


class Callbacks:
    """Calls a user's listener in a thread of its own, so that the member's thread goes on serving commits.

    Args:
        limit: seconds that a call is waited for.
        attend: takes in what happens to the member for some seconds; returns early when ``wake`` was called.
        wake: called from the other thread.
    """

    def __init__(
        self,
        listener: ConsumerRebalanceListener,
        name: str,
        *,
        limit: float,
        attend: Callable[[float], None],
        wake: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._name = name
        self._limit = limit
        self._attend = attend
        self._wake = wake
        self._log = get_logger("zkconsumer.rebalance")
        self._running: Future[None] | None = None

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        """Call it.

        Raises:
            ZkConsumerError: the user's method raised.
        """
        self._call(self._listener.before_releasing_partitions, partitions)

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        """Call it; raises as the other."""
        self._call(self._listener.before_starting_fetchers, consumer_id, assignment)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        deadline = time.monotonic() + self._limit
        if self._running is not None and not self._wait_for(self._running, deadline):
            self._log.error("rebalance_listener_still_runs", method=method.__name__, seconds=self._limit)
            return  # the group must not wait for it; it is not called again before it has returned
        call: Future[None] = Future()
        self._running = call

        def run() -> None:
            try:
                method(*arguments)
            except BaseException as error:
                call.set_exception(error)
            else:
                call.set_result(None)
            self._wake()

        threading.Thread(target=run, name=self._name, daemon=True).start()
        if not self._wait_for(call, deadline):
            self._log.error(
                "rebalance_listener_too_slow",
                method=method.__name__,
                seconds=self._limit,
                remedy="return sooner; the rebalance goes on without it",
            )
            return
        self._running = None
        error = call.exception()
        if error is not None:
            raise ZkConsumerError(f"ConsumerRebalanceListener.{method.__name__} raised {error!r}") from error

    def _wait_for(self, call: Future[None], deadline: float) -> bool:
        while not call.done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._attend(left)
        return True
