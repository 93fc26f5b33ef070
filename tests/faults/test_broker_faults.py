"""Tests with brokers that are killed, paused, unavailable, or no longer leaders."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from helpers.aliases import Loads, Topics
from helpers.producing import numbers, produce
from helpers.reading import by_partition
from helpers.topics import end_offsets
from helpers.waiting import TIMEOUT_S, wait_for
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, KafkaStream, MessageAndMetadata, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import ZkConsumerError

from .faults import Cable, Member, kill, seconds, settings, texts, wait_until_all_is_read
from .transaction_log import group_history

Members = Callable[..., Member]


def test_broker_restart_causes_no_gap_or_duplicate(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 2})
    one.wait_for_more(500)
    rebalances = one.core.rebalances
    kill(cluster.brokers[0], zk)
    cluster.brokers[0].start()
    one.wait_for_more(2000)
    writer.stop()
    assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
    assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())
    assert one.core.rebalances == rebalances
    one.leave()
    assert stored(zk, group, name) == texts(end_offsets(cluster, name, 4))


def test_frozen_broker_delays_only_its_partitions(cluster: DevCluster, member: Members, topic: Topics) -> None:
    name = topic(partitions=4)
    [frozen, other] = cluster.brokers
    with cluster.new_admin() as admin:
        admin.wait_for_leaders(name, 4)
        available = [partition for partition, leader in admin._leaders.items() if leader == other.endpoint]
        assert len(available) == 2
        one = member({name: 1}, socket_timeout_ms=1000)
        frozen.pause()
        for number in range(20):
            for partition in available:
                produce(admin, name, partition.partition, numbers(10 * number, 10 * number + 10))
            wait_for(lambda: one.count == 20 * (number + 1), timeout=3)


def test_reading_resumes_after_long_broker_freeze(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1}, socket_timeout_ms=500)
    one.wait_for_more(500)
    cluster.brokers[0].pause()
    wait_for(lambda: one.connector._active_runtime().fetchers.no_leader_partitions, what="no leader is known")
    cluster.brokers[0].resume()
    one.wait_for_more(1000)
    writer.stop()
    assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
    assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())


def test_shutdown_is_quick_with_frozen_broker(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    one.wait_for_more(200)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])
    ends = end_offsets(cluster, name, 4)
    for broker in cluster.brokers:
        broker.pause()
    assert seconds(one.leave) < 3
    assert stored(zk, group, name) == texts(ends)


@pytest.mark.slow
def test_broker_with_new_address_is_found(cluster: DevCluster, member: Members, load: Loads, topic: Topics) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    one.wait_for_more(500)
    [broker, _] = cluster.brokers
    with (
        Cable(broker.endpoint.port) as cable,
        settings(broker, cluster.folder, f"advertised.listeners=PLAINTEXT://127.0.0.1:{cable.port}"),
    ):
        one.wait_for_more(1000)
        writer.stop()
        assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
        assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())
        one.leave()


@pytest.mark.slow
def test_slow_link_makes_progress(cluster: DevCluster, member: Members, topic: Topics) -> None:
    """A fetch response of the default size takes eight times the timeout; smaller ones arrive in time."""
    name = topic(partitions=1)
    [broker, _] = cluster.brokers
    with (
        Cable(broker.endpoint.port) as cable,
        settings(broker, cluster.folder, f"advertised.listeners=PLAINTEXT://127.0.0.1:{cable.port}"),
    ):
        end_offsets(cluster, name, 1)
        for _ in range(40):  # a batch is not divided
            produce(cluster.admin, name, 0, [bytes(8 << 10)])
        cable.bytes_per_s = 64 << 10
        one = member({name: 1}, socket_timeout_ms=2000)
        one.wait_for_more(40, 60)
        one.leave()


def test_new_leader_is_found_after_death_of_only_configured_broker(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4, replication=2)
    writer = load(name, 4)
    one = member({name: 2}, bootstrap_servers=str(cluster.brokers[0].endpoint))
    one.wait_for_more(500)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])  # consumed records are replicated
    kill(cluster.brokers[0], zk)
    writer = load(name, 4)
    one.wait_for_more(500)
    cluster.brokers[0].start()
    one.wait_for_more(500)
    writer.stop()
    assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
    assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())
    one.leave()
    assert group_history(cluster.folder, group).violations == []


@pytest.mark.slow
def test_garbled_responses_do_not_stop_member() -> None:
    # Some changed bits are in records, which have a checksum; others in sizes, names and numbers outside of them.
    client, rng = free_port(), random.Random(4)

    def garble(data: bytes) -> bytes:
        if rng.random() < 0.7:
            return data
        position = rng.randrange(len(data))
        return data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]

    with DevCluster() as cluster, Cable(client) as cable:
        [broker] = cluster.brokers
        with settings(
            broker,
            cluster.folder,
            f"listeners=PLAINTEXT://{broker.endpoint},GARBLED://127.0.0.1:{client}",
            f"advertised.listeners=PLAINTEXT://{broker.endpoint},GARBLED://127.0.0.1:{cable.port}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,GARBLED:PLAINTEXT",
            "inter.broker.listener.name=PLAINTEXT",
        ):
            cluster.create_topic("garbled", 2)
            config = ConsumerConfig.from_dict(
                cluster.consumer_properties
                | {
                    "group.id": "garbled",
                    "bootstrap.servers": f"127.0.0.1:{cable.port}",
                    "auto.offset.reset": "smallest",
                    "fetch.message.max.bytes": 3000,
                    "refresh.leader.backoff.ms": 10,
                    "socket.timeout.ms": 1000,
                    "consumer.timeout.ms": 100,
                }
            )
            with create_consumer(config) as consumer:
                [stream] = consumer.create_message_streams({"garbled": 1})["garbled"]
                seen, errors = read_for(10, cluster, cable, garble, stream)
                print(f"{len(seen)} read, {errors}")
                cable.garble = lambda data: data
                for number in range(2):
                    produce(cluster.admin, "garbled", number, [b"the end"])
                ends: set[int] = set()
                deadline = time.monotonic() + TIMEOUT_S
                while len(ends) < 2 and time.monotonic() < deadline:
                    with contextlib.suppress(ZkConsumerError):
                        message = next(stream)
                        if message.value == b"the end":
                            ends.add(message.partition)
                assert ends == {0, 1}


def read_for(
    seconds: float, cluster: DevCluster, cable: Cable, garble: Callable[[bytes], bytes], stream: KafkaStream
) -> tuple[list[MessageAndMetadata], Counter[str]]:
    """Produce and read while responses are garbled; return the read messages and the errors."""
    seen: list[MessageAndMetadata] = []
    errors: Counter[str] = Counter()
    cable.garble = garble
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for number in range(2):
            cluster.admin.produce(TopicPartition("garbled", number), numbered_batch(0, 200, size=20))
        try:
            seen += itertools.islice(stream, 400)
        except ZkConsumerError as error:
            errors[type(error).__name__] += 1
    return seen, errors


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_repeated_leader_deaths_cause_no_gap_or_duplicate(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, zk: KazooClient
) -> None:
    name = topic(partitions=4, replication=2)
    one = member({name: 2})
    for number in range(8):
        broker = cluster.brokers[number % 2]
        writer = load(name, 4)
        one.wait_for_more(500)
        writer.stop()
        wait_until_all_is_read(cluster, name, 4, [one])  # consumed records are replicated
        kill(broker, zk)
        writer = load(name, 4)
        one.wait_for_more(500)
        broker.start()
        one.wait_for_more(500)
        writer.stop()
        assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
        wait_for(lambda: in_sync(zk, name) == {0: 2, 1: 2, 2: 2, 3: 2}, 60, what="both replicas are in sync")
    assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())


def in_sync(zk: KazooClient, topic: str) -> dict[int, int]:
    """Return the number of in-sync replicas of each partition."""
    path = f"/brokers/topics/{topic}/partitions"
    return {int(n): len(json.loads(zk.get(f"{path}/{n}/state")[0])["isr"]) for n in zk.get_children(path)}
