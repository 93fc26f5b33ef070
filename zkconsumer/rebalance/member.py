"""GroupMember: one member of a ZooKeeper-coordinated consumer group; it knows nothing of fetching.

The plain consumer and Spark's driver both are one of these with a ``PartitionHandler`` of their own.

Source: Kafka 1.1 ZookeeperConsumerConnector, without its streams and fetchers.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from zkconsumer.broker.cluster import cluster_of
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import Metrics
from zkconsumer.offsets.base import Offsets, offsets_of
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.listener import PartitionHandler, ZKRebalancerListener
from zkconsumer.zookeeper.registry import Registration, new_consumer_id
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Seconds that leaving a group may take once nothing is waited for any more.
LEAVE_TIMEOUT = 10.0


class GroupMember:
    """Registers in a group, takes part in its rebalances, tells what it owns and stores offsets.

    Args:
        registration: what is read, by how many threads, which is the member's share of the group.
        handler: told of partitions that come and go.
        auto_commit: store ``handler.consumed()`` every ``auto.commit.interval.ms``.
        user_listener: told of each rebalance.
        metrics: where it is counted.
        patience: seconds that the first rebalance may take where that is more than a JVM member would try for.
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
        patience: float = 0.0,
    ) -> None:
        self.config = config
        self.metrics = metrics or Metrics()
        self.consumer_id = new_consumer_id(config.group_id, config.consumer_id)
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.session = ZooKeeperSession.of(config, events)
        self.cluster = cluster_of(config, self.session, self._broker_timeout(config.socket_timeout_ms))
        self._handler = handler
        self._offsets = self._new_offsets(config.offsets_storage, bool(config.dual_commit_enabled))
        self._listener = ZKRebalancerListener(
            config,
            self.consumer_id,
            registration,
            self.session,
            self.cluster,
            self._offsets,
            handler,
            events,
            commit_interval=config.auto_commit_interval_ms / 1000 if auto_commit else None,
            user_listener=user_listener,
            on_rebalance=self.metrics.timer(
                "kafka.consumer", "ZookeeperConsumerConnector", "RebalanceRateAndTime", clientId=config.client_id
            ).update,
            patience=patience,
        )

    def _broker_timeout(self, milliseconds: int) -> float:
        """Seconds that a broker may take: the member's thread waits for it, which has a session to watch."""
        return min(milliseconds, self.config.zookeeper_session_timeout_ms / 2) / 1000

    def _new_offsets(self, storage: str, dual_commit: bool) -> Offsets:
        timeout = self._broker_timeout(self.config.offsets_channel_socket_timeout_ms)
        return offsets_of(
            self.config,
            self.session,
            self.cluster.brokers,
            timeout,
            storage=storage,
            dual_commit=dual_commit,
            counter=self._counter,
        )

    def _counter(self, where: str) -> Callable[[int], object]:
        name, client = f"{where}CommitsPerSec", self.config.client_id
        return self.metrics.meter("kafka.consumer", "ZookeeperConsumerConnector", name, clientId=client).mark

    def start(self, connect_within: float = 0.0) -> None:
        """Connect, register, and wait for the first rebalance; on an error nothing is left behind.

        Args:
            connect_within: see ``ZooKeeperSession.start``.

        Raises:
            ZooKeeperUnavailableError: no ensemble answers.
            ConfigurationError: the chroot is missing.
            ConsumerRebalanceFailedError: see ``ZKRebalancerListener.start``.
        """
        self.session.start(connect_within)
        try:
            self._listener.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hand everything over and end the session."""
        self.cluster.close()  # first, since the member's thread may be waiting for an answer
        try:
            self._listener.close(self._handler.release_timeout + LEAVE_TIMEOUT)
        finally:
            self._offsets.close()
            self.session.close()

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that are owned now, each with its thread id."""
        return dict(self._listener.assignment)

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """The partitions of the whole group, with the thread id that each is given to."""
        return self._listener.group_assignment

    @property
    def rebalances(self) -> int:
        """How many rebalances succeeded."""
        return self._listener.rebalances

    @property
    def discoveries(self) -> int:
        """How often topics and partitions were listed."""
        return self._listener.rebalances

    @property
    def unbalanced_since(self) -> float | None:
        """When (``time.monotonic``) rebalancing began to fail; None while all is well."""
        return self._listener.unbalanced_since

    def wake(self) -> None:
        """Have the handler asked again for a release that it was slow with."""
        self._listener.wake()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        *,
        may_go_back: bool = False,
        timeout: float | None = None,
        then: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Store offsets of owned partitions and return what is stored now.

        Args:
            offsets: or a function that the member's thread asks, between rebalances.
            timeout: seconds; a rebalance may have to end first.

        Raises:
            OwnershipLostError: one of the partitions is not owned.
            ZooKeeperUnavailableError: nothing was stored, or it is not known.
        """

        def work() -> dict[TopicPartition, int]:
            wanted = offsets() if callable(offsets) else offsets
            stored = self._listener.commit(wanted, may_go_back=may_go_back)
            if then is not None:
                then(stored)  # before any other commit can run
            return stored

        return self._in_thread(work, timeout)

    def _in_thread(
        self, work: Callable[[], dict[TopicPartition, int]], timeout: float | None
    ) -> dict[TopicPartition, int]:
        patience = self._handler.release_timeout + self.config.connection_timeout if timeout is None else timeout
        future = self._listener.submit(work)
        try:
            return dict(future.result(patience))
        except FutureTimeoutError as error:
            future.cancel()
            raise ZooKeeperUnavailableError(f"offsets were not stored within {patience:g} s") from error

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of the partition lower its offset: its position was reset."""
        self._listener.submit(lambda: self._offsets.allow_back(partition))

    def switch_offsets(self, storage: str, dual_commit: bool) -> dict[TopicPartition, int]:
        """Keep the offsets elsewhere from now on; those of owned partitions are copied there first.

        Returns:
            what is stored there now.

        Raises:
            ZkConsumerError: it was not possible; they are kept where they were.
        """

        def work() -> dict[TopicPartition, int]:
            self._listener.check_session()
            target = self._new_offsets(storage, dual_commit)
            try:
                known = {p: offset for p, offset in self._offsets.fetch(self.assignment).items() if offset >= 0}
                target.fetch(self.assignment)
                stored = target.commit(known, may_go_back=True)
            except BaseException:
                target.close()
                raise
            previous, self._offsets = self._offsets, target
            self._listener.offsets = target
            previous.close()
            return stored

        return self._in_thread(work, None)
