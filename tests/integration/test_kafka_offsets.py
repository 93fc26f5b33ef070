"""Tests of offsets in Kafka, in Kafka and ZooKeeper, and of a change of the storage while a consumer runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.waiting import wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.errors import ConfigurationError, OwnershipLostError
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.offsets.coordinator import GroupCoordinator


@pytest.fixture
def coordinator(zkconsumer_cluster: DevCluster | ExistingCluster, group: str) -> Iterator[GroupCoordinator]:
    """Return a client that reads the offsets of the group from Kafka."""
    brokers = parse_bootstrap(zkconsumer_cluster.bootstrap_servers)
    found = GroupCoordinator(group, lambda: brokers, plaintext(10))
    yield found
    found.close()


def filled(topic: Topics, admin: Any, count: int = 20) -> str:
    name = topic()
    produce(admin, name, 0, numbers(0, count))
    return name


def in_kafka(coordinator: GroupCoordinator, topic: str) -> int:
    return coordinator.fetch_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]


@pytest.mark.parametrize("dual", [True, False])
def test_dual_commit_writes_kafka_and_zookeeper(
    dual: bool,
    admin: Any,
    topic: Topics,
    consumer: Consumers,
    zk: KazooClient,
    group: str,
    coordinator: GroupCoordinator,
) -> None:
    name = filled(topic, admin)
    with consumer(offsets_storage="kafka", dual_commit_enabled=dual) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 7)
        assert connector.commit_offsets() == {TopicPartition(name, 0): 7}

    assert in_kafka(coordinator, name) == 7
    assert stored(zk, group, name) == ({0: "7"} if dual else {})
    with consumer(offsets_storage="kafka", dual_commit_enabled=dual) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 3)) == numbers(7, 10)


def test_periodic_and_final_commits_go_to_kafka(
    admin: Any, topic: Topics, consumer: Consumers, coordinator: GroupCoordinator
) -> None:
    name = filled(topic, admin)
    connector = consumer(offsets_storage="kafka", auto_commit_interval_ms=50)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 5)
    wait_until_equal(lambda: in_kafka(coordinator, name), 4)  # the fifth message is not consumed yet
    take(stream, 1)
    connector.shutdown()

    assert in_kafka(coordinator, name) == 5


@pytest.mark.parametrize(("in_zookeeper", "stored_in_kafka"), [(5, 9), (9, 5), (-1, 9), (9, -1)])
def test_higher_of_two_offsets_is_used(
    in_zookeeper: int,
    stored_in_kafka: int,
    admin: Any,
    topic: Topics,
    consumer: Consumers,
    zk: KazooClient,
    group: str,
    coordinator: GroupCoordinator,
) -> None:
    name = filled(topic, admin)
    if stored_in_kafka >= 0:
        assert coordinator.commit_offsets({TopicPartition(name, 0): stored_in_kafka}) == {}
    if in_zookeeper >= 0:
        zk.create(f"/consumers/{group}/offsets/{name}/0", b"%d" % in_zookeeper, makepath=True)
    connector = consumer(offsets_storage="kafka")
    [stream] = connector.create_message_streams({name: 1})[name]

    assert values(take(stream, 1)) == numbers(9, 10)


def test_offset_in_kafka_is_not_lowered(
    admin: Any, topic: Topics, consumer: Consumers, coordinator: GroupCoordinator
) -> None:
    name = filled(topic, admin)
    connector = consumer(offsets_storage="kafka", dual_commit_enabled=False)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 9)
    connector.commit_offsets()

    assert connector.commit_offsets({TopicPartition(name, 0): 3}) == {TopicPartition(name, 0): 3}
    assert in_kafka(coordinator, name) == 3
    with pytest.raises(OwnershipLostError):
        connector.commit_offsets({TopicPartition(name, 1): 3})


def test_storage_is_switched_at_run_time(
    admin: Any, topic: Topics, consumer: Consumers, zk: KazooClient, group: str, coordinator: GroupCoordinator
) -> None:
    name = filled(topic, admin)
    partition = TopicPartition(name, 0)
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 2)
    connector.commit_offsets()

    assert connector.switch_offsets_storage("kafka") == {partition: 2}
    assert (stored(zk, group, name), in_kafka(coordinator, name)) == ({0: "2"}, 2)
    take(stream, 2)
    connector.commit_offsets()
    assert (stored(zk, group, name), in_kafka(coordinator, name)) == ({0: "4"}, 4)

    connector.switch_offsets_storage("kafka", dual_commit=False)
    take(stream, 2)
    connector.commit_offsets()
    assert (stored(zk, group, name), in_kafka(coordinator, name)) == ({0: "4"}, 6)

    assert connector.switch_offsets_storage("zookeeper") == {partition: 6}
    take(stream, 2)
    connector.commit_offsets()
    assert (stored(zk, group, name), in_kafka(coordinator, name)) == ({0: "8"}, 6)
    assert connector.config.offsets_storage == "zookeeper"
    with pytest.raises(ConfigurationError, match="property 'offsets.storage' must be 'zookeeper' or 'kafka', got"):
        connector.switch_offsets_storage("disk")


def test_unchanged_offsets_are_written_if_configured(
    admin: Any, topic: Topics, consumer: Consumers, zk: KazooClient, group: str
) -> None:
    name = filled(topic, admin)
    connector = consumer(offsets_commit_unchanged=True, auto_commit_interval_ms=50)
    [stream] = connector.create_message_streams({name: 1})[name]
    assert set(zk.get_children(f"/consumers/{group}")) == {"ids", "owners", "offsets"}
    take(stream, 2)
    path = f"/consumers/{group}/offsets/{name}/0"
    wait_until_equal(lambda: zk.exists(path) is not None and zk.get(path)[0], b"1")
    before = zk.exists(path).version

    wait_until_equal(lambda: zk.exists(path).version > before + 2, True)

    assert zk.get(path)[0] == b"1"


def test_commit_error_names_kafka_coordinated_consumers(
    zkconsumer_cluster: DevCluster | ExistingCluster, admin: Any, topic: Topics, consumer: Consumers, group: str
) -> None:
    from kafka import KafkaConsumer

    from zkconsumer import ZkConsumerError

    name = filled(topic, admin)
    other = KafkaConsumer(name, group_id=group, bootstrap_servers=zkconsumer_cluster.bootstrap_servers.split(","))
    try:
        other.poll(5000)
        connector = consumer(offsets_storage="kafka", dual_commit_enabled=False, auto_commit_enable=False)
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 2)
        with pytest.raises(ZkConsumerError, match="the group has active members that are coordinated by Kafka"):
            connector.commit_offsets()
    finally:
        other.close()


def test_kafka_storage_has_property_names_of_original(config: Callable[..., ConsumerConfig]) -> None:
    assert config(offsets_storage="kafka", offsets_channel_backoff_ms=10).dual_commit_enabled
