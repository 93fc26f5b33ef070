"""Brokers, partitions and leaders: from ``/brokers`` in ZooKeeper, or by asking the brokers themselves.

Source: Kafka 1.1 kafka.client.ClientUtils, ZkUtils.getCluster, ZkUtils.getPartitionsForTopics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkconsumer.broker import protocol
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.session import ZooKeeperSession


class Cluster(Protocol):
    """Where a member learns of brokers and partitions; each member of a group must see the same."""

    def brokers(self) -> list[Endpoint]:
        """Return the brokers that are alive, or some of them that know the others."""

    def topics(self) -> list[str]:
        """Return the topics that exist, sorted; one that comes or goes later is an event."""

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic that exists; later changes of them are events."""

    @property
    def poll_interval(self) -> float | None:
        """Seconds after which partitions have to be asked for again; None where changes are events."""

    def close(self) -> None:
        """End what waits for an answer, and ask nobody any more."""


class ZooKeeperCluster:
    """Kafka before 4.0: everything stands under ``/brokers``.

    Args:
        protocol: which of a broker's listeners is used, by ``security.protocol``.
    """

    poll_interval = None

    def __init__(self, session: ZooKeeperSession, protocol: str = "PLAINTEXT") -> None:
        self._znodes = session.znodes
        self._protocol = protocol
        self._known: list[Endpoint] = []
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return where each registered broker listens; while ZooKeeper is away, where they did before."""
        try:
            ids = self._znodes.children(registry.BROKER_IDS) or []
            nodes = self._znodes.get_many([f"{registry.BROKER_IDS}/{node}" for node in ids])
        except ZooKeeperUnavailableError:
            if not self._known:
                raise
            return self._known
        known, unusable = [], []
        for node, content in zip(ids, nodes, strict=True):
            try:
                known += [registry.parse_broker(node, content.data, self._protocol)] if content is not None else []
            except ZkConsumerError as error:
                unusable.append(error)
        if unusable:
            self._log.warning("brokers_left_out", errors=[str(error) for error in unusable])
        if unusable and not known:
            raise unusable[0]
        self._known = known
        return known

    def topics(self) -> list[str]:
        """Return the topics; their parent is watched."""
        topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        if topics is None:
            self._znodes.ensure(registry.BROKER_TOPICS)
            topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        return topics or []

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return partitions; each topic's znode, or its appearance, is watched."""
        paths = [registry.topic_path(topic) for topic in topics]
        found = {}
        for topic, path, node in zip(topics, paths, self._znodes.get_many(paths, watch=True), strict=True):
            # A topic may come between the look at it and the watch for its coming.
            while node is None and self._znodes.exists(path, watch=True):
                node = self._znodes.get(path, watch=True)
            if node is not None:
                found[topic] = registry.parse_partitions(topic, node.data)
        return found

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return an id of each existing topic that a later topic of the same name does not have.

        Its parts are the transaction that created the topic's znode, and the topic id, which brokers from 2.8 on store
        there: the id that ``LogOffsets.topic_ids`` gets from the brokers.
        """
        nodes = self._znodes.get_many([registry.topic_path(topic) for topic in topics])
        ids = {}
        for topic, node in zip(topics, nodes, strict=True):
            if node is not None:
                topic_id = registry.parse_topic_id(topic, node.data)
                ids[topic] = f"zk-{node.created_zxid}" + (f",id-{topic_id}" if topic_id else "")
        return ids

    def close(self) -> None:
        """Nothing to close: the session is its owner's."""


class BootstrapCluster:
    """KRaft clusters, and Spark's tasks: the brokers tell.

    One connection is kept, to the broker that answered last; used by one thread.

    Args:
        servers: some of the brokers.
        timeout: seconds for each of them.
        poll_interval: seconds between looks for new partitions.
    """

    def __init__(
        self,
        servers: Sequence[Endpoint],
        client_id: str,
        *,
        timeout: float,
        poll_interval: float | None = 30.0,
        security: Security = PLAINTEXT,
    ) -> None:
        self.poll_interval = poll_interval
        self._servers = list(servers)
        self._leaders = LeaderLookup(client_id, timeout, security)

    def brokers(self) -> list[Endpoint]:
        """Return the bootstrap servers."""
        return self._servers

    def topics(self) -> list[str]:
        """Return the topics that one of the brokers knows."""
        answer = self._leaders.metadata(self._servers, None)
        return sorted(topic.name for topic in answer.topics if topic.partitions)

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return partitions as one of the brokers knows them."""
        if not topics:
            return {}
        answer = self._leaders.metadata(self._servers, topics)
        return {
            topic.name: sorted(p.partition_index for p in topic.partitions)
            for topic in answer.topics
            if topic.error_code in (protocol.NONE, protocol.LEADER_NOT_AVAILABLE) and topic.partitions
        }

    def close(self) -> None:
        """Close the connection."""
        self._leaders.close()


def cluster_of(config: ConsumerConfig, session: ZooKeeperSession | None, timeout: float) -> Cluster:
    """Return what a consumer with these properties learns of: from brokers that are named, else from ZooKeeper.

    Args:
        timeout: seconds for each broker.
    """
    if config.bootstrap_servers:
        assert config.client_id is not None
        return BootstrapCluster(
            parse_bootstrap(config.bootstrap_servers),
            config.client_id,
            timeout=timeout,
            poll_interval=config.metadata_max_age_ms / 1000,
            security=Security.of(config),
        )
    assert session is not None
    return ZooKeeperCluster(session, config.security_protocol)


def parse_bootstrap(servers: str) -> list[Endpoint]:
    """Read ``host:port`` pairs with commas between them."""
    try:
        return [Endpoint.parse(part) for part in servers.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigurationError(f"bootstrap.servers = {servers!r}: {error}") from error
