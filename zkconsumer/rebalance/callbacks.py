"""ConsumerRebalanceListener: the application's rebalance callbacks, and the thread that runs them.

Source: Kafka 1.1 kafka.javaapi.consumer.ConsumerRebalanceListener. Deliberate differences: no lock is held during a
callback, callbacks have a timeout and may commit offsets, and ``before_releasing_partitions`` receives only the revoked
partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future
from typing import Any

from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.futures import complete_future, wait_until_done
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.threads import OwnedThread


class ConsumerRebalanceListener:
    """Rebalance callbacks; subclass it and pass an instance to ``set_consumer_rebalance_listener``.

    If a callback raises an exception, the rebalance fails and is retried. The consumer waits up to
    ``rebalance.max.retries`` times ``rebalance.backoff.ms`` for a callback. JVM members give up a rebalance after that
    time if this consumer has not released the partitions assigned to them.
    """

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        """Called after record delivery from revoked partitions has stopped, but before the partitions are released.

        Args:
            partitions: revoked partition numbers by topic. If ``auto.commit.enable`` is true, their offsets are already
                committed; otherwise, call ``commit_offsets`` here.
        """

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        """Called after this consumer has claimed its newly assigned partitions, and before it fetches from them.

        Args:
            consumer_id: id of this consumer.
            assignment: thread id of each partition, by topic and partition number. With the strategy ``roundrobin``,
                it contains the topics of all members; with other strategies, only this consumer's topics.
        """


class CallbackRunner:
    """Runs the application's callbacks in a separate thread, so that the member thread can still process commits.

    Used by the member thread.

    See docs/decisions/08-rebalance-listener-thread.rst.

    Args:
        listener: the application's rebalance listener, or None.
        watch: session watch, which processes events during a callback and holds the membership.
        timeout_s: maximum seconds to wait for a callback.
    """

    def __init__(self, listener: ConsumerRebalanceListener | None, watch: SessionWatch, *, timeout_s: float) -> None:
        self._listener = listener
        self._watch = watch
        self._timeout_s = timeout_s
        self._consumer_id = watch.membership.consumer_id
        self._thread_name = f"zkconsumer-{watch.membership.group}-listener-{self._consumer_id}"
        self._reported: Assignment = {}  # assignment passed to the last callback
        self._log = get_logger("zkconsumer.rebalance")
        self._running: Future[None] | None = None  # running callback, even if it timed out

    def before_releasing_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Run the callback, unless the member is leaving the group; Kafka 1.1 does not call it on shutdown either.

        Raises:
            ZkConsumerError: the callback raised an exception.
            SessionLostError: the session was lost in the meantime.
        """
        if self._listener is None or self._watch.mailbox.is_stopping:
            return
        by_topic: dict[str, set[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, set()).add(number)
        self._run(self._listener.before_releasing_partitions, by_topic)

    def before_starting_fetchers(self, assignment: Assignment) -> None:
        """Run the callback if the group's assignment has changed.

        Raises:
            ZkConsumerError: the callback raised an exception.
            SessionLostError: the session was lost in the meantime.
        """
        if self._listener is None or assignment == self._reported:
            return
        by_topic: dict[str, dict[int, str]] = {}
        for (topic, number), thread in sorted(assignment.items()):
            by_topic.setdefault(topic, {})[number] = thread
        self._run(self._listener.before_starting_fetchers, self._consumer_id, by_topic)
        self._reported = assignment

    def forget_assignment(self) -> None:
        """Make the next assignment count as changed, even if it is the same; called when partitions are lost."""
        self._reported = {}

    def _run(self, method: Callable[..., None], *arguments: Any) -> None:
        deadline = time.monotonic() + self._timeout_s
        if self._running is not None and not wait_until_done(self._running, self._watch.wait, deadline):
            # Skip this call: callbacks never run concurrently, and the group must not wait any longer.
            self._log.error("rebalance_listener_still_running", method=method.__name__, timeout_s=self._timeout_s)
            return
        call: Future[None] = Future()
        self._running = call
        call.add_done_callback(lambda _: self._watch.wake())
        OwnedThread(
            lambda: complete_future(call, lambda: method(*arguments)), self._thread_name, call.set_exception
        ).start()
        if not wait_until_done(call, self._watch.wait, deadline):
            self._log.error(
                "rebalance_listener_timed_out",
                method=method.__name__,
                timeout_s=self._timeout_s,
                remedy="make the callback return within timeout_s",
            )
            return
        self._running = None
        error = call.exception()
        if error is not None:
            raise ZkConsumerError(f"ConsumerRebalanceListener.{method.__name__} raised {error!r}") from error
