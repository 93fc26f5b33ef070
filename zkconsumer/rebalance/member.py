"""GroupMember: one member of a ZooKeeper-coordinated consumer group; it knows nothing of fetching.

The plain consumer and Spark's driver both are one of these with a ``PartitionHandler`` of their own.

Source: Kafka 1.1 ZookeeperConsumerConnector, without its streams and fetchers.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from zkconsumer.cluster import BootstrapCluster, Cluster, ZooKeeperCluster, parse_bootstrap
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, ZooKeeperUnavailableError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets import ZooKeeperOffsets
from zkconsumer.rebalance.listener import PartitionHandler, ZKRebalancerListener
from zkconsumer.registry import Registration, check_topic, new_consumer_id
from zkconsumer.zookeeper import ZooKeeperSession

#: Seconds that leaving a group may take once nothing is waited for any more.
LEAVE_TIMEOUT = 10.0


class GroupMember:
    """Registers in a group, takes part in its rebalances, tells what it owns and stores offsets.

    Args:
        topics: topic to number of threads, which is the member's share of the group; may be empty.
        handler: told of partitions that come and go.
        auto_commit: store ``handler.consumed()`` every ``auto.commit.interval.ms``.
    """

    def __init__(
        self, config: ConsumerConfig, topics: Mapping[str, int], handler: PartitionHandler, *, auto_commit: bool
    ) -> None:
        for topic, count in topics.items():
            check_topic(topic)
            if not isinstance(count, int) or count < 1:
                raise ConfigurationError(f"topic {topic!r}: {count!r} streams are asked for; at least 1 is expected")
        self.config = config
        self.topics = dict(topics)
        self.consumer_id = new_consumer_id(config.group_id, config.consumer_id)
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.session = ZooKeeperSession(
            config.zookeeper_connect,
            session_timeout=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout=config.connection_timeout,
            events=events,
        )
        self._bootstrap: BootstrapCluster | None = None
        if config.bootstrap_servers:
            assert config.client_id is not None
            self._bootstrap = BootstrapCluster(
                parse_bootstrap(config.bootstrap_servers),
                config.client_id,
                # The member's thread asks, which has a session to watch.
                timeout=min(config.socket_timeout_ms, config.zookeeper_session_timeout_ms / 2) / 1000,
            )
        self.cluster: Cluster = self._bootstrap or ZooKeeperCluster(self.session)
        self._handler = handler
        self._offsets = ZooKeeperOffsets(self.session, config.group_id)
        self._listener = ZKRebalancerListener(
            config,
            self.consumer_id,
            Registration(dict(topics)),
            self.session,
            self.cluster,
            self._offsets,
            handler,
            events,
            commit_interval=config.auto_commit_interval_ms / 1000 if auto_commit else None,
        )

    def start(self) -> None:
        """Connect, register, and wait for the first rebalance; on an error nothing is left behind.

        Raises:
            ZooKeeperUnavailableError: no ensemble answers.
            ConfigurationError: the chroot is missing.
            ConsumerRebalanceFailedError: see ``ZKRebalancerListener.start``.
        """
        self.session.start()
        try:
            self._listener.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hand everything over and end the session."""
        if self._bootstrap is not None:
            self._bootstrap.close()  # first, since the member's thread may be waiting for an answer
        try:
            self._listener.close(self._handler.release_timeout + LEAVE_TIMEOUT)
        finally:
            self.session.close()

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that are owned now, each with its thread id."""
        return dict(self._listener.assignment)

    @property
    def rebalances(self) -> int:
        """How many rebalances succeeded."""
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
