"""LeaderLookup: Metadata requests, and the leaders of partitions in their responses.

Source: Kafka 1.1 kafka.client.ClientUtils.fetchTopicMetadata.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, RetriableError, UnsupportedBrokerError
from zkconsumer.message import Endpoint, TopicPartition

#: The code of ``HealthReason`` for a topic to which access is denied.
_DENIED = "topic_authorization_failed"


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
        timeout: maximum seconds for a lookup, with all brokers together.
    """

    def __init__(self, client_id: str, timeout: float, security: Security = PLAINTEXT) -> None:
        self._client_id = client_id
        self._timeout = timeout
        self._security = security
        self._channel: BrokerChannel | None = None
        self._closed = False

    @property
    def endpoint(self) -> Endpoint | None:
        """The broker that responded last; None if the last lookup has failed."""
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
                    del errors[partition]
        return Leaders(leaders, errors)

    def metadata(self, brokers: Sequence[Endpoint], topics: Sequence[str] | None) -> Any:
        """Send a Metadata request to one broker after another until one responds, and return the response.

        The broker that responded last is tried first.

        Args:
            topics: names; None for all topics.

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
        for endpoint, timeout in shares_of(self._timeout, endpoints):
            try:
                return self._channel_to(endpoint).request(protocol.metadata_request(topics), timeout)
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
            channel = self._channel = BrokerChannel(
                endpoint, self._client_id, timeout=self._timeout, security=self._security
            )
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


def problem_of(error: int, topic: str, code: str, message: str) -> tuple[str, str]:
    """Return the code (see ``HealthReason``) and the message for a broker's error that concerns a topic.

    Args:
        error: error code of Kafka.
        code: the code unless access is denied.
        message: the message unless access is denied.
    """
    if error == protocol.TOPIC_AUTHORIZATION_FAILED:
        code, message = _DENIED, f"access to topic {topic!r} is denied (error {error}); allow DESCRIBE and READ"
    return code, message


def no_leader_problem(error: int, partition: TopicPartition) -> tuple[str, str]:
    """Return the code and the message for a partition without a leader; see ``problem_of``."""
    message = f"partition {partition} has no leader (error {error}); check its replicas"
    return problem_of(error, partition.topic, "leader_not_found", message)


def shares_of(timeout: float, brokers: Sequence[Endpoint]) -> Iterator[tuple[Endpoint, float]]:
    """Yield each broker with the seconds to wait for it: an equal share of what remains of ``timeout``.

    A broker that does not respond leaves time for the others, and one that fails at once leaves its time to them.
    """
    deadline = time.monotonic() + timeout
    for number, endpoint in enumerate(brokers):
        yield endpoint, max(0.0, deadline - time.monotonic()) / (len(brokers) - number)


def _no_broker_message(failures: Mapping[Endpoint, Exception]) -> str:
    if not failures:
        return "no broker is registered in ZooKeeper; set bootstrap.servers if the cluster does not use ZooKeeper"
    return "no broker is available: " + "; ".join(str(error) for error in failures.values())
