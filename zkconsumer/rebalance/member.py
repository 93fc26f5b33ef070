"""GroupMember: one member of a ZooKeeper-coordinated consumer group, without fetchers.

The plain consumer and Spark's driver each use one, with different implementations of ``PartitionHandler``.

Source: Kafka 1.1 ZookeeperConsumerConnector, without its streams and fetchers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.health import HealthReason, HealthState, stalled_partitions
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.factory import create_cluster
from zkconsumer.metrics import Metrics
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.factory import create_offsets
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.broker_calls import BrokerCalls, CalledCluster
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.member_thread import MemberThread
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.rebalancer import ZKRebalancerListener
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.zookeeper.registry import GroupPaths, Registration, new_consumer_id
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Maximum seconds for leaving the group, in addition to the handler's ``release_timeout``.
LEAVE_TIMEOUT = 10.0


class GroupMember:
    """Registers in a group, takes part in its rebalances, and commits offsets.

    Any thread may call its methods. The work is done by its ``MemberThread``.

    Args:
        registration: the topics to which the member subscribes, with the number of threads of each.
        handler: delivers the records of the member's partitions.
        auto_commit: commit ``handler.consumed()`` every ``auto.commit.interval.ms``.
        user_listener: the application's callbacks.
        metrics: registry of the meters of rebalances and commits.
        first_rebalance_timeout: maximum seconds to wait for the first rebalance; the JVM's limit applies if it is
            longer.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        handler: PartitionHandler,
        *,
        auto_commit: bool,
        user_listener: ConsumerRebalanceListener | None = None,
        metrics: Metrics | None = None,
        first_rebalance_timeout: float = 0.0,
    ) -> None:
        self.config = config
        self.metrics = metrics or Metrics()
        self.consumer_id = new_consumer_id(config.group_id, config.consumer_id)
        self._mailbox = Mailbox("the consumer has been shut down; offsets can no longer be committed")
        self.session = ZooKeeperSession.from_config(config, self._mailbox.queue, handler.lease_ended)
        self._connecting = Connecting.from_config(config)
        self.cluster = create_cluster(config, self.session, self._connecting)
        self._handler = handler
        self._membership = Membership(config.group_id, self.consumer_id, self.session)
        self._watch = SessionWatch(self.session, self._membership, self._mailbox)
        self._calls = BrokerCalls(f"zkconsumer-{config.group_id}-broker-calls-{self.consumer_id}", self._watch)
        self._committer = OffsetCommitter(
            config,
            self._membership,
            self._open_offsets(config.offsets_storage, config.dual_commit_enabled),
            handler,
            self._calls,
            interval_s=config.auto_commit_interval_s if auto_commit else None,
        )
        #: Separate from the commits, so that partitions are released while brokers do not respond to lookups.
        self._lookups = BrokerCalls(f"zkconsumer-{config.group_id}-lookups-{self.consumer_id}", self._watch)
        called_cluster = CalledCluster(self.cluster, self._lookups, self._announce_change)
        listener = ZKRebalancerListener(
            config,
            registration,
            self._watch,
            called_cluster if config.bootstrap_servers else self.cluster,
            self._committer,
            handler,
            user_listener=user_listener,
        )
        self._attempts = RebalanceAttempts(
            config,
            self._watch,
            listener,
            self._committer,
            poll_interval_s=self.cluster.poll_interval_s,
            on_poll=called_cluster.poll,
            on_rebalance=self.metrics.timer(
                "kafka.consumer", "ZookeeperConsumerConnector", "RebalanceRateAndTime", clientId=config.client_id
            ).update,
            first_rebalance_timeout=first_rebalance_timeout,
        )
        self._thread = MemberThread(self._watch, listener, self._attempts, self._committer, handler)

    def _announce_change(self) -> None:
        """Make all members rebalance, because brokers do not notify them of new topics and partitions.

        Without it, a partition could have no owner until the next poll of the member to which it is assigned.
        """
        path = GroupPaths(self.config.group_id).registration(f"{self.consumer_id}-change")
        self.session.znodes.touch_parent(path, Registration({}).to_json())

    def _open_offsets(self, storage: str, dual_commit: bool) -> Offsets:
        return create_offsets(
            self.config,
            self.session,
            self.cluster.brokers,
            self._connecting.with_timeout(self.config.offsets_channel_socket_timeout_s),
            storage=storage,
            dual_commit=dual_commit,
            counter=self._commit_counter,
            topic_ids=lambda: self.cluster.topic_ids,
        )

    def _commit_counter(self, storage: str) -> Callable[[int], object]:
        name, client = f"{storage}CommitsPerSec", self.config.client_id
        return self.metrics.meter("kafka.consumer", "ZookeeperConsumerConnector", name, clientId=client).mark

    def start(self, connect_timeout: float = 0.0) -> None:
        """Connect, register, and wait for the first rebalance; after an error, the member has left the group.

        Args:
            connect_timeout: see ``ZooKeeperSession.start``.

        Raises:
            ZooKeeperUnavailableError: the ensemble could not be reached.
            ConfigurationError: the chroot does not exist, or the settings make a rebalance impossible.
            AuthenticationError: ZooKeeper rejected the credentials.
            ConsumerRebalanceFailedError, ClosedError: see ``MemberThread.start``.
        """
        self.session.start(connect_timeout)
        try:
            self._calls.start()
            if self.config.bootstrap_servers:
                self._lookups.start()
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release and commit all partitions, leave the group, and end the session."""
        with ExitStack() as closing:  # each step runs, also after an error; the last one first
            closing.callback(self._calls.join)
            closing.callback(self._lookups.join)
            closing.callback(self.session.close)  # a call that is running may be waiting for ZooKeeper
            closing.callback(self._committer.close)
            closing.callback(self._thread.stop, self._handler.release_timeout + LEAVE_TIMEOUT)
            # The member's thread may be waiting for the response to a lookup.
            closing.callback(self._lookups.close, abort=self.cluster.close)

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
        timeout: float | None = None,
        on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit offsets of owned partitions, and return the committed offsets.

        Args:
            offsets: next offset to consume of each partition; or a function that returns them, which the member's
                thread calls between two steps of a rebalance.
            allow_lower: allow offsets to decrease.
            timeout: maximum seconds to wait, including a step of a rebalance that is in progress; None for
                ``release_timeout`` plus the timeouts of ZooKeeper and of the coordinator.
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

        return self._run_in_thread(commit, timeout)

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
        return self._run_in_thread(
            lambda: self._committer.switch(lambda: self._open_offsets(storage, dual_commit)), None
        )

    def _run_in_thread(
        self, function: Callable[[], Future[dict[TopicPartition, int]]], timeout: float | None
    ) -> dict[TopicPartition, int]:
        if timeout is None:
            timeout = self._handler.release_timeout + self.config.zookeeper_connection_timeout_s
            timeout += self.config.offsets_channel_socket_timeout_s
        future = self._mailbox.submit(function)
        try:
            return dict(future.result(timeout))
        except FutureTimeoutError as error:
            future.cancel()
            raise ZooKeeperUnavailableError(f"offsets could not be committed within {timeout:g} s") from error
