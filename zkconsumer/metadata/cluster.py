"""Cluster metadata: brokers, topics and partitions, from ``/brokers`` in ZooKeeper or from Metadata requests.

Source: Kafka 1.1 ZkUtils.getCluster, ZkUtils.getPartitionsForTopics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.broker.topics import Topic, TopicLookup, TopicState
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.health import Problem
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import Node


class Cluster(Protocol):
    """The brokers, topics and partitions of a cluster. All members of a group must see the same partitions."""

    def brokers(self) -> list[Endpoint]:
        """Return the live brokers, or the bootstrap servers."""

    def topics(self) -> list[str]:
        """Return the sorted names of all topics, and watch for created and deleted ones."""

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic that exists, and watch for changes.

        Raises:
            TopicAuthorizationError: the client may not describe a topic whose partitions are not known.
        """

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic in the last result of ``partitions``; see ``topic_id``. Any thread may read it."""

    @property
    def problems(self) -> Mapping[str, Problem]:
        """Why the last known partitions of a topic are used, by topic. Any thread may read it."""

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two requests for partitions; None if changes are reported by watches."""

    def close(self) -> None:
        """Interrupt requests in flight, and send no more."""


class ZooKeeperCluster:
    """Metadata from ``/brokers`` in ZooKeeper, for clusters before Kafka 4.0.

    Args:
        protocol: ``security.protocol``, which selects the listener of each broker.
    """

    poll_interval = None

    def __init__(self, session: ZooKeeperSession, protocol: str = "PLAINTEXT") -> None:
        self._znodes = session.znodes
        self._protocol = protocol
        self.topic_ids: Mapping[str, str] = {}
        self.problems: Mapping[str, Problem] = {}
        self._last_brokers: list[Endpoint] = []
        self._reported: dict[str, str] = {}  # kind of skipped znodes to the error
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return the endpoint of each registered broker.

        Brokers without a usable registration are skipped. While ZooKeeper is unavailable, the last result is returned.

        Raises:
            ZooKeeperUnavailableError: ZooKeeper is unavailable, and was at each earlier call.
            ZkConsumerError: no broker has a usable registration.
        """
        try:
            ids = self._znodes.children(registry.BROKER_IDS) or []
            nodes = self._znodes.get_many([f"{registry.BROKER_IDS}/{broker_id}" for broker_id in ids])
        except ZooKeeperUnavailableError:
            if not self._last_brokers:
                raise
            return self._last_brokers
        brokers: list[Endpoint] = []
        errors: list[ZkConsumerError] = []
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            try:
                brokers.append(registry.parse_broker(broker_id, node.data, self._protocol))
            except ZkConsumerError as error:
                errors.append(error)
        if self._is_new("brokers", reasons := "; ".join(map(str, errors))):
            self._log.warning("brokers_skipped", error=reasons)
        if errors and not brokers:
            raise errors[0]
        self._last_brokers = brokers
        return brokers

    def topics(self) -> list[str]:
        """Return the names of all topics, and watch their parent znode. Names that brokers reject are skipped."""
        topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        if topics is None:
            self._znodes.ensure(registry.BROKER_TOPICS)
            topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        invalid = [name for name in topics or () if not registry.is_valid_topic_name(name)]
        examples = ", ".join(map(registry.excerpt, invalid[:3]))
        if self._is_new("topics", error := f"{len(invalid)} invalid names, such as {examples}" if invalid else ""):
            self._log.warning("topic_names_invalid", path=registry.BROKER_TOPICS, error=error)
        return [name for name in topics or () if registry.is_valid_topic_name(name)]

    def _is_new(self, skipped: str, error: str) -> bool:
        """Return whether an error, if it is not empty, differs from the last one of the same kind of znodes."""
        is_new = bool(error) and error != self._reported.get(skipped)
        self._reported[skipped] = error
        return is_new

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the partitions of each topic that exists, and watch the topic's znode or its creation."""
        paths = [registry.topic_path(topic) for topic in topics]
        partitions, ids = {}, {}
        for topic, path, node in zip(topics, paths, self._znodes.get_many(paths, watch=True), strict=True):
            # The topic may be created between get() and exists(), which sets the watch for its creation.
            while node is None and self._znodes.exists(path, watch=True):
                node = self._znodes.get(path, watch=True)
            if node is not None:
                partitions[topic] = registry.parse_partitions(topic, node.data)
                try:
                    ids[topic] = _topic_id(topic, node)
                except ZkConsumerError:  # an invalid topic id does not prevent the rebalance; the zxid suffices here
                    ids[topic] = f"zk-{node.created_zxid}"
        self.topic_ids = ids
        return partitions

    def look_up_topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of each topic that exists; see ``topic_id``. It has both parts since Kafka 2.8."""
        nodes = self._znodes.get_many([registry.topic_path(topic) for topic in topics])
        return {topic: _topic_id(topic, node) for topic, node in zip(topics, nodes, strict=True) if node is not None}

    def close(self) -> None:
        """Do nothing: the session is not closed with the cluster."""


def _topic_id(topic: str, node: Node) -> str:
    topic_id = registry.parse_topic_id(topic, node.data)
    return f"zk-{node.created_zxid}" + (f",id-{topic_id}" if topic_id else "")


class BootstrapCluster:
    """Metadata from the brokers, for KRaft clusters and for Spark tasks. Used by one thread.

    The connection to the last broker that responded is kept open. A topic that existed keeps its partitions until it
    counts as deleted, see ``TopicLookup``: also while the client may not describe it.

    Args:
        servers: the bootstrap servers.
        timeout: maximum seconds for a lookup, with all brokers together.
        poll_interval: seconds between two requests for partitions.
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
        self.topic_ids: Mapping[str, str] = {}
        self.problems: Mapping[str, Problem] = {}
        self._servers = list(servers)
        self._leaders = LeaderLookup(client_id, timeout, security)
        self._topics = TopicLookup(self._leaders, self.brokers)
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return the bootstrap servers."""
        return self._servers

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(topic.name for topic in self._existing(self._topics.list_topics()))

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic that exists."""
        found = self._topics.look_up(topics)
        existing = self._existing(found)
        known = {topic.name for topic in existing}
        for topic in found.values():
            if topic.name not in known and topic.state in (TopicState.DENIED, TopicState.UNAVAILABLE):
                raise topic.error()
        self.topic_ids = {topic.name: topic.topic_id for topic in existing}
        return {topic.name: list(topic.partitions) for topic in existing}

    def _existing(self, found: Mapping[str, Topic]) -> list[Topic]:
        """Return the topics that exist; those that are denied, unavailable or missing with their last known state."""
        kept = {
            topic.name: known
            for topic in found.values()
            if topic.state not in (TopicState.EXISTS, TopicState.DELETED)
            and (known := self._topics.last_known(topic.name)) is not None
        }
        problems = {name: problem for name, problem in self.problems.items() if name not in found}
        for name in sorted(kept):
            problems[name] = Problem.again(self.problems.get(name), "leader_not_found", found[name].error())
            if name not in self.problems:
                self._log.warning("topic_metadata_unavailable", topic=name, error=problems[name].message)
        self.problems = problems
        return [kept.get(topic.name, topic) for topic in found.values() if topic.partitions or topic.name in kept]

    def close(self) -> None:
        """Close the connection."""
        self._leaders.close()


def cluster_of(config: ConsumerConfig, session: ZooKeeperSession | None, timeout: float) -> Cluster:
    """Create the source of metadata that a consumer's properties select.

    It is ``BootstrapCluster`` if ``bootstrap.servers`` is set, else ``ZooKeeperCluster``.

    Args:
        session: required without ``bootstrap.servers``.
        timeout: maximum seconds to wait for each broker.
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
    """Parse ``host:port`` pairs separated by commas.

    Raises:
        ConfigurationError: a part has another form.
    """
    try:
        return [Endpoint.parse(part) for part in servers.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigurationError(f"bootstrap.servers = {servers!r}: {error}") from error
