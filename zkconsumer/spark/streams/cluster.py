"""The cluster of an application: its topics, its brokers, and connections to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from zkconsumer.broker import protocol
from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, RetriableError, UnsupportedBrokerError
from zkconsumer.message import Endpoint
from zkconsumer.offsets.access import Access, open_access

#: API key of TxnOffsetCommit, and its first version with group metadata (KIP-447).
_TXN_OFFSET_COMMIT, _GROUP_METADATA_VERSION = 28, 3

#: Consumer properties that have the same name and meaning in librdkafka.
_CLIENT_PROPERTIES = (
    "client.id",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
)


class ClusterState(NamedTuple):
    """The topics and brokers of a cluster.

    Attributes:
        partition_counts: number of partitions by topic.
        brokers: the brokers.
    """

    partition_counts: Mapping[str, int]
    brokers: Collection[Endpoint]


class ApplicationCluster:
    """Sends requests to the cluster from the driver.

    Attributes:
        config: the consumer properties.
        has_zookeeper: whether ``zookeeper.connect`` is set.

    Args:
        properties: consumer properties with ``group.id``.

    Raises:
        ConfigurationError: a property is invalid, or ``zookeeper.connect`` and ``bootstrap.servers`` are missing.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.has_zookeeper = "zookeeper.connect" in properties
        if not self.has_zookeeper and "bootstrap.servers" not in properties:
            raise ConfigurationError("Missing required property: set zookeeper.connect or bootstrap.servers")
        self._properties = properties
        self.config = ConsumerConfig.from_dict(self.complete(properties))
        self._connecting = Connecting.from_config(self.config)

    def complete(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return ``properties``, with the placeholder that ``ConsumerConfig`` requires if ZooKeeper is not used."""
        return {**({} if self.has_zookeeper else {"zookeeper.connect": "none"}), **properties}

    def describe(self) -> ClusterState:
        """Return the topics and brokers.

        Raises:
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        with self.open() as access:
            topics = access.cluster.partitions(access.cluster.topics())
            return ClusterState({topic: len(numbers) for topic, numbers in topics.items()}, access.cluster.brokers())

    def find_topics(self, topics: Collection[str]) -> set[str]:
        """Return which topics exist according to ZooKeeper or to at least one broker that responds.

        After a topic was deleted, some brokers still list it for a short time.

        Raises:
            RetriableError: ZooKeeper, or all brokers, did not respond.
        """
        state = self.describe()
        found = {topic for topic in topics if topic in state.partition_counts}
        for broker in state.brokers:
            channel = self._connecting.channel(broker)
            try:
                response = channel.request(protocol.metadata_request(sorted(topics)))
                found.update(topic.name for topic in response.topics if topic.partitions)
            except RetriableError:
                continue  # a broker that is down loads the metadata when it starts
            finally:
                channel.close()
        return found

    def client_settings(self, brokers: Collection[Endpoint]) -> dict[str, Any]:
        """Return the connection settings for librdkafka."""
        known = {name: self._properties[name] for name in _CLIENT_PROPERTIES if name in self._properties}
        return {**known, "bootstrap.servers": ",".join(map(str, brokers))}

    def check_transactions(self, brokers: Collection[Endpoint]) -> None:
        """Check that the brokers support transactions that commit group offsets.

        Raises:
            UnsupportedBrokerError: a broker is older than Kafka 2.5.
            RetriableError: a broker did not respond.
        """
        for broker in brokers:
            channel = self._connecting.channel(broker)
            try:
                versions = channel.connect().versions
                assert versions is not None
                known = versions.api_versions or {}
                if known.get(_TXN_OFFSET_COMMIT, (0, 0))[1] < _GROUP_METADATA_VERSION:
                    raise UnsupportedBrokerError(
                        f"broker {broker} does not support exactly_once_v2, which requires Kafka 2.5 or later; set "
                        "QuerySettings.processing_guarantee to 'at_least_once'"
                    )
            finally:
                channel.close()

    @contextmanager
    def open(self) -> Iterator[Access]:
        """Context manager: connect to the cluster, and close the connections on exit."""
        with open_access(self.config, self._connecting, has_session=self.has_zookeeper) as access:
            yield access
