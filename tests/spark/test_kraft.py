"""A query whose brokers run without ZooKeeper, while its group stays there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from support import members, numbers, owners, produce, stored, wait_until_equal

from zkconsumer.devcluster import DevCluster

from .queries import Query

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """A broker in KRaft mode, and a ZooKeeper beside it."""
    with DevCluster(kafka="4.3.0") as cluster:
        yield cluster


@pytest.fixture
def zk(zkconsumer_cluster: DevCluster) -> Iterator[KazooClient]:
    """A client of that ZooKeeper."""
    client = KazooClient(zkconsumer_cluster.zookeeper_connect)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def test_a_query_reads_from_kraft_brokers_and_keeps_its_offsets_in_zookeeper(
    zkconsumer_cluster: DevCluster, query: Callable[..., Query], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    assert zk.exists("/brokers") is None
    produce(admin, name, 0, numbers(0, 100), codec="zstd")
    one = query(name)
    one.wait_for_records(100)
    produce(admin, name, 1, numbers(0, 50))
    one.wait_for_records(150)
    assert sorted(one.batches[0].column("value")) == sorted(numbers(0, 100))
    wait_until_equal(lambda: stored(zk, group, name), {0: "100", 1: "50"})
    [consumer_id] = members(zk, group)
    assert owners(zk, group, name) == {0: f"{consumer_id}-0", 1: f"{consumer_id}-0"}
    one.stop()
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}), 2)
