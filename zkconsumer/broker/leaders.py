"""LeaderLookup: which broker leads a partition, from the brokers' answers to Metadata requests.

Source: Kafka 1.1 kafka.client.ClientUtils.fetchTopicMetadata.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, RetriableError, UnsupportedBrokerError
from zkconsumer.message import Endpoint, TopicPartition


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
