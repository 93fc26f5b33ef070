"""Tests with invalid properties, and with unavailable ZooKeepers, brokers, chroots and topics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Configs, Consumers, Topics
from helpers.producing import Load, numbers, produce
from helpers.reading import by_partition, take, values
from helpers.waiting import TIMEOUT_S, wait_for
from helpers.znodes import members, stored
from helpers.zookeeper import zookeeper_that_only_reads
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ConfigurationError, ConsumerRebalanceFailedError, ZooKeeperUnavailableError

from .conftest import GIVE_UP_MS
from .faults import Member, seconds


@pytest.mark.parametrize("servers", ["localhost", "localhost:x", "localhost:65536", ":9092"])
def test_malformed_bootstrap_servers_are_rejected(config: Configs, servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        create_consumer(config(bootstrap_servers=servers)).create_message_streams({})


def test_frozen_zookeeper_fails_within_connection_timeout(cluster: DevCluster, config: Configs) -> None:
    cluster.zookeeper.pause()
    one = create_consumer(config(zookeeper_connection_timeout_ms=500))

    def join() -> None:
        with pytest.raises(ZooKeeperUnavailableError):
            one.create_message_streams({"topic": 1})

    assert seconds(join) < 5


def test_read_only_zookeeper_is_reported(tmp_path: Path) -> None:
    with zookeeper_that_only_reads(tmp_path) as connect:
        properties = {"group.id": "g", "zookeeper.connect": connect, "zookeeper.connection.timeout.ms": 1000}
        with pytest.raises(ZooKeeperUnavailableError, match="read-only servers do not accept consumers"):
            create_consumer(ConsumerConfig.from_dict(properties)).create_message_streams({"topic": 1})


def test_broker_address_as_zookeeper_is_reported(cluster: DevCluster, config: Configs) -> None:
    settings = {"zookeeper_connect": cluster.bootstrap_servers, "zookeeper_connection_timeout_ms": 1000}
    with pytest.raises(ZooKeeperUnavailableError, match=r"zookeeper\.connect"):
        create_consumer(config(**settings)).create_message_streams({"topic": 1})


def test_zookeeper_address_as_broker_is_reported(
    cluster: DevCluster, config: Configs, group: str, zk: KazooClient
) -> None:
    settings = {"bootstrap_servers": cluster.zookeeper.connect, "rebalance_max_retries": 1, "socket_timeout_ms": 500}
    with pytest.raises(ConsumerRebalanceFailedError, match=cluster.zookeeper.connect):
        create_consumer(config(**settings, zookeeper_session_timeout_ms=GIVE_UP_MS)).create_message_streams(
            {"topic": 1}
        )
    assert members(zk, group) == []


def test_missing_chroot_is_reported_and_not_created(cluster: DevCluster, config: Configs, zk: KazooClient) -> None:
    one = create_consumer(config(zookeeper_connect=f"{cluster.zookeeper.connect}/no/such"))
    with pytest.raises(ConfigurationError, match=r"zookeeper\.connect.*chroot '/no/such' does not exist"):
        one.create_message_streams({"topic": 1})
    assert not zk.exists("/no")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
def test_invalid_topic_name_is_rejected_before_start(config: Configs, name: str) -> None:
    with pytest.raises(ConfigurationError, match="topic"):
        create_consumer(config()).create_message_streams({name: 1})


@pytest.mark.parametrize("count", [0, -1, 1.5, "1", None])
def test_invalid_stream_count_is_rejected_before_start(config: Configs, count: Any) -> None:
    with pytest.raises(ConfigurationError, match="'some-topic'.*streams"):
        create_consumer(config()).create_message_streams({"some-topic": count})


@pytest.mark.parametrize("offset", [-1, (1 << 63) - 1, 1 << 63, 1.5])
def test_invalid_offset_is_rejected_and_not_committed(
    consumer: Consumers, topic: Topics, group: str, zk: KazooClient, offset: Any
) -> None:
    name = topic()
    one = consumer()
    one.create_message_streams({name: 1})
    with pytest.raises(ConfigurationError, match=f"{name}-0"):
        one.commit_offsets({TopicPartition(name, 0): offset})
    assert stored(zk, group, name) == {}


def test_unwritable_group_is_reported(config: Configs, topic: Topics, group: str, zk: KazooClient) -> None:
    zk.create(f"/consumers/{group}", acl=READ_ACL_UNSAFE, makepath=True)
    one = create_consumer(config(rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(
        ConsumerRebalanceFailedError, match=rf"access to znode /consumers/{group}/ids was denied by its ACL"
    ):
        one.create_message_streams({topic(): 1})


def test_missing_topic_is_consumed_once_created(
    cluster: DevCluster, consumer: Consumers, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    name = unique("t")
    one = consumer()
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        [stream] = one.create_message_streams({name: 1})[name]
    assert any("topics_missing" in record.getMessage() and name in record.getMessage() for record in caplog.records)
    assert one.assignment == {}
    cluster.create_topic(name, 2)
    for number in range(2):
        produce(cluster.admin, name, number, numbers(0, 10))
    assert sorted(values(take(stream, 20))) == sorted(2 * numbers(0, 10))


def test_re_created_topic_is_read_from_its_start(
    cluster: DevCluster, member: Callable[..., Member], topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=1)
    produce(cluster.admin, name, 0, numbers(0, 50))
    one = member({name: 1})
    wait_for(lambda: stored(zk, group, name) == {0: "50"})
    cluster.admin.delete_topic(name)
    wait_for(lambda: one.owned == [], what="the member releases the topic")
    wait_for(lambda: not zk.exists(f"/brokers/topics/{name}"), what="the topic is deleted")
    cluster.create_topic(name, 1)
    produce(cluster.admin, name, 0, numbers(100, 120))
    wait_for(lambda: one.count >= 70, what="the new records are read")
    assert values(one.seen)[-20:] == numbers(100, 120)
    assert one.connector.commit_offsets() == {TopicPartition(name, 0): 20}


@pytest.mark.slow
def test_members_join_without_any_broker(
    cluster: DevCluster,
    member: Callable[..., Member],
    topic: Topics,
    load: Callable[..., Load],
    group: str,
    zk: KazooClient,
) -> None:
    name = topic(partitions=2)
    load(name, 2).wait_for_more(100)
    for broker in cluster.brokers:
        broker.stop()
    assert zk.get_children("/brokers/ids") == []
    one = member({name: 1})
    assert one.owned == [0, 1]
    # Without brokers, the start offsets are unknown, so neither a commit nor the shutdown commits anything.
    assert one.connector.commit_offsets() == {}
    one.leave()
    assert stored(zk, group, name) == {}
    one = member({name: 1})
    assert one.connector.commit_offsets() == {}
    assert stored(zk, group, name) == {}
    for broker in cluster.brokers:
        broker.start()
    one.wait_for_more(100, 2 * TIMEOUT_S)
    wait_for(lambda: by_partition(one.seen).keys() == {0, 1}, what="both partitions are read")
    assert {offsets[0] for offsets in by_partition(one.seen).values()} == {0}
    assert one.connector.commit_offsets().keys() == {TopicPartition(name, 0), TopicPartition(name, 1)}
