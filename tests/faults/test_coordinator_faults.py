"""Tests of offsets in Kafka while the coordinator is unavailable: no reset, and no unlimited wait."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.threads import in_thread
from helpers.waiting import wait_for
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import BrokerServer
from zkconsumer.errors import RetriableError
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.offsets.coordinator import GroupCoordinator

from .faults import Member, Peer, kill

KAFKA = {
    "offsets_storage": "kafka",
    "dual_commit_enabled": False,
    "auto_commit_enable": False,
    "offsets_channel_backoff_ms": 200,
    "offsets_channel_socket_timeout_ms": 2000,
    "consumer_timeout_ms": 30_000,
}


def coordinator_of(cluster: DevCluster, group: str) -> BrokerServer:
    """Return the coordinator of the group; the first request creates the offsets topic."""
    brokers = parse_bootstrap(cluster.bootstrap_servers)
    asked = GroupCoordinator(group, lambda: brokers, plaintext(10))
    try:

        def found() -> BrokerServer | None:
            try:
                endpoint = asked._find_coordinator(10.0)
            except RetriableError:
                return None
            return next(broker for broker in cluster.brokers if broker.endpoint[:2] == endpoint[:2])

        return wait_for(found, 30)
    finally:
        asked.close()


@pytest.mark.timeout(180)
def test_commit_is_retried_until_coordinator_returns(
    cluster: DevCluster, config: Callable[..., ConsumerConfig], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    broker = coordinator_of(cluster, group)
    name = topic(partitions=1, replication=2)
    produce(cluster.admin, name, 0, numbers(0, 20))
    partition = TopicPartition(name, 0)
    with create_consumer(config(**KAFKA, offsets_commit_max_retries=100)) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 5)
        assert connector.commit_offsets() == {partition: 5}
        take(stream, 5)
        kill(broker, zk)

        begun = time.monotonic()
        with pytest.raises(RetriableError):
            connector.commit_offsets(retry_on_failure=False)  # one attempt as documented; the JVM makes six
        assert time.monotonic() - begun < 10
        commit = in_thread(connector.commit_offsets)
        broker.start()

        assert commit.result(60) == {partition: 10}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_start_waits_for_coordinator_and_resumes(
    cluster: DevCluster, config: Callable[..., ConsumerConfig], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    """The JVM of 0.9 and 0.10 may interpret an error of the coordinator as a missing offset, and reset."""
    broker = coordinator_of(cluster, group)
    name = topic(partitions=1, replication=2)
    produce(cluster.admin, name, 0, numbers(0, 20))
    with create_consumer(config(**KAFKA)) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 5)
        connector.commit_offsets()
    kill(broker, zk)

    with create_consumer(config(**KAFKA, rebalance_max_retries=1000, rebalance_backoff_ms=200)) as connector:
        joining = in_thread(lambda: connector.create_message_streams({name: 1}))
        wait_for(lambda: connector.unbalanced_since is not None, what="an attempt has failed")
        broker.start()
        [stream] = joining.result(60)[name]

        assert values(take(stream, 1)) == numbers(5, 6)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_shutdown_without_coordinator_is_bounded(
    cluster: DevCluster, config: Callable[..., ConsumerConfig], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    broker = coordinator_of(cluster, group)
    name = topic(partitions=1, replication=2)
    produce(cluster.admin, name, 0, numbers(0, 20))
    connector = create_consumer(config(**{**KAFKA, "auto_commit_enable": True}))
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 5)
    kill(broker, zk)

    begun = time.monotonic()
    connector.shutdown()

    assert time.monotonic() - begun < 20
    broker.start()
    wait_for(lambda: not zk.exists(f"/consumers/{group}/owners/{name}/0"), what="its owner znode is deleted")


@pytest.mark.timeout(60)
def test_silent_coordinator_delays_release_by_one_timeout(
    cluster: DevCluster, member: Callable[..., Member], topic: Callable[..., str], group: str
) -> None:
    """One request commits the offsets of all partitions that are released."""
    broker = coordinator_of(cluster, group)
    name = topic(partitions=60)
    for partition in range(60):
        produce(cluster.admin, name, partition, numbers(0, 1))
    one = member({name: 1}, **KAFKA | {"auto_commit_enable": True, "auto_commit_interval_ms": 500})
    one.wait_for_more(60)
    broker.pause()
    try:
        with Peer(cluster, group) as peer:
            peer.register({name: 1})
            started = time.monotonic()
            wait_for(lambda: len(one.connector.assignment) == 30, what="half of the partitions are released")
            assert time.monotonic() - started < 8  # a commit that is running, and that of the release, 2 s each
    finally:
        broker.resume()
