"""Tests with Kafka 4 in KRaft mode: the group is in ZooKeeper, and the metadata comes from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Consumers
from helpers.configurations import consumer_config
from helpers.group_members import consumers
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from helpers.zookeeper import zookeeper_client
from kazoo.client import KazooClient

from zkconsumer import TopicPartition, Whitelist
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    ConsumerRebalanceFailedError,
    ZkConsumerError,
)


@pytest.fixture(scope="module")
def kraft() -> Iterator[DevCluster]:
    """Start two brokers of Kafka 4 in KRaft mode, and a ZooKeeper with a chroot."""
    with DevCluster(brokers=2, kafka="4.4.0", chroot="/groups") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zk(kraft: DevCluster) -> Iterator[KazooClient]:
    with zookeeper_client(kraft.zookeeper_connect) as client:
        yield client


@pytest.fixture
def admin(kraft: DevCluster) -> Any:
    return kraft.admin


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("g")


@pytest.fixture
def topic(kraft: DevCluster, unique: Callable[[str], str]) -> Callable[..., str]:
    return lambda partitions=1, **options: kraft.create_topic(unique("t"), partitions, **options)


@pytest.fixture
def consumer(kraft: DevCluster, group: str) -> Iterator[Consumers]:
    with consumers(lambda **settings: consumer_config(kraft, **({"group_id": group} | settings))) as make:
        yield make


def test_kafka_4_brokers_are_not_in_zookeeper(kraft: DevCluster, zk: KazooClient) -> None:
    assert not zk.exists("/brokers")
    assert set(kraft.consumer_properties) == {"zookeeper.connect", "bootstrap.servers"}


def test_zookeeper_group_reads_from_kraft_brokers(
    admin: Any, topic: Callable[..., str], group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(4)
    for partition in range(4):
        produce(admin, name, partition, numbers(0, 50), codec="zstd")
    one = consumer(consumer_id="one")
    [stream] = one.create_message_streams({name: 1})[name]

    assert sorted((m.partition, m.offset) for m in take(stream, 200)) == [(p, o) for p in range(4) for o in range(50)]
    assert one.commit_offsets() == {TopicPartition(name, p): 50 for p in range(4)}

    [other] = consumer(consumer_id="two").create_message_streams({name: 1})[name]
    assert owners(zk, group, name) == {p: f"{group}_{'one' if p < 2 else 'two'}-0" for p in range(4)}
    assert members(zk, group) == [f"{group}_one", f"{group}_two"]
    for partition in range(4):
        produce(admin, name, partition, [b"new"])
    assert sorted((m.partition, m.offset) for m in take(stream, 2)) == [(0, 50), (1, 50)]
    assert sorted((m.partition, m.offset) for m in take(other, 2)) == [(2, 50), (3, 50)]


def test_member_continues_at_committed_offset(
    admin: Any, topic: Callable[..., str], group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 20))
    with consumer() as first:
        take(first.create_message_streams({name: 1})[name][0], 8)
    assert stored(zk, group, name) == {0: "8"}

    [stream] = consumer().create_message_streams({name: 1})[name]

    assert values(take(stream, 12)) == numbers(8, 20)


def test_committed_offset_beyond_log_is_reset(
    admin: Any, topic: Callable[..., str], group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    zk.create(f"/consumers/{group}/offsets/{name}/0", b"10000", makepath=True)

    [stream] = consumer().create_message_streams({name: 1})[name]

    assert values(take(stream, 10)) == numbers(0, 10)


def test_one_bootstrap_server_is_sufficient(
    kraft: DevCluster, admin: Any, topic: Callable[..., str], consumer: Consumers
) -> None:
    name = topic(4)
    for partition in range(4):
        produce(admin, name, partition, [b"%d" % partition])
    servers = f"127.0.0.1:1,{kraft.brokers[1].endpoint}"

    [stream] = consumer(bootstrap_servers=servers).create_message_streams({name: 1})[name]

    assert sorted(values(take(stream, 4))) == numbers(0, 4)


def test_metadata_request_creates_no_topic(
    kraft: DevCluster, group: str, consumer: Consumers, zk: KazooClient, unique: Callable[[str], str]
) -> None:
    name = unique("t")
    connector = consumer(consumer_id="c")
    connector.create_message_streams({name: 1})

    assert connector.assignment == {}
    assert members(zk, group) == [f"{group}_c"]
    kraft.create_topic(name, 1)  # fails if the topic exists


def test_unreachable_bootstrap_servers_are_reported(
    topic: Callable[..., str], group: str, consumer: Consumers, zk: KazooClient
) -> None:
    connector = consumer(
        bootstrap_servers="127.0.0.1:1",
        rebalance_max_retries=1,
        rebalance_backoff_ms=100,
        zookeeper_session_timeout_ms=4000,
    )

    with pytest.raises(ConsumerRebalanceFailedError, match=r"no broker is available: .*127\.0\.0\.1:1") as raised:
        connector.create_message_streams({topic(): 1})

    assert isinstance(raised.value.__cause__, BrokerUnavailableError)
    wait_until_equal(lambda: members(zk, group), [])


def recreate(kraft: DevCluster, topic: str) -> None:
    kraft.admin.delete_topic(topic)

    def create() -> bool:
        try:
            kraft.create_topic(topic, 1)
        except ZkConsumerError:
            return False  # the first topic still exists
        return True

    wait_for(create, what="the topic is created again")


@pytest.mark.parametrize("is_written_by_others", [False, True])
def test_recreated_topic_is_detected_by_id_of_last_commit(
    is_written_by_others: bool, kraft: DevCluster, zk: KazooClient, group: str, topic: Any, consumer: Consumers
) -> None:
    """A JVM member writes the offset without the topic id, so its offset is valid."""
    name, admin = topic(), kraft.admin
    produce(admin, name, 0, numbers(0, 10))
    for count in (3, 2):  # the offset znode is created, and then written
        with consumer() as connector:
            take(connector.create_message_streams({name: 1})[name][0], count)
    recreate(kraft, name)
    produce(admin, name, 0, numbers(100, 110))
    if is_written_by_others:
        zk.set(f"/consumers/{group}/offsets/{name}/0", b"5")

    first = 105 if is_written_by_others else 100
    with consumer(auto_offset_reset="largest") as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 4)) == numbers(first, first + 4)
    assert stored(zk, group, name) == {0: str(first - 100 + 4)}
    with consumer(auto_offset_reset="largest") as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 1)) == numbers(first + 4, first + 5)


def test_recreated_topic_is_detected_by_running_consumer(
    kraft: DevCluster, zk: KazooClient, group: str, topic: Any, consumer: Consumers
) -> None:
    name, admin = topic(), kraft.admin
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(metadata_max_age_ms=3000, auto_commit_interval_ms=50)
    [stream] = connector.create_message_streams({name: 1})[name]
    assert values(take(stream, 10)) == numbers(0, 10)
    recreate(kraft, name)
    produce(admin, name, 0, numbers(100, 130))
    found: list[bytes] = []
    while len(found) < 30:  # records after offset 10 may be read before the new topic is detected, and once again
        [value] = values(take(stream, 1))
        found = [*found, value] if value != numbers(100, 101)[0] else [value]
    assert found == numbers(100, 130)


def test_missing_bootstrap_servers_are_logged_with_remedy(
    topic: Callable[..., str], consumer: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
    """If the brokers are migrated to KRaft and the property is missing, the log contains the remedy."""
    connector = consumer(bootstrap_servers="")

    connector.create_message_streams({topic(): 1})

    assert connector.assignment == {}
    assert "bootstrap.servers" in caplog.text


@pytest.mark.parametrize("servers", ["h", "h:", ":9092", "h:x", "a:1,b"])
def test_malformed_bootstrap_servers_are_rejected(servers: str, consumer: Consumers) -> None:
    with pytest.raises(ConfigurationError, match="must be a list such as 'host:port,host:port'"):
        consumer(bootstrap_servers=servers).create_message_streams({"t": 1})


def test_filter_finds_new_topics_by_polling(
    kraft: DevCluster, consumer: Consumers, admin: Any, unique: Callable[[str], str]
) -> None:
    prefix = unique("w")
    first = kraft.create_topic(f"{prefix}-a", 2)
    connector = consumer(metadata_max_age_ms=300)
    [stream] = connector.create_message_streams_by_filter(Whitelist(f"{prefix}-.+"))
    assert set(connector.assignment) == {TopicPartition(first, 0), TopicPartition(first, 1)}

    later = kraft.create_topic(f"{prefix}-b")
    produce(admin, later, 0, [b"later"])

    [message] = take(stream, 1)
    assert (message.topic, message.value) == (later, b"later")


def test_offsets_are_committed_to_kafka_4(
    consumer: Consumers, admin: Any, topic: Callable[..., str], zk: KazooClient, group: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    settings = {"offsets_storage": "kafka", "dual_commit_enabled": False}
    with consumer(**settings) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 4)
    assert stored(zk, group, name) == {}

    with consumer(**settings) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 1)) == numbers(4, 5)


def test_poll_that_finds_partitions_triggers_rebalance(
    kraft: DevCluster, consumer: Consumers, topic: Callable[..., str], zk: KazooClient, group: str
) -> None:
    """Only one of the members polls during the test."""
    name = topic(2)
    rarely = {"metadata_max_age_ms": 600_000}
    consumer(consumer_id="b", **rarely).create_message_streams({name: 1})
    consumer(consumer_id="c", **rarely).create_message_streams({name: 1})
    consumer(consumer_id="a", metadata_max_age_ms=300).create_message_streams({name: 1})
    before = zk.get_children(f"/consumers/{group}/ids", include_data=True)[1].cversion

    kraft.admin.create_partitions(name, 6)

    expected = {number: f"{group}_{'aabbcc'[number]}-0" for number in range(6)}
    wait_until_equal(lambda: owners(zk, group, name), expected)
    children, stat = zk.get_children(f"/consumers/{group}/ids", include_data=True)
    assert sorted(children) == [f"{group}_a", f"{group}_b", f"{group}_c"]
    assert stat.cversion - before == 2, "one creation and one deletion"
