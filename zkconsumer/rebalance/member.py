"""GroupMember: one member of a ZooKeeper-coordinated consumer group, without fetchers.

The plain consumer and Spark's driver each use one, with different implementations of ``PartitionHandler``.

Source: Kafka 1.1 ZookeeperConsumerConnector, without its streams and fetchers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.health import HealthReason, HealthState, stalled_partitions
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.broker_requests import ClusterProxy
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.member_thread import MemberThread
from zkconsumer.rebalance.session_watch import SessionWatch

#: Maximum seconds for leaving the group, in addition to the handler's ``release_timeout_s``.
_LEAVE_TIMEOUT_S = 10.0


class GroupMember:
    """Registers in a group, takes part in its rebalances, and commits offsets.

    Any thread may call its methods. The work is done by its ``MemberThread``.

    ``member_factory.create_member`` creates it.

    Args:
        config: properties of the consumer.
        watch: the session, the membership, and the calls of other threads.
        cluster: the brokers, topics and partitions.
        committer: commits offsets.
        thread: registers and rebalances.
        handler: delivers the records of the member's partitions.

    Attributes:
        config: as above.
        session: the member's connection to ZooKeeper.
        cluster: the brokers, topics and partitions; any thread may use it.
        consumer_id: the id of the member.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        watch: SessionWatch,
        cluster: ClusterProxy,
        committer: OffsetCommitter,
        thread: MemberThread,
        handler: PartitionHandler,
    ) -> None:
        self.config = config
        self.session = watch.session
        self.cluster = cluster.cluster
        self.consumer_id = watch.membership.consumer_id
        self._watch = watch
        self._membership = watch.membership
        self._mailbox = watch.mailbox
        self._lookups = cluster
        self._committer = committer
        self._thread = thread
        self._attempts = thread.attempts
        self._handler = handler

    def start(self, connect_timeout_s: float = 0.0) -> None:
        """Connect, register, and wait for the first rebalance; after an error, the member has left the group.

        Args:
            connect_timeout_s: see ``ZooKeeperSession.start``.

        Raises:
            ZooKeeperUnavailableError: the ensemble could not be reached.
            ConfigurationError: the chroot does not exist, or the settings make a rebalance impossible.
            AuthenticationError: ZooKeeper rejected the credentials.
            ConsumerRebalanceFailedError, ClosedError: see ``MemberThread.start``.
        """
        self.session.start(connect_timeout_s)
        try:
            self._committer.start()
            self._lookups.start()
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release and commit all partitions, leave the group, and end the session."""
        with ExitStack() as closing:  # each step runs, also after an error; the last one first
            closing.callback(self._committer.join)
            closing.callback(self._lookups.join)
            closing.callback(self.session.close)  # a call that is running may be waiting for ZooKeeper
            closing.callback(self._committer.close)
            closing.callback(self._thread.stop, self._handler.release_timeout_s + _LEAVE_TIMEOUT_S)
            closing.callback(self._lookups.close)  # the member's thread may be waiting for the response to a lookup

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that the member owns, with their thread ids."""
        return dict(self._membership.assignment)

    @property
    def holds_lease(self) -> bool:
        """Whether no other member can own the partitions of ``assignment`` yet."""
        return self._membership.holds_lease

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """The group's assignment that the last rebalance computed: partition to thread id."""
        return self._membership.group_assignment

    @property
    def rebalances(self) -> int:
        """Number of successful rebalances."""
        return self._attempts.completed

    @property
    def discoveries(self) -> int:
        """Number of times that topics and partitions were read: once per successful rebalance."""
        return self._attempts.completed

    @property
    def unbalanced_since(self) -> float | None:
        """``time.monotonic`` of the first failed rebalance, or of the member's failure; None if it is balanced."""
        return self._attempts.unbalanced_since

    def health_reasons(self) -> list[HealthReason]:
        """Return why the member does not own its partitions, or does not commit; empty if it does. Any thread."""
        if (failure := self._thread.failure) is not None:
            return [HealthReason(HealthState.FAILED, "member_failed", self._thread.failed_at, str(failure))]
        reasons = []
        if self._membership.has_registered and not self._membership.holds_lease:
            message = (
                f"ZooKeeper at {self.session.hosts!r} has not confirmed the session in time; nothing is delivered "
                "until the consumer has registered again"
            )
            since = self.session.lease.expired_at
            reasons.append(HealthReason(HealthState.DISCONNECTED, "zookeeper_disconnected", since, message))
        if (reason := self._attempts.health_reason()) is not None:
            reasons.append(reason)
        if (problem := self._committer.problem) is not None:
            reasons.append(problem.reason())
        return [*reasons, *self._topic_reasons()]

    def _topic_reasons(self) -> list[HealthReason]:
        problems = self.cluster.problems
        owned = self._membership.assignment
        return stalled_partitions((p, problems[p.topic]) for p in sorted(owned) if p.topic in problems)

    def wake(self) -> None:
        """Make the member's thread call ``handler.release`` again, if it waits for a release."""
        self._watch.wake()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        *,
        allow_lower: bool = False,
        timeout_s: float | None = None,
        on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit offsets of owned partitions, and return the committed offsets.

        Args:
            offsets: next offset to consume of each partition; or a function that returns them, which the member's
                thread calls between two steps of a rebalance.
            allow_lower: allow offsets to decrease.
            timeout_s: maximum seconds to wait, including a step of a rebalance that is in progress; None for
                ``release_timeout_s`` plus the timeouts of ZooKeeper and of the coordinator.
            on_committed: called in a thread of the member with the committed offsets, before any other commit
                of these partitions.

        Raises:
            OwnershipLostError: one of the partitions is not owned.
            ZooKeeperUnavailableError: nothing was committed, or the result is unknown.
            BrokerUnavailableError: not all offsets were committed to Kafka.
            ClosedError: the member has been closed.
        """

        def commit() -> Future[dict[TopicPartition, int]]:
            wanted = offsets() if callable(offsets) else offsets
            return self._committer.commit(wanted, allow_lower=allow_lower, on_committed=on_committed)

        return self._run_in_thread(commit, timeout_s)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit to decrease the partition's offset, because its position was reset."""
        self._mailbox.submit(lambda: self._committer.allow_lower_once(partition))

    def switch_offsets_storage(self, storage: str, dual_commit: bool) -> dict[TopicPartition, int]:
        """Copy the offsets of owned partitions to another storage, and use that from now on.

        Returns:
            the committed offsets in the other storage.

        Raises:
            ZkConsumerError: the offsets could not be copied; the current storage remains in use.
        """
        return self._run_in_thread(lambda: self._committer.switch(storage, dual_commit), None)

    def _run_in_thread(
        self, function: Callable[[], Future[dict[TopicPartition, int]]], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        if timeout_s is None:
            timeout_s = self._handler.release_timeout_s + self.config.zookeeper_connection_timeout_s
            timeout_s += self.config.offsets_channel_socket_timeout_s
        future = self._mailbox.submit(function)
        try:
            return dict(future.result(timeout_s))
        except FutureTimeoutError as error:
            future.cancel()
            raise ZooKeeperUnavailableError(f"offsets could not be committed within {timeout_s:g} s") from error
