"""The cluster of an application: its topics, its brokers, and connections to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

from zkconsumer.broker import protocol
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.broker.leaders import BROKER_ERRORS
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailableError, ConfigurationError, UnsupportedBrokerError, ZkConsumerError
from zkconsumer.message import Endpoint
from zkconsumer.offsets.access import Access, open_access
from zkconsumer.spark.streams.servers_file import ServersFile

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

#: Minimum and maximum ``topic.metadata.refresh.interval.ms``. The maximum is that of librdkafka. A shorter interval
#: than the minimum would load the brokers, because each client requests the metadata in each interval.
_MIN_REFRESH_MS, _MAX_REFRESH_MS = 1_000, 3_600_000


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

    An application keeps it across restarts of its query, so that they use the brokers named by the last Metadata
    response, even if no configured broker is running any longer.

    Attributes:
        config: the consumer properties.
        has_zookeeper: whether ``zookeeper.connect`` is set.
        brokers: brokers according to the last ``describe``. They include the configured ones, which may not be running.

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
        self._known = KnownBrokers()
        self.brokers: Sequence[Endpoint] = ()
        self._servers_file = ServersFile()

    def complete(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return ``properties``, with the placeholder that ``ConsumerConfig`` requires if ZooKeeper is not used."""
        return {**({} if self.has_zookeeper else {"zookeeper.connect": "none"}), **properties}

    @property
    def properties(self) -> dict[str, str]:
        """The consumer properties for other processes. ``bootstrap.servers``, if set, contains the current brokers."""
        servers = {"bootstrap.servers": self._servers} if "bootstrap.servers" in self._properties else {}
        return {**self._properties, **servers}

    @property
    def _servers(self) -> str:
        return ",".join(sorted(map(str, self.brokers)))  # sorted, so that equal brokers result in equal settings

    def describe(self) -> ClusterState:
        """Return the topics and brokers, and update ``brokers`` and the file of ``open_servers_file``.

        Raises:
            RetriableError: ZooKeeper or the brokers did not respond, or no broker is registered in ZooKeeper. Then
                ``brokers`` is not changed, because tasks could not write their output without brokers.
        """
        with self.open() as access:
            topics = access.cluster.partitions(access.cluster.topics())
            brokers = access.cluster.brokers()
        if not brokers:
            raise BrokerUnavailableError("no broker is registered in ZooKeeper; check that the brokers are running")
        self.brokers = brokers
        self._servers_file.write(self._servers)
        return ClusterState({topic: len(numbers) for topic, numbers in topics.items()}, self.brokers)

    def find_topics(self, topics: Collection[str]) -> set[str]:
        """Return which topics exist according to ZooKeeper or to at least one broker that responds.

        After a topic was deleted, some brokers still list it for a short time.

        Raises:
            RetriableError: ZooKeeper, or all brokers, did not respond.
        """
        state = self.describe()
        found = {topic for topic in topics if topic in state.partition_counts}
        for broker in state.brokers:
            # A broker that is down loads the metadata when it starts.
            with suppress(*BROKER_ERRORS), closing(self._connecting.channel(broker)) as channel:
                response = channel.request(protocol.metadata_request(sorted(topics)))
                found.update(topic.name for topic in response.topics if topic.partitions)
        return found

    def client_settings(self) -> dict[str, Any]:
        """Return the connection settings for librdkafka, with the current brokers."""
        known = {name: self._properties[name] for name in _CLIENT_PROPERTIES if name in self._properties}
        refresh_ms = min(max(self.config.metadata_max_age_ms, _MIN_REFRESH_MS), _MAX_REFRESH_MS)
        return {**known, "bootstrap.servers": self._servers, "topic.metadata.refresh.interval.ms": refresh_ms}

    def open_servers_file(self) -> str:
        """Return the path of the file with the current brokers; see ``servers_file``."""
        return self._servers_file.open(self._servers)

    def close(self) -> None:
        """Delete the file of ``open_servers_file``."""
        self._servers_file.close()

    def check_transactions(self, brokers: Collection[Endpoint]) -> None:
        """Check that all responding brokers support transactions that commit group offsets.

        Raises:
            UnsupportedBrokerError: a broker is older than Kafka 2.5.
            ZkConsumerError: no broker responded; the error is that of the first one.
        """
        failures: list[ZkConsumerError] = []
        for broker in brokers:
            try:
                with closing(self._connecting.channel(broker)) as channel:
                    versions = channel.connect().versions
            except BROKER_ERRORS as error:
                failures.append(error)
                continue
            assert versions is not None
            known = versions.api_versions or {}
            if known.get(_TXN_OFFSET_COMMIT, (0, 0))[1] < _GROUP_METADATA_VERSION:
                raise UnsupportedBrokerError(
                    f"broker {broker} does not support exactly_once_v2, which requires Kafka 2.5 or later; set "
                    "QuerySettings.processing_guarantee to 'at_least_once'"
                )
        if failures and len(failures) == len(brokers):
            raise failures[0]

    @contextmanager
    def open(self) -> Iterator[Access]:
        """Context manager: connect to the cluster, and close the connections on exit."""
        with open_access(self.config, self._connecting, has_session=self.has_zookeeper, known=self._known) as access:
            yield access
