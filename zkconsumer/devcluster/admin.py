"""Topics of a cluster: create, delete, widen, fill with records. For development and tests."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.producer import ProduceRequest
from kazoo.client import KazooClient

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.errors import (
    BrokerUnavailableError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.retry import retrying

_NOT_CONTROLLER = 41
_UNKNOWN = -1
_NO_LEADER = (3, 5, 6, 7)
_TIMEOUT_MS = 30_000

#: What fails while a broker starts or a leader moves is tried again for half a minute.
_patiently = retrying(30)


class Admin:
    """Talks to the brokers of one cluster; used by one thread.

    Args:
        zookeeper_connect: where topics are made on brokers before 0.10.1, which cannot be asked for that.
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

    def create_topic(
        self, topic: str, partitions: int = 1, *, replication: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic and wait until each partition has a leader that all brokers know."""
        t = CreateTopicsRequest.CreatableTopic
        wanted = t(
            name=topic,
            num_partitions=partitions,
            replication_factor=replication,
            assignments=[],
            configs=[t.CreatableTopicConfig(name=k, value=str(v)) for k, v in (config or {}).items()],
        )
        request = lambda: CreateTopicsRequest(  # noqa: E731
            topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False, max_version=4
        )
        try:
            self._on_controller(request, lambda reply: reply.topics)
        except UnsupportedBrokerError:
            if self._zookeeper_connect is None:
                raise
            _write_topic(self._zookeeper_connect, topic, partitions, replication, config or {})
        self.wait_for_leaders(topic, partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        """Widen a topic to ``total`` partitions."""
        t = CreatePartitionsRequest.CreatePartitionsTopic
        request = lambda: CreatePartitionsRequest(  # noqa: E731
            topics=[t(name=topic, count=total, assignments=None)],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
            max_version=1,
        )
        self._on_controller(request, lambda reply: reply.results)
        self.wait_for_leaders(topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        request = lambda: DeleteTopicsRequest(  # noqa: E731
            topic_names=[topic], timeout_ms=_TIMEOUT_MS, max_version=3
        )
        self._on_controller(request, lambda reply: reply.responses)

    def wait_for_brokers(self, timeout: float = 30.0) -> None:
        """Wait until every broker knows the controller and all the others; they take connections before that."""
        deadline = time.monotonic() + timeout
        for broker in self._bootstrap:
            while (known := self._known_brokers(broker)) < len(self._bootstrap):
                if time.monotonic() > deadline:
                    raise ZkConsumerError(f"broker {broker} knows {known} brokers after {timeout} s")
                time.sleep(0.05)

    def _known_brokers(self, broker: Endpoint) -> int:
        if broker.has_api_versions is not False or self._zookeeper_connect is None:
            reply = self._channel(broker).request(protocol.metadata_request([]))
            return len(reply.brokers) if reply.controller_id >= 0 else 0
        with _zookeeper(self._zookeeper_connect) as client:  # those before 0.10 name nobody before there is a topic
            return len(client.get_children("/brokers/ids"))

    def wait_for_leaders(self, topic: str, partitions: int, timeout: float = 30.0) -> None:
        """Wait until every broker names a leader for each partition."""
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
                raise ZkConsumerError(f"topic {topic!r}: no leader for all of {partitions} partitions in {timeout} s")
            else:
                time.sleep(0.05)

    def produce(self, partition: TopicPartition, records: bytes) -> int:
        """Append whole entries (see ``load.py``) to a partition and return the offset of the first.

        Retries for a while where the partition has no leader; an answer that got lost may double records.
        """
        return self.produce_all({partition: records})[partition]

    def produce_all(self, records: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        """Do the same with many partitions, with one request for each broker."""
        pending, found = dict(records), {}
        for attempt in _patiently:
            with attempt:
                by_leader: dict[Endpoint, list[TopicPartition]] = {}
                for partition in pending:
                    leader = self._leaders.get(partition) or self._leader_of(partition)
                    by_leader.setdefault(leader, []).append(partition)
                for leader, partitions in by_leader.items():
                    for partition, offset in self._produce_to(leader, {p: pending[p] for p in partitions}).items():
                        found[partition] = offset
                        del pending[partition]
                if pending:
                    raise NotLeaderError(f"produce to {min(pending)}: its leader has gone")
        return found

    def _produce_to(self, leader: Endpoint, records: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        """Return the offsets of what was taken; the leaders of the others are forgotten."""
        t = ProduceRequest.TopicProduceData
        by_topic: dict[str, list[Any]] = {}
        for (topic, number), data in records.items():
            by_topic.setdefault(topic, []).append(t.PartitionProduceData(index=number, records=data))
        topics = [t(name=topic, partition_data=data) for topic, data in by_topic.items()]
        request = ProduceRequest(
            transactional_id=None, acks=1, timeout_ms=_TIMEOUT_MS, topic_data=topics, max_version=8
        )
        try:
            responses = self._channel(leader).request(request).responses
        except RetriableError:
            for partition in records:
                self._leaders.pop(partition, None)
            raise
        found = {}
        for response in responses:
            for answer in response.partition_responses:
                partition = TopicPartition(response.name, answer.index)
                if answer.error_code in _NO_LEADER:
                    self._leaders.pop(partition, None)
                elif answer.error_code:
                    raise ZkConsumerError(f"produce to {partition}: error {answer.error_code}")
                else:
                    found[partition] = int(answer.base_offset)
        return found

    def offsets(self, topic: str, partitions: int, timestamp: int = protocol.LATEST) -> dict[int, int]:
        """Return the end (or start, or by time) offset of each partition."""
        found = {}
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            leader = self._leaders.get(partition) or self._leader_of(partition)
            reply = self._channel(leader).request(protocol.list_offsets_request([partition], timestamp))
            error, offset = protocol.parse_list_offsets_response(reply)[partition]
            if error:
                raise ZkConsumerError(f"offset of {partition}: error {error}")
            found[number] = offset
        return found

    def _channel(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = BrokerChannel(endpoint, "zkconsumer-devcluster")
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
        raise NotLeaderError(f"no broker knows a leader of {partition}")

    def _on_controller(self, request: Any, results: Any) -> None:
        """Send to one broker after the other until one is the controller."""
        _patiently(self._on_controller_once, request, results)

    def _on_controller_once(self, request: Any, results: Any) -> None:
        for broker in self._bootstrap:
            try:
                reply = self._channel(broker).request(request())
            except RetriableError:
                continue
            [result] = results(reply)
            if result.error_code == 0:
                return
            if result.error_code not in (_NOT_CONTROLLER, _UNKNOWN):  # after a pause it may have lost its session
                text = getattr(result, "error_message", None) or f"error {result.error_code}"
                raise ZkConsumerError(f"topic {result.name!r}: {text}")
        raise BrokerUnavailableError("no broker is the controller")


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
    """Make a topic as old controllers expect it. Source: Kafka 0.8.2 kafka.admin.AdminUtils.createTopic."""
    with _zookeeper(zookeeper_connect) as client:
        ids = sorted(int(node) for node in client.get_children("/brokers/ids"))
        replicas = {str(p): [ids[(p + r) % len(ids)] for r in range(replication)] for p in range(partitions)}
        settings = {"version": 1, "config": {key: str(value) for key, value in config.items()}}
        for path, content in (
            (f"/config/topics/{topic}", settings),
            (f"/brokers/topics/{topic}", {"version": 1, "partitions": replicas}),
        ):
            client.create(path, json.dumps(content).encode(), makepath=True)
