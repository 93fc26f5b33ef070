"""LeaderLookup: Metadata requests, and the leaders of partitions in their responses.

Source: Kafka 1.1 kafka.client.ClientUtils.fetchTopicMetadata.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import denied_topic_error, error_name
from zkconsumer.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.message import Endpoint, TopicPartition

#: Maximum seconds for a lookup, even if ``socket.timeout.ms`` is longer. Brokers respond from memory.
MAX_LOOKUP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Leaders:
    """The result of a lookup.

    Attributes:
        leaders: ``(broker id, endpoint)`` of the leader of each partition that has one.
        errors: error code of Kafka for each other partition.
    """

    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    errors: dict[TopicPartition, int]


class LeaderLookup:
    """Sends Metadata requests to any of the brokers.

    The connection to the last broker that responded is kept open. Used by one thread; other threads may only call
    ``close()``.

    Args:
        connecting: its timeout is for a lookup, with all brokers together; at most ``MAX_LOOKUP_TIMEOUT_S`` applies.

    Attributes:
        timeout_s: the timeout that applies.
    """

    def __init__(self, connecting: Connecting) -> None:
        self.timeout_s = min(connecting.timeout_s, MAX_LOOKUP_TIMEOUT_S)
        # Not the receive buffer of fetches: the metadata of many partitions are large.
        self._connecting = dataclasses.replace(connecting, timeout_s=self.timeout_s, receive_buffer=-1)
        self._channel: BrokerChannel | None = None
        self._closed = False

    @property
    def endpoint(self) -> Endpoint | None:
        """The broker that responded last; None if the last lookup failed."""
        channel = self._channel
        return None if channel is None else channel.endpoint

    def leaders(
        self, brokers: Sequence[Endpoint], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return ``(broker id, endpoint)`` of the leader of each partition that has one.

        Args:
            brokers: the brokers that may receive the request.

        Raises:
            BrokerUnavailableError: none of the brokers responded.
        """
        return self.look_up(brokers, partitions).leaders

    def look_up(self, brokers: Sequence[Endpoint], partitions: Iterable[TopicPartition]) -> Leaders:
        """Return the leaders of partitions, and the errors of those without a leader; see ``leaders``."""
        requested = set(partitions)
        response = self.metadata(brokers, sorted({partition.topic for partition in requested}))
        # If one broker supports ApiVersions, the others do, too, except during an upgrade from 0.9.
        has_api_versions = True if response.API_VERSION > 0 else None
        endpoints = {
            broker.node_id: Endpoint(broker.host, broker.port, has_api_versions).with_versions_from(brokers)
            for broker in response.brokers
        }
        leaders = {}
        errors = dict.fromkeys(requested, protocol.LEADER_NOT_AVAILABLE)
        topic_errors = {topic.name: topic.error_code for topic in response.topics if topic.error_code}
        errors |= {
            partition: topic_errors[partition.topic] for partition in requested if partition.topic in topic_errors
        }
        for topic in response.topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                if partition in requested and p.leader_id in endpoints:
                    leaders[partition] = (int(p.leader_id), endpoints[p.leader_id])
                    errors.pop(partition, None)
        return Leaders(leaders, errors)

    def metadata(
        self, brokers: Sequence[Endpoint], topics: Sequence[str] | None, timeout_s: float | None = None
    ) -> Any:
        """Send a Metadata request to one broker after another until one responds, and return the response.

        The broker that responded last is tried first.

        Args:
            topics: names; None for all topics.
            timeout_s: maximum seconds for all brokers together; None for ``timeout_s`` of the object.

        Raises:
            BrokerUnavailableError: none of the brokers responded.
            AuthenticationError, UnsupportedBrokerError: none of the brokers can be used, for this reason.
        """
        endpoints = list(brokers)
        random.shuffle(endpoints)
        if self._channel is not None and self._channel.endpoint in endpoints:
            endpoints.remove(self._channel.endpoint)
            endpoints.insert(0, self._channel.endpoint)
        failures: dict[Endpoint, Exception] = {}
        for endpoint, share_s in divide_timeout(self.timeout_s if timeout_s is None else timeout_s, endpoints):
            try:
                return self._channel_to(endpoint).request(protocol.metadata_request(topics), share_s)
            except (RetriableError, AuthenticationError, UnsupportedBrokerError) as error:
                failures[endpoint] = error
                self._disconnect()
        fatal = [error for error in failures.values() if not isinstance(error, RetriableError)]
        if fatal and len(fatal) == len(failures):
            raise fatal[0]
        raise BrokerUnavailableError(_no_broker_message(failures))

    def _channel_to(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channel
        if channel is None or channel.endpoint != endpoint:
            self._disconnect()
            channel = self._channel = self._connecting.channel(endpoint)
        if self._closed:  # checked after self._channel is set, so that either close() or this method closes it
            channel.close()
        return channel

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close permanently; a request in flight in another thread raises ``ClosedError``."""
        self._closed = True
        channel = self._channel
        if channel is not None:
            channel.close()


def no_leader_error(code: int, partition: TopicPartition) -> ZkConsumerError:
    """Return the error of a partition without a leader in a Metadata response."""
    if code == protocol.TOPIC_AUTHORIZATION_FAILED:
        return denied_topic_error(partition.topic)
    return NotLeaderError(f"partition {partition} has no leader: {error_name(code)}; check its replicas")


def divide_timeout(timeout_s: float, brokers: Sequence[Endpoint]) -> Iterator[tuple[Endpoint, float]]:
    """Yield each broker with the seconds to wait for it: an equal share of what remains of ``timeout_s``.

    A broker that does not respond leaves time for the others, and one that fails at once leaves its time to them.
    """
    deadline = time.monotonic() + timeout_s
    for number, endpoint in enumerate(brokers):
        yield endpoint, max(0.0, deadline - time.monotonic()) / (len(brokers) - number)


def _no_broker_message(failures: Mapping[Endpoint, Exception]) -> str:
    if not failures:
        return "no broker is registered in ZooKeeper; set bootstrap.servers if the cluster does not use ZooKeeper"
    return "no broker is available: " + "; ".join(str(error) for error in failures.values())
