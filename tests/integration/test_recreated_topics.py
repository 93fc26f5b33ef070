"""Tests of topics that are deleted and created again under the same name: their records are read from the beginning."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Topics
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.topics import recreate_topic
from helpers.waiting import wait_for
from helpers.znodes import set_offsets, stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition, ZookeeperConsumerConnector
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.zookeeper.session import ZooKeeperSession

STORAGES: dict[str, dict[str, object]] = {
    "zookeeper": {"offsets_storage": "zookeeper"},
    "kafka": {"offsets_storage": "kafka", "dual_commit_enabled": False},
    "dual": {"offsets_storage": "kafka", "dual_commit_enabled": True},
}


@pytest.fixture
def admin(zkconsumer_cluster: Cluster) -> Any:
    return zkconsumer_cluster.admin


def read(connector: ZookeeperConsumerConnector, topic: str, count: int) -> list[Any]:
    """Read values from a topic, and commit."""
    [stream] = connector.create_message_streams({topic: 1})[topic]
    found = values(take(stream, count))
    connector.commit_offsets()
    return found


@pytest.mark.parametrize("committed", [5, 10_000], ids=["offset exists", "offset is out of range"])
def test_topic_recreated_between_two_runs(
    committed: int,
    zkconsumer_cluster: Cluster,
    topic: Topics,
    group: str,
    consumer: Consumers,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    set_offsets(zk, group, name, {0: committed})  # as a JVM member does
    recreate_topic(zkconsumer_cluster, zk, name)
    produce(admin, name, 0, numbers(100, 120))

    with consumer(auto_offset_reset="largest") as connector:
        assert read(connector, name, 8) == numbers(100, 108)
    assert "topic_recreated" in caplog.text
    assert stored(zk, group, name) == {0: "8"}
    caplog.clear()
    with consumer(auto_offset_reset="largest") as connector:
        assert read(connector, name, 12) == numbers(108, 120)
    assert "topic_recreated" not in caplog.text


@pytest.mark.parametrize("storage", STORAGES)
def test_topic_recreated_under_running_consumer(
    storage: str, zkconsumer_cluster: Cluster, topic: Topics, consumer: Consumers, zk: KazooClient
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    settings: dict[str, object] = {"auto_offset_reset": "largest", "auto_commit_interval_ms": 50, **STORAGES[storage]}
    with consumer(**settings) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        wait_for(lambda: connector.lag.get(TopicPartition(name, 0)) == 0, what="the start offset is known")
        produce(admin, name, 0, numbers(10, 20))
        assert values(take(stream, 10)) == numbers(10, 20)
        recreate_topic(zkconsumer_cluster, zk, name)
        produce(admin, name, 0, numbers(100, 130))
        assert values(take(stream, 25)) == numbers(100, 125)
    with consumer(**settings) as connector:
        assert read(connector, name, 5) == numbers(125, 130)


def test_offset_of_deleted_topic_is_not_committed(
    config: Callable[..., ConsumerConfig], group: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The application may commit when the partitions of a re-created topic are released."""
    session = ZooKeeperSession.from_config(config(), queue.SimpleQueue())
    session.start()
    ids = {"t": "zk-5"}
    offsets = ZooKeeperOffsets(session, group, topic_ids=lambda: ids)
    partition = TopicPartition("t", 0)
    assert offsets.fetch([partition]) == {partition: -1}
    ids["t"] = "zk-6"
    offsets.commit({partition: 7})
    assert stored(zk, group, "t") == {}
    assert "offset_of_deleted_topic_skipped" in caplog.text
    assert offsets.fetch([partition]) == {partition: -1}  # the partition is claimed again
    offsets.commit({partition: 3})
    assert stored(zk, group, "t") == {0: "3"}
    session.close()


@pytest.mark.parametrize(
    ("metadata", "first"),
    [("zkconsumer topic id: zk-1", 0), ("zkconsumer topic id: zk-", 0), ("of another client", 5), ("", 5)],
)
def test_offset_in_kafka_is_valid_for_its_topic_only(
    metadata: str, first: int, zkconsumer_cluster: Cluster, topic: Topics, group: str, consumer: Consumers
) -> None:
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 10))
    brokers = parse_bootstrap(zkconsumer_cluster.bootstrap_servers)
    coordinator = GroupCoordinator(group, lambda: brokers, plaintext(10))
    partition = TopicPartition(name, 0)
    wait_for(lambda: coordinator.commit_offsets({partition: 5}, {partition: metadata}) == {}, what="the commit")

    with consumer(auto_offset_reset="largest", **STORAGES["kafka"]) as connector:
        assert read(connector, name, 1) == numbers(first, first + 1)
    [committed] = coordinator.fetch_offsets_and_metadata([partition]).values()
    coordinator.close()
    assert committed.offset == first + 1
    assert committed.metadata.startswith("zkconsumer topic id: zk-")
