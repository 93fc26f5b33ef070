"""LeaderLookup: finds partition leaders with Metadata requests.

Source: Kafka 1.1 kafka.client.ClientUtils.fetchTopicMetadata.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import denied_topic_error, error_name
from zkconsumer.broker.known_brokers import KnownBrokers, brokers_of
from zkconsumer.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.message import Endpoint, TopicPartition

#: Maximum seconds for a lookup, even if ``socket.timeout.ms`` is longer. Brokers answer these requests from memory.
MAX_LOOKUP_TIMEOUT_S = 10.0
#: Errors after which a request is sent to another broker.
BROKER_ERRORS = (RetriableError, AuthenticationError, UnsupportedBrokerError)

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Leaders:
    """Result of a leader lookup.

    Attributes:
        leaders: partition leaders, as ``(broker id, endpoint)``; partitions without a leader are absent.
        errors: Kafka's error code for each partition without a leader.
    """

    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    errors: dict[TopicPartition, int]


class LeaderLookup:
    """Sends Metadata requests to any available broker.

    The connection to the last broker that responded is kept open. Used by one thread; other threads may only call
    ``close()``.

    Args:
        connecting: connection settings. The timeout limits a whole lookup, across all brokers, and is capped at
            ``MAX_LOOKUP_TIMEOUT_S``.
        known: brokers named by the last response; they are tried in addition to the brokers of a call.

    Attributes:
        timeout_s: the effective timeout in seconds.
    """

    def __init__(self, connecting: Connecting, known: KnownBrokers | None = None) -> None:
        self.timeout_s = min(connecting.timeout_s, MAX_LOOKUP_TIMEOUT_S)
        # Ignore socket.receive.buffer.bytes: it is tuned for fetch responses, and metadata responses can be large.
        self._connecting = dataclasses.replace(connecting, timeout_s=self.timeout_s, receive_buffer=-1)
        self._known = known or KnownBrokers()
        self._channel: BrokerChannel | None = None
        self._closed = False

    @property
    def endpoint(self) -> Endpoint | None:
        """The broker that responded last; None before the first lookup, and if the last lookup failed."""
        channel = self._channel
        return None if channel is None else channel.endpoint

    def brokers(self, listed: Sequence[Endpoint]) -> list[Endpoint]:
        """Return the listed brokers and those named by the last response; see ``KnownBrokers.added_to``."""
        return self._known.added_to(listed)

    def leaders(
        self, brokers: Sequence[Endpoint], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return the partition leaders, as ``(broker id, endpoint)``; partitions without a leader are absent.

        Args:
            brokers: brokers to which the request may be sent.

        Raises:
            BrokerUnavailableError: none of the brokers responded.
        """
        return self.look_up(brokers, partitions).leaders

    def look_up(self, brokers: Sequence[Endpoint], partitions: Iterable[TopicPartition]) -> Leaders:
        """Return the partition leaders, and the error codes of partitions without a leader; see ``leaders``."""
        requested = set(partitions)
        response = self.metadata(brokers, sorted({partition.topic for partition in requested}))
        endpoints = brokers_of(response, brokers)
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

        The broker that responded last is tried first, and then ``brokers`` and the brokers named by the last response;
        see ``KnownBrokers.added_to``.

        Args:
            brokers: brokers to which the request may be sent.
            topics: topic names; None for all topics.
            timeout_s: maximum total seconds, across all brokers; None for the ``timeout_s`` attribute.

        Raises:
            BrokerUnavailableError: none of the brokers responded.
            AuthenticationError, UnsupportedBrokerError: every broker failed with one of these errors.
        """
        last = self.endpoint
        endpoints = self.brokers(brokers)
        if last is not None and any(broker[:2] == last[:2] for broker in brokers):
            endpoints.sort(key=lambda broker: broker[:2] != last[:2])
        return self.metadata_from(endpoints, topics, self.timeout_s if timeout_s is None else timeout_s)

    def metadata_from(self, brokers: Sequence[Endpoint], topics: Sequence[str] | None, timeout_s: float) -> Any:
        """Send a Metadata request only to ``brokers``, in this order, until one responds; see ``metadata``."""

        def request(endpoint: Endpoint, share_s: float) -> Any:
            try:
                return self._channel_to(endpoint).request(protocol.metadata_request(topics), share_s)
            except BROKER_ERRORS:
                self._disconnect()
                raise

        response = request_any(brokers, timeout_s, request)
        self._known.record(brokers_of(response, brokers).values())
        return response

    def _channel_to(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channel
        if channel is None or channel.endpoint[:2] != endpoint[:2]:
            self._disconnect()
            channel = self._channel = self._connecting.channel(endpoint)
        if self._closed:  # checked after self._channel is set, so that either close() or this method closes the channel
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
    """Return the exception for a partition that has no leader in a Metadata response."""
    if code == protocol.TOPIC_AUTHORIZATION_FAILED:
        return denied_topic_error(partition.topic)
    return NotLeaderError(f"partition {partition} has no leader: {error_name(code)}; check its replicas")


def divide_timeout(timeout_s: float, brokers: Sequence[Endpoint]) -> Iterator[tuple[Endpoint, float]]:
    """Yield each broker with its timeout in seconds: the remaining time, divided by the number of remaining brokers.

    An unresponsive broker therefore leaves time for the following brokers. If a broker fails early, the following
    brokers have more time.
    """
    deadline = time.monotonic() + timeout_s
    for number, endpoint in enumerate(brokers):
        yield endpoint, max(0.0, deadline - time.monotonic()) / (len(brokers) - number)


def request_any(
    brokers: Sequence[Endpoint], timeout_s: float, request: Callable[[Endpoint, float], Found], failure: str = ""
) -> Found:
    """Send a request to one broker after another, in this order, until one responds, and return the response.

    A broker that rejects the client is skipped, too: its listeners, credentials or request versions may differ from
    those of the other brokers, for example during a rolling upgrade. Source: Kafka 1.1 kafka.client.ClientUtils.

    Args:
        brokers: brokers to which the request may be sent.
        timeout_s: maximum total seconds, across all brokers.
        request: function that sends the request to a broker, given a timeout in seconds, and returns the response.
        failure: start of the error message if no broker responded; empty, or ends with ``": "``.

    Raises:
        BrokerUnavailableError: none of the brokers responded.
        AuthenticationError, UnsupportedBrokerError: every broker failed with one of these errors.
    """
    failures: list[Exception] = []
    for endpoint, share_s in divide_timeout(timeout_s, brokers):
        try:
            return request(endpoint, share_s)
        except BROKER_ERRORS as error:
            failures.append(error)
    if failures and not any(isinstance(error, RetriableError) for error in failures):
        raise failures[0]
    raise BrokerUnavailableError(failure + _no_broker_message(failures))


def _no_broker_message(failures: Sequence[Exception]) -> str:
    if not failures:
        return "no broker is registered in ZooKeeper; set bootstrap.servers if the cluster does not use ZooKeeper"
    message = "no broker is available: " + "; ".join(map(str, failures))
    if any(type(error) is not BrokerUnavailableError for error in failures):
        return message  # the other errors contain their remedies
    return (
        f"{message}; check that the brokers are running, and that their addresses (bootstrap.servers, or the broker "
        "znodes in ZooKeeper) are reachable"
    )
