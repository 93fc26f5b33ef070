"""Brokers killed, frozen, all away, or no longer leading."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support import by_partition, numbers, produce, stored, wait_for

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.devcluster.servers import Broker

from .faults import Cable, Load, Member, end_offsets, kill, seconds, texts, wait_until_all_is_read
from .transaction_log import group_history

Members = Callable[..., Member]
Loads = Callable[..., Load]
Topics = Callable[..., str]


def test_a_broker_that_is_killed_and_restarted_is_read_on_without_a_gap_or_a_repetition(
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


def test_a_frozen_broker_holds_up_its_own_partitions_alone(cluster: DevCluster, member: Members, topic: Topics) -> None:
    name = topic(partitions=4)
    [frozen, other] = cluster.brokers
    with cluster.new_admin() as admin:
        admin.wait_for_leaders(name, 4)
        theirs = [partition for partition, leader in admin._leaders.items() if leader == other.endpoint]
        assert len(theirs) == 2
        one = member({name: 1}, socket_timeout_ms=1000)
        frozen.pause()
        for number in range(20):
            for partition in theirs:
                produce(admin, name, partition.partition, numbers(10 * number, 10 * number + 10))
            wait_for(lambda: one.count == 20 * (number + 1), timeout=3)


def test_a_broker_frozen_for_longer_than_the_socket_timeout_is_read_on(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1}, socket_timeout_ms=500)
    one.wait_for_more(500)
    cluster.brokers[0].pause()
    wait_for(lambda: one.connector._parts.fetchers.no_leader_partitions, what="the fetcher gives up")
    cluster.brokers[0].resume()
    one.wait_for_more(1000)
    writer.stop()
    assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
    assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())


def test_shutdown_is_quick_while_a_broker_is_frozen(
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


def test_a_broker_that_comes_back_at_another_address_is_read_on(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    one.wait_for_more(500)
    with Cable(cluster.brokers[0].endpoint.port) as cable, advertised(cluster.brokers[0], cluster.folder, cable.port):
        one.wait_for_more(1000)
        writer.stop()
        assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
        assert all(offsets == sorted(offsets) for offsets in by_partition(one.seen).values())
        one.leave()


@contextlib.contextmanager
def advertised(broker: Broker, folder: Path, port: int) -> Iterator[None]:
    """Restart a broker so that it tells clients to come to another port."""
    settings = folder / f"broker-{broker.node}.properties"
    before = settings.read_text()
    settings.write_text(f"{before}advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n")
    broker.restart()
    yield
    settings.write_text(before)
    broker.restart()


@pytest.mark.slow
def test_answers_that_are_garbled_on_the_way_neither_stop_a_member_nor_change_what_it_reads(
    cluster: DevCluster, member: Members, topic: Topics
) -> None:
    # One change per kilobyte or so: some hit records, some sizes, names and numbers around them.
    name = topic(partitions=2)
    for number in range(100):
        for partition in range(2):
            content = numbered_batch(number * 100, 100, size=20)
            cluster.admin.produce(TopicPartition(name, partition), content)
    [broker, _] = cluster.brokers
    chance = random.Random(4)

    def garble(data: bytes) -> bytes:
        if chance.random() < 0.3:
            position = chance.randrange(len(data))
            return data[:position] + bytes([data[position] ^ 1 << chance.randrange(8)]) + data[position + 1 :]
        return data

    with Cable(broker.endpoint.port, garble) as cable, advertised(broker, cluster.folder, cable.port):
        one = member({name: 1}, fetch_message_max_bytes=3000, socket_timeout_ms=1000, refresh_leader_backoff_ms=10)
        time.sleep(5)
        cable.garble = None
        print(one.readers[0].error, one.count)
        assert wait_until_all_is_read(cluster, name, 2, [one]) == 0
        assert [int(m.value) for m in one.seen if m.partition == 0] == list(range(10_000))
        one.leave()


def test_a_new_leader_is_found_when_the_preferred_one_dies(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4, replication=2)
    writer = load(name, 4)
    one = member({name: 2})
    one.wait_for_more(500)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])  # what is read is replicated
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
