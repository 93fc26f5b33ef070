"""GroupMember: a member of a ZooKeeper-coordinated consumer group, without fetchers.

The plain consumer and Spark's planning process use it with different ``PartitionHandler`` implementations.

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

#: Maximum seconds to leave the group, in addition to the handler's ``release_timeout_s``.
_LEAVE_TIMEOUT_S = 10.0


class GroupMember:
    """Registers in a group, participates in its rebalances, and commits offsets. Thread-safe.

    The work is done by ``MemberThread``. Use ``member_factory.create_member`` to create an instance.

    Args:
        config: consumer configuration.
        watch: session watch, which holds the session, the membership and the mailbox.
        cluster: cluster metadata proxy.
        committer: offset committer.
        thread: member thread.
        handler: handler that delivers the records of the member's partitions.

    Attributes:
        config: consumer configuration.
        session: ZooKeeper session.
        cluster: cluster metadata; may be used from any thread.
        consumer_id: consumer id of the member.
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
        """Connect, register, and wait for the first rebalance; leave the group if one of these fails.

        Args:
            connect_timeout_s: maximum seconds to wait for ZooKeeper; see ``ZooKeeperSession.start``.

        Raises:
            ZooKeeperUnavailableError: the ensemble is unreachable.
            ConfigurationError: the chroot does not exist, or the configuration makes a rebalance impossible.
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
        """Commit the offsets of all partitions, release the partitions, leave the group, and close the session."""
        with ExitStack() as closing:  # run all steps in reverse order, even after an error
            closing.callback(self._committer.join)
            closing.callback(self._lookups.join)
            closing.callback(self.session.close)  # before joining the threads, which may be waiting for ZooKeeper
            closing.callback(self._committer.close)
            closing.callback(self._thread.stop, self._handler.release_timeout_s + _LEAVE_TIMEOUT_S)
            closing.callback(self._lookups.close)  # aborts a lookup for which the member thread may be waiting

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The owned partitions and their thread ids."""
        return dict(self._membership.assignment)

    @property
    def holds_lease(self) -> bool:
        """Whether the lease is held; if so, no other member can have claimed the partitions in ``assignment``."""
        return self._membership.holds_lease

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """The group's assignment according to the last rebalance: thread ids by partition."""
        return self._membership.group_assignment

    @property
    def rebalances(self) -> int:
        """Number of successful rebalances."""
        return self._attempts.completed

    @property
    def discoveries(self) -> int:
        """Number of topic and partition discoveries: one per successful rebalance."""
        return self._attempts.completed

    @property
    def unbalanced_since(self) -> float | None:
        """``time.monotonic()`` at which the member became unbalanced; None if it is balanced."""
        return self._attempts.unbalanced_since

    def health_reasons(self) -> list[HealthReason]:
        """Return the reasons why the member cannot own its partitions or commit their offsets; empty if it can."""
        if (failure := self._thread.failure) is not None:
            return [HealthReason(HealthState.FAILED, "member_failed", self._thread.failed_at, str(failure))]
        reasons = []
        if self._membership.has_registered and not self._membership.holds_lease:
            message = (
                f"ZooKeeper at {self.session.hosts!r} did not confirm the session in time; no records are delivered "
                "until the consumer has rejoined the group"
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
        """Make the member thread call ``handler.on_partitions_revoked`` again if it is waiting for a release."""
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
            offsets: next offset to consume, by partition; or a function that returns this mapping. The member thread
                calls the function between two rebalance steps, and may call it several times.
            allow_lower: whether committed offsets may be lowered.
            timeout_s: maximum seconds to wait, including the time until a running rebalance step completes; None for
                ``release_timeout_s`` plus the ZooKeeper and coordinator timeouts.
            on_committed: function that is called with the committed offsets in one of the member's threads, before any
                later commit of these partitions.

        Raises:
            OwnershipLostError: the member does not own one of the partitions.
            ZooKeeperUnavailableError: no offsets were committed, or the result is unknown.
            BrokerUnavailableError: some offsets were not committed to Kafka.
            ClosedError: the member was closed.
        """

        def commit(result: Future[dict[TopicPartition, int]]) -> None:
            self._committer.commit(offsets, result, allow_lower=allow_lower, on_committed=on_committed)

        return self._run_in_thread(commit, timeout_s)

    def switch_offsets_storage(self, storage: str, dual_commit: bool) -> dict[TopicPartition, int]:
        """Copy the offsets of owned partitions to another storage, and switch to it.

        Args:
            storage: new value of ``offsets.storage``.
            dual_commit: new value of ``dual.commit.enabled``.

        Returns:
            the committed offsets in the new storage.

        Raises:
            ZkConsumerError: the offsets could not be copied; the old storage remains in use.
        """
        return self._run_in_thread(lambda result: self._committer.switch(storage, dual_commit, result), None)

    def _run_in_thread(
        self, function: Callable[[Future[dict[TopicPartition, int]]], None], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        """Call ``function`` with a new future in the member thread, and return the result of the future."""
        if timeout_s is None:
            timeout_s = self._handler.release_timeout_s + self.config.zookeeper_connection_timeout_s
            timeout_s += self.config.offsets_channel_socket_timeout_s
        result: Future[dict[TopicPartition, int]] = Future()

        def run() -> None:
            if result.set_running_or_notify_cancel():  # otherwise, the application no longer waits
                function(result)

        self._mailbox.post(run, result)
        try:
            return dict(result.result(timeout_s))
        except FutureTimeoutError as error:
            result.cancel()  # has no effect on a commit that the member thread has accepted
            raise ZooKeeperUnavailableError(
                f"consumer {self.consumer_id} could not commit offsets within {timeout_s:g} s"
            ) from error
