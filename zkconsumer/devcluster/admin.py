"""Topic administration and a simple producer, for development and tests."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.producer import ProduceRequest
from kazoo.client import KazooClient

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import error_name
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.checked_arguments import check_arguments_as
from zkconsumer.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.log_ends import LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.retry import polling, retrying

# Kafka error codes.
_UNKNOWN_TOPIC = 3
_TOPIC_EXISTS = 36
_NOT_CONTROLLER = 41
_NO_LEADER = (3, 5, 6, 7)

_REQUEST_TIMEOUT_MS = 30_000

_CONNECTING = Connecting("zkconsumer-devcluster", _REQUEST_TIMEOUT_MS / 1000, PLAINTEXT)

#: Interval between two checks of a broker's state, in seconds.
_POLL_INTERVAL_S = 0.05

#: Maximum seconds to wait until the brokers no longer report a deleted topic.
_DELETION_TIMEOUT_S = 10.0

#: Retries requests that fail while a broker is starting or a leader is being elected.
_retry = retrying(30)


class TopicExistsError(RetriableError):
    """A topic already exists, or is being deleted."""


class Admin:
    """An admin client for one cluster; not thread-safe.

    Args:
        bootstrap: addresses of all brokers.
        zookeeper_connect: ``zookeeper.connect`` of the brokers; required for Kafka before 0.10.1, where topics are
            created in ZooKeeper.
    """

    def __init__(self, bootstrap: Sequence[Endpoint], zookeeper_connect: str | None = None) -> None:
        self._bootstrap = list(bootstrap)
        self._zookeeper_connect = zookeeper_connect
        self._channels: dict[Endpoint, BrokerChannel] = {}
        self._leaders: dict[TopicPartition, Endpoint] = {}

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @check_arguments_as(ConfigurationError)
    def create_topic(
        self, topic: str, partitions: int = 1, *, replication: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, and wait until every broker reports a leader for each partition.

        If a topic with this name is being deleted, the request is repeated for up to 30 s (KAFKA-6928).
        """
        t = CreateTopicsRequest.CreatableTopic
        wanted = t(
            name=topic,
            num_partitions=partitions,
            replication_factor=replication,
            assignments=[],
            configs=[t.CreatableTopicConfig(name=k, value=str(v)) for k, v in (config or {}).items()],
        )
        request = lambda: CreateTopicsRequest(  # noqa: E731
            topics=[wanted], timeout_ms=_REQUEST_TIMEOUT_MS, validate_only=False, max_version=4
        )
        try:
            _retry(self._create_topic_once, request, topic)
        except UnsupportedBrokerError:
            if self._zookeeper_connect is None:
                raise
            _write_topic(self._zookeeper_connect, topic, partitions, replication, config or {})
        self.wait_for_leaders(topic, partitions)

    def _create_topic_once(self, request: Any, topic: str) -> None:
        try:
            self._on_controller_once(request, lambda reply: reply.topics, (0,))
        except TopicExistsError as error:
            if all(self._count_leaders(topic)):  # no broker reports its deletion
                raise ZkConsumerError(str(error)) from None
            raise

    @check_arguments_as(ConfigurationError)
    def create_partitions(self, topic: str, total: int) -> None:
        """Increase a topic's partition count to ``total``, and wait until the partitions have leaders."""
        t = CreatePartitionsRequest.CreatePartitionsTopic
        request = lambda: CreatePartitionsRequest(  # noqa: E731
            topics=[t(name=topic, count=total, assignments=None)],
            timeout_ms=_REQUEST_TIMEOUT_MS,
            validate_only=False,
            max_version=1,
        )
        self._on_controller(request, lambda reply: reply.results)
        self.wait_for_leaders(topic, total)

    @check_arguments_as(ConfigurationError)
    def delete_topic(self, topic: str) -> None:
        """Delete a topic, if it exists, and wait until no broker reports a leader of it."""
        request = lambda: DeleteTopicsRequest(  # noqa: E731
            topic_names=[topic], timeout_ms=_REQUEST_TIMEOUT_MS, max_version=3
        )
        self._on_controller(request, lambda reply: reply.responses, accepted=(0, _UNKNOWN_TOPIC))
        is_deleted = lambda: not any(self._count_leaders(topic))  # noqa: E731
        polling(_DELETION_TIMEOUT_S, interval_s=_POLL_INTERVAL_S, stop=threading.Event())(is_deleted)

    def _count_leaders(self, topic: str) -> Iterator[int]:
        """Yield the number of partition leaders that each reachable broker reports for a topic."""
        for broker in self._bootstrap:
            with contextlib.suppress(RetriableError):
                yield len(self._leaders_from(broker, topic))

    def wait_for_brokers(self, timeout: float = 30.0) -> None:
        """Wait until the metadata of every broker contains a controller and all brokers.

        Brokers accept connections before their metadata is complete. With Kafka before 0.10, the method waits
        until all brokers are registered in ZooKeeper instead.

        Args:
            timeout: maximum seconds to wait.

        Raises:
            ZkConsumerError: the metadata was not complete, or not all brokers were registered, within ``timeout``.
        """
        deadline = time.monotonic() + timeout
        for broker in self._bootstrap:
            while (known := self._known_brokers(broker)) < len(self._bootstrap):
                if time.monotonic() > deadline:
                    total = len(self._bootstrap)
                    raise ZkConsumerError(f"broker {broker} reports {known} of {total} brokers after {timeout:g} s")
                time.sleep(_POLL_INTERVAL_S)

    def _known_brokers(self, broker: Endpoint) -> int:
        if broker.has_api_versions is not False or self._zookeeper_connect is None:
            reply = self._channel(broker).request(protocol.metadata_request([]))
            return len(reply.brokers) if reply.controller_id >= 0 else 0
        # Before Kafka 0.10, metadata responses contain no brokers until a topic exists.
        with _zookeeper(self._zookeeper_connect) as client:
            return len(client.get_children("/brokers/ids"))

    def wait_for_leaders(self, topic: str, partitions: int, timeout: float = 30.0) -> None:
        """Wait until every broker reports a leader for each partition.

        Args:
            partitions: partition count of the topic.
            timeout: maximum seconds to wait.

        Raises:
            ZkConsumerError: a broker did not report a leader for each partition within ``timeout``.
        """
        deadline = time.monotonic() + timeout
        waiting = list(self._bootstrap)
        while waiting:
            try:
                leaders = self._leaders_from(waiting[0], topic)
            except RetriableError:
                leaders = {}
            if len(leaders) >= partitions:
                self._leaders.update(leaders)
                waiting.pop(0)
            elif time.monotonic() > deadline:
                raise ZkConsumerError(
                    f"topic {topic!r}: broker {waiting[0]} reports {len(leaders)} of {partitions} partition leaders "
                    f"after {timeout:g} s"
                )
            else:
                time.sleep(_POLL_INTERVAL_S)

    def produce(self, partition: TopicPartition, records: bytes) -> int:
        """Append record batches (see ``load.py``) to a partition.

        Retries for up to 30 s while the leader is unreachable or the partition has no leader. Records may be duplicated
        if a response is lost.

        Returns:
            The offset of the first record.
        """
        return self.produce_all({partition: records})[partition]

    def produce_all(self, records: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        """Append record batches to several partitions, with one request per broker; see ``produce``."""
        pending, offsets = dict(records), {}
        for attempt in _retry:
            with attempt:
                by_leader: dict[Endpoint, list[TopicPartition]] = {}
                for partition in pending:
                    leader = self._leaders.get(partition) or self._leader_of(partition)
                    by_leader.setdefault(leader, []).append(partition)
                for leader, partitions in by_leader.items():
                    for partition, offset in self._produce_to(leader, {p: pending[p] for p in partitions}).items():
                        offsets[partition] = offset
                        del pending[partition]
                if pending:
                    raise NotLeaderError(
                        f"could not produce to {min(pending)}: the broker that received the request does not know the "
                        "topic or is not the leader, or the request timed out"
                    )
        return offsets

    def _produce_to(self, leader: Endpoint, records: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        """Produce to one leader; return the offset of the first record, by partition.

        Partitions for which the request must be retried are absent. The cached leaders of these partitions, or of all
        partitions if a ``RetriableError`` is raised, are discarded.
        """
        t = ProduceRequest.TopicProduceData
        by_topic: dict[str, list[Any]] = {}
        for (topic, number), data in records.items():
            by_topic.setdefault(topic, []).append(t.PartitionProduceData(index=number, records=data))
        topics = [t(name=topic, partition_data=data) for topic, data in by_topic.items()]
        request = ProduceRequest(
            transactional_id=None, acks=1, timeout_ms=_REQUEST_TIMEOUT_MS, topic_data=topics, max_version=8
        )
        try:
            responses = self._channel(leader).request(request).responses
        except RetriableError:
            for partition in records:
                self._leaders.pop(partition, None)
            raise
        offsets = {}
        for response in responses:
            for result in response.partition_responses:
                partition = TopicPartition(response.name, result.index)
                if result.error_code in _NO_LEADER:
                    self._leaders.pop(partition, None)
                elif result.error_code:
                    raise ZkConsumerError(f"could not produce to {partition}: {error_name(result.error_code)}")
                else:
                    offsets[partition] = int(result.base_offset)
        return offsets

    def offsets(self, topic: str, partitions: int, timestamp: int = LATEST) -> dict[int, int]:
        """Look up the offset of each partition at ``timestamp``.

        Args:
            partitions: partition count of the topic.
            timestamp: ``LATEST``, ``EARLIEST`` or milliseconds since the epoch.
        """
        offsets = {}
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            leader = self._leaders.get(partition) or self._leader_of(partition)
            reply = self._channel(leader).request(protocol.list_offsets_request([partition], timestamp))
            error, offset = protocol.parse_list_offsets_response(reply)[partition]
            if error:
                raise ZkConsumerError(f"could not look up the offset of {partition}: {error_name(error)}")
            offsets[number] = offset
        return offsets

    def _channel(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = _CONNECTING.channel(endpoint)
        return channel

    def _leaders_from(self, broker: Endpoint, topic: str) -> dict[TopicPartition, Endpoint]:
        reply = self._channel(broker).request(protocol.metadata_request([topic]))
        brokers = {b.node_id: Endpoint(b.host, b.port).with_versions_from(self._bootstrap) for b in reply.brokers}
        return {
            TopicPartition(topic, p.partition_index): brokers[p.leader_id]
            for t in reply.topics
            for p in t.partitions
            if p.leader_id in brokers
        }

    def _leader_of(self, partition: TopicPartition) -> Endpoint:
        for broker in self._bootstrap:
            try:
                self._leaders.update(self._leaders_from(broker, partition.topic))
            except RetriableError:
                continue
            if partition in self._leaders:
                return self._leaders[partition]
        raise NotLeaderError(f"no broker reported a leader for partition {partition}")

    def _on_controller(self, request: Any, results: Any, accepted: Collection[int] = (0,)) -> None:
        """Send a request to one broker after another until the controller accepts it, with retries."""
        _retry(self._on_controller_once, request, results, accepted)

    def _on_controller_once(self, request: Any, results: Any, accepted: Collection[int]) -> None:
        for broker in self._bootstrap:
            try:
                reply = self._channel(broker).request(request())
            except RetriableError:
                continue
            [result] = results(reply)
            if result.error_code in accepted:
                return
            # A controller whose ZooKeeper session expired returns UNKNOWN_SERVER_ERROR (-1).
            if result.error_code not in (_NOT_CONTROLLER, protocol.UNKNOWN_SERVER_ERROR):
                error_type = TopicExistsError if result.error_code == _TOPIC_EXISTS else ZkConsumerError
                text = getattr(result, "error_message", None) or error_name(result.error_code)
                raise error_type(f"topic {result.name!r}: {text}")
        raise BrokerUnavailableError(
            "could not find the controller: each broker was unreachable, or returned NOT_CONTROLLER (41) or "
            "UNKNOWN_SERVER_ERROR (-1)"
        )


@contextlib.contextmanager
def _zookeeper(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(timeout=10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _write_topic(
    zookeeper_connect: str, topic: str, partitions: int, replication: int, config: Mapping[str, object]
) -> None:
    """Create a topic in ZooKeeper, as required before Kafka 0.10.1.

    Source: Kafka 0.8.2 kafka.admin.AdminUtils.createTopic.
    """
    with _zookeeper(zookeeper_connect) as client:
        ids = sorted(int(node) for node in client.get_children("/brokers/ids"))
        replicas = {str(p): [ids[(p + r) % len(ids)] for r in range(replication)] for p in range(partitions)}
        settings = {"version": 1, "config": {key: str(value) for key, value in config.items()}}
        for path, content in (
            (f"/config/topics/{topic}", settings),
            (f"/brokers/topics/{topic}", {"version": 1, "partitions": replicas}),
        ):
            client.create(path, json.dumps(content).encode(), makepath=True)
