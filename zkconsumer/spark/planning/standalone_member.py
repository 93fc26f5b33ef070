"""Owns all partitions of a subscription without joining a group (``membership=none``).

``StandaloneMember`` has the same methods as ``GroupMember``, so batches are planned in the same way. It acquires new
partitions, releases deleted ones, and reads and commits the group's offsets if the options require it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.health import HealthReason, Problem, stalled_partitions
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.factory import create_cluster
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.rebalance.handler import AssignedPartition, PartitionHandler, failure_of
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.threads import OwnedThread
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Placeholder for the thread id that owns a partition.
_NO_THREAD = "standalone"


class StandaloneMember:
    """Owns all partitions of a subscription. One thread lists the partitions and commits offsets.

    Only that thread writes the public attributes, and it replaces ``assignment`` as a whole; any thread may read them.

    Args:
        handler: handler that the member's thread notifies of acquired and released partitions.
        has_offsets: whether to read and commit the group's offsets.
        unavailable_timeout_s: maximum seconds to wait for ZooKeeper or the brokers at startup.

    Attributes:
        assignment: all partitions, each mapped to a placeholder thread id.
        rebalances: number of changes to the set of partitions.
        discoveries: number of times that the partitions were listed.
        unbalanced_since: time (``time.monotonic``) at which attempts to list partitions started to fail; None if the
            last one succeeded.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        handler: PartitionHandler,
        *,
        has_offsets: bool,
        unavailable_timeout_s: float,
    ) -> None:
        self.consumer_id = f"{config.group_id}_standalone-{os.getpid()}"
        self.assignment: dict[TopicPartition, str] = {}
        self.rebalances = 0
        self.discoveries = 0
        self.unbalanced_since: float | None = None
        self._problem: Problem | None = None  # set while the partitions cannot be listed
        self._config = config
        self._subscription = subscription
        self._handler = handler
        self._unavailable_timeout_s = unavailable_timeout_s
        self._mailbox = Mailbox("the query was stopped; offsets can no longer be committed")
        self._session: ZooKeeperSession | None = None
        self._offsets: ZooKeeperOffsets | None = None
        if has_offsets or not config.bootstrap_servers:
            self._session = ZooKeeperSession.from_config(config, self._mailbox.queue)
            if has_offsets:
                self._offsets = ZooKeeperOffsets(
                    self._session, config.group_id, topic_ids=lambda: self.cluster.topic_ids
                )
        self.cluster = create_cluster(config, self._session, Connecting.from_config(config))
        self._first: Future[None] = Future()
        self._deadline = 0.0
        self._log = get_logger("zkconsumer.spark", group=config.group_id)
        self._thread = OwnedThread(self._run, f"zkconsumer-{config.group_id}-discovery", self._fail)

    @property
    def holds_lease(self) -> bool:
        """Always true, because no other member takes over the partitions."""
        return True

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """All partitions, as in a group with one member."""
        return self.assignment

    def start(self, connect_timeout_s: float = 0.0) -> None:
        """Connect, and list the partitions.

        Args:
            connect_timeout_s: see ``ZooKeeperSession.start``.

        Raises:
            ZkConsumerError: ZooKeeper or the brokers did not respond.
        """
        if self._session is not None:
            self._session.start(connect_timeout_s)
        self._deadline = time.monotonic() + self._unavailable_timeout_s
        self._mailbox.open()
        self._thread.start()
        try:
            self._first.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread and close the connections."""
        self.cluster.close()  # first, because the thread may be waiting for a response
        self._mailbox.stop()
        self._thread.join(self._config.zookeeper_connection_timeout_s)
        if self._session is not None:
            self._session.close()

    def health_reasons(self) -> list[HealthReason]:
        """Return the reasons why partitions cannot be listed or are stalled; empty if the member is healthy."""
        problem, problems = self._problem, self.cluster.problems
        reasons = [] if problem is None else [problem.reason()]
        assigned = sorted(self.assignment)
        return [*reasons, *stalled_partitions((p, problems[p.topic]) for p in assigned if p.topic in problems)]

    def wake(self) -> None:
        """Do nothing, because no other member waits for a partition."""

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        *,
        allow_lower: bool = False,
        timeout_s: float | None = None,
        on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit offsets for the group, and return the committed offsets; see ``GroupMember.commit``."""

        def work() -> dict[TopicPartition, int]:
            committed = dict(offsets() if callable(offsets) else offsets)
            if self._offsets is not None:
                committed = self._offsets.commit(committed, allow_lower=allow_lower)
            if on_committed is not None:
                on_committed(committed)
            return committed

        timeout_s = self._config.zookeeper_connection_timeout_s if timeout_s is None else timeout_s
        result: Future[dict[TopicPartition, int]] = self._mailbox.submit(work)
        try:
            return result.result(timeout_s)
        except FutureTimeoutError as error:
            result.cancel()
            raise ZooKeeperUnavailableError(
                f"offsets were not committed within {timeout_s:g} s; the commit will be retried"
            ) from error

    def _run(self) -> None:
        next_discovery: float | None = 0.0
        while not self._mailbox.is_stopping:
            if self._session is not None and (failure := self._session.failure) is not None:
                raise failure
            if next_discovery is not None and time.monotonic() >= next_discovery:
                next_discovery = self._discover()
            timeout_s = None if next_discovery is None else max(0.0, next_discovery - time.monotonic())
            # After an event, list the partitions before processing further commits: a topic may have been re-created.
            if self._mailbox.process(timeout_s, until=lambda _event: True):
                next_discovery = 0.0
        self._end(ClosedError("the query was stopped before it had listed the partitions"))

    def _end(self, error: BaseException, failure: ZkConsumerError | None = None) -> None:
        """Reject all further commits, and make a pending ``start`` raise ``error``."""
        self._mailbox.close(failure)
        if not self._first.done():
            self._first.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        failure = failure_of(error)
        self._end(failure, failure)
        self._handler.fail(failure)

    def _discover(self) -> float | None:
        """List the partitions.

        Returns:
            Time (``time.monotonic``) at which to list them again; None to wait for the next event.
        """
        try:
            self._update_assignment()
        except BaseException as error:
            is_retriable = isinstance(error, RetriableError) and time.monotonic() < self._deadline
            if not self._first.done() and not is_retriable:
                self._first.set_exception(error)
                return None
            if not isinstance(error, ZkConsumerError):
                self._handler.fail(failure_of(error))
                return None
            self._problem = Problem.again(self._problem, "partitions_not_found", error)
            if self.unbalanced_since is None:
                self.unbalanced_since = time.monotonic()
                self._log.warning("partitions_not_found", error=str(error))
            return time.monotonic() + self._config.rebalance_backoff_s
        self.unbalanced_since = self._problem = None
        if not self._first.done():
            self._first.set_result(None)
        interval = self.cluster.poll_interval_s
        return None if interval is None else time.monotonic() + interval

    def _update_assignment(self) -> None:
        found = self._subscription.partitions(self.cluster, self._config.exclude_internal_topics)
        if deleted := self.assignment.keys() - set(found):
            self._handler.on_partitions_revoked(deleted, True)
        new = [partition for partition in found if partition not in self.assignment]
        committed = self._offsets.fetch(new) if self._offsets is not None and new else {}
        self.assignment = dict.fromkeys(found, _NO_THREAD)
        if new:
            offsets = {partition: committed.get(partition, -1) for partition in new}
            self._handler.on_partitions_assigned(
                {
                    p: AssignedPartition(_NO_THREAD, max(offset, -1), offset == OF_DELETED_TOPIC)
                    for p, offset in offsets.items()
                }
            )
        self.discoveries += 1
        self.rebalances += bool(new or deleted)
