"""Brokers, partitions and leaders: from ``/brokers`` in ZooKeeper, or by asking the brokers themselves.

Source: Kafka 1.1 kafka.client.ClientUtils, ZkUtils.getCluster, ZkUtils.getPartitionsForTopics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.protocol import PartitionData
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigurationError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.session import ZooKeeperSession

#: The version from which on answers to Metadata requests have ids of topics.
_HAS_TOPIC_IDS = 10


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
        self._session = session
        self._protocol = protocol
        self._known: list[Endpoint] = []
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return where each registered broker listens; while ZooKeeper is away, where they did before."""
        try:
            ids = self._session.children(registry.BROKER_IDS) or []
            nodes = self._session.get_many([f"{registry.BROKER_IDS}/{node}" for node in ids])
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
        topics = self._session.children(registry.BROKER_TOPICS, watch=True)
        if topics is None:
            self._session.ensure(registry.BROKER_TOPICS)
            topics = self._session.children(registry.BROKER_TOPICS, watch=True)
        return topics or []

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return partitions; each topic's znode, or its appearance, is watched."""
        paths = [registry.topic_path(topic) for topic in topics]
        found = {}
        for topic, path, node in zip(topics, paths, self._session.get_many(paths, watch=True), strict=True):
            # A topic may come between the look at it and the watch for its coming.
            while node is None and self._session.exists(path, watch=True):
                node = self._session.get(path, watch=True)
            if node is not None:
                found[topic] = registry.parse_partitions(topic, node.data)
        return found

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return an id of each existing topic that a later topic of the same name does not have.

        Its parts are the transaction that created the topic's znode, and the topic id, which brokers from 2.8 on store
        there: the id that ``LogOffsets.topic_ids`` gets from the brokers.
        """
        nodes = self._session.get_many([registry.topic_path(topic) for topic in topics])
        ids = {}
        for topic, node in zip(topics, nodes, strict=True):
            if node is not None:
                topic_id = registry.parse_topic_id(topic, node.data)
                ids[topic] = f"zk-{node.created}" + (f",id-{topic_id}" if topic_id else "")
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


class LeaderLookup:
    """Asks brokers who leads what; keeps the connection that worked.

    Used by one thread; others may only call ``close()``.
    """

    def __init__(self, client_id: str, timeout: float, security: Security = PLAINTEXT) -> None:
        self._client_id = client_id
        self._timeout = timeout
        self._security = security
        self._channel: BrokerChannel | None = None
        self._closed = False

    def leaders(
        self, brokers: Sequence[Endpoint], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return ``(node id, endpoint)`` of the leader of each partition that has one.

        Raises:
            BrokerUnavailableError: none of the brokers answers.
        """
        wanted = set(partitions)
        answer = self.metadata(brokers, sorted({partition.topic for partition in wanted}))
        modern = True if answer.API_VERSION > 0 else None  # then so are the others, but during an upgrade from 0.9
        endpoints = {b.node_id: Endpoint(b.host, b.port, modern).with_versions_from(brokers) for b in answer.brokers}
        found = {}
        for topic in answer.topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                if partition in wanted and p.leader_id in endpoints:
                    found[partition] = (int(p.leader_id), endpoints[p.leader_id])
        return found

    def metadata(self, brokers: Sequence[Endpoint], topics: Sequence[str] | None) -> Any:
        """Return the first answer to a Metadata request, of all topics for None.

        The broker that answered last is asked first.
        """
        others = list(brokers)
        random.shuffle(others)
        if self._channel is not None and self._channel.endpoint in others:
            others.remove(self._channel.endpoint)
            others.insert(0, self._channel.endpoint)
        failures: dict[Endpoint, Exception] = {}
        for endpoint in others:
            try:
                return self._connection(endpoint).request(protocol.metadata_request(topics))
            except (RetriableError, AuthenticationError, UnsupportedBrokerError) as error:
                failures[endpoint] = error
                self._drop()
        refusals = [error for error in failures.values() if not isinstance(error, RetriableError)]
        if refusals and len(refusals) == len(failures):
            raise refusals[0]
        raise BrokerUnavailableError(_none_answers(failures))

    def _connection(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channel
        if channel is None or channel.endpoint != endpoint:
            self._drop()
            channel = self._channel = BrokerChannel(
                endpoint, self._client_id, timeout=self._timeout, security=self._security
            )
        if self._closed:  # asked for after the channel can be seen: either close() closes it, or this does
            channel.close()
        return channel

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close for good; a request under way in another thread raises ``ClosedError``."""
        self._closed = True
        channel = self._channel
        if channel is not None:
            channel.close()


def _none_answers(failures: Mapping[Endpoint, Exception]) -> str:
    if not failures:
        return "no broker is registered in ZooKeeper; where the cluster runs without it, set bootstrap.servers"
    return "no broker answers: " + "; ".join(str(error) for error in failures.values())


class LogOffsets:
    """Asks leaders for offsets of their logs; keeps one connection per broker. Used by one thread.

    Args:
        brokers: returns the brokers that may be asked for leaders.
        timeout: seconds for each answer.
    """

    def __init__(
        self,
        brokers: Callable[[], Sequence[Endpoint]],
        client_id: str,
        *,
        timeout: float,
        read_committed: bool = False,
        security: Security = PLAINTEXT,
    ) -> None:
        self.leaders: dict[TopicPartition, tuple[int, Endpoint]] = {}
        self._brokers = brokers
        self._client_id = client_id
        self._timeout = timeout
        self._read_committed = read_committed
        self._security = security
        self._lookup = LeaderLookup(client_id, timeout, security)
        self._channels: dict[Endpoint, BrokerChannel] = {}

    @classmethod
    def of(cls, brokers: Callable[[], Sequence[Endpoint]], config: ConsumerConfig) -> LogOffsets:
        """Return what a consumer with these properties asks."""
        assert config.client_id is not None
        return cls(
            brokers,
            config.client_id,
            timeout=config.socket_timeout_ms / 1000,
            read_committed=config.read_committed,
            security=Security.of(config),
        )

    def find_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return node id and endpoint of each partition's leader, as far as there is one; remembered ones first."""
        wanted = set(partitions)
        missing = wanted - self.leaders.keys()
        if missing:
            self.leaders.update(self._lookup.leaders(self._brokers(), missing))
        return {partition: self.leaders[partition] for partition in wanted if partition in self.leaders}

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return an offset of each partition; see ``protocol.list_offsets_request``.

        Raises:
            RetriableError: a leader is missing or does not answer; it is looked for anew the next time.
        """
        found: dict[TopicPartition, int] = {}
        for channel, theirs in self._by_leader(partitions):
            request = protocol.list_offsets_request(theirs, timestamp, read_committed=self._read_committed)
            try:
                answers = protocol.read_offsets_answer(channel.request(request))
            except RetriableError:
                self._forget(theirs)
                raise
            for partition, (error, offset) in answers.items():
                if error:
                    self._forget(theirs)
                    raise NotLeaderError(f"broker {channel.endpoint} cannot tell offsets of {partition}: error {error}")
                found[partition] = offset
        return found

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        """Return some of the records from each position on, at once; of a partition perhaps none, but of one.

        Those are left out whose leader does not have the offset, or cannot read its log there.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """
        found: dict[TopicPartition, PartitionData] = {}
        for channel, theirs in self._by_leader(positions):
            request = protocol.fetch_request(
                {partition: positions[partition] for partition in sorted(theirs)},
                max_wait_ms=0,
                min_bytes=0,
                partition_max_bytes=max_bytes,
                read_committed=self._read_committed,
            )
            try:
                with channel.exchange(request) as frame:
                    answer = protocol.read_fetch_answer(frame, request.API_VERSION)
            except RetriableError:
                self._forget(theirs)
                raise
            for data in answer.partitions:
                error = data.error_code or answer.error_code
                if error in (protocol.OFFSET_OUT_OF_RANGE, protocol.CORRUPT_MESSAGE):
                    continue
                if error:
                    self._forget(theirs)
                    raise NotLeaderError(f"broker {channel.endpoint} cannot read {data.partition}: error {error}")
                found[data.partition] = data
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[BrokerChannel, list[TopicPartition]]]:
        wanted = set(partitions)
        leaders = self.find_leaders(wanted)
        if missing := sorted(wanted - leaders.keys()):
            raise NotLeaderError(f"partition {missing[0]} has no leader now")
        by_leader: dict[Endpoint, list[TopicPartition]] = {}
        for partition, (_, endpoint) in leaders.items():
            by_leader.setdefault(endpoint, []).append(partition)
        for endpoint, theirs in by_leader.items():
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = self._channels[endpoint] = BrokerChannel(
                    endpoint, self._client_id, timeout=self._timeout, security=self._security
                )
            yield channel, theirs

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return what tells each topic that exists from an earlier one of its name; "" where brokers have no ids.

        Raises:
            BrokerUnavailableError: none of the brokers answers.
        """
        answer = self._lookup.metadata(self._brokers(), topics)
        known = [topic for topic in answer.topics if topic.partitions]
        if answer.API_VERSION < _HAS_TOPIC_IDS:
            return dict.fromkeys((topic.name for topic in known), "")
        return {topic.name: f"id-{topic.topic_id}" if topic.topic_id.int else "" for topic in known}

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.leaders.pop(partition, None)
