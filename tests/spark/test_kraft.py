"""Queries of a group in ZooKeeper with a broker in KRaft mode, and corrupt record batches on its disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from helpers.zookeeper import zookeeper_client
from kazoo.client import KazooClient

from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ZkConsumerError

from .queries import Query

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """A broker in KRaft mode, and ZooKeeper for the group."""
    with DevCluster(kafka="4.4.0") as cluster:
        yield cluster


@pytest.fixture
def zk(zkconsumer_cluster: DevCluster) -> Iterator[KazooClient]:
    """A client of the cluster's ZooKeeper."""
    with zookeeper_client(zkconsumer_cluster.zookeeper_connect) as client:
        yield client


def test_query_reads_from_kraft_and_commits_to_zookeeper(
    zkconsumer_cluster: DevCluster, query: Callable[..., Query], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    assert zk.exists("/brokers") is None
    produce(admin, name, 0, numbers(0, 100), codec="zstd")
    one = query(name, zookeeper_session_timeout_ms=60_000)
    one.wait_for_records(100)
    produce(admin, name, 1, numbers(0, 50))
    one.wait_for_records(150)
    assert sorted(one.batches[0].column("value")) == sorted(numbers(0, 100))
    wait_until_equal(lambda: stored(zk, group, name), {0: "100", 1: "50"})
    [consumer_id] = members(zk, group)
    assert owners(zk, group, name) == {0: f"{consumer_id}-0", 1: f"{consumer_id}-0"}
    one.stop()
    # Less than the session timeout, so that the member must have left the group itself.
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}), 45)


@pytest.mark.slow
def test_corrupt_batch_fails_query_with_position(
    zkconsumer_cluster: DevCluster, query: Callable[..., Query], topic: Callable[..., str], group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        for first in range(0, 300, 100):
            produce(admin, name, number, [b"%060d" % n for n in range(first, first + 100)])
    [segment] = zkconsumer_cluster.folder.glob(f"broker-*-data/{name}-1/00000000000000000000.log")
    second = 12 + int.from_bytes(segment.read_bytes()[8:12])
    flip(segment, second + 500)
    try:
        one = query(name)
        with pytest.raises(Exception, match="CorruptRecordError") as failure:
            one.finish()
    finally:
        flip(segment, second + 500)
    assert f"topic {name!r} partition 1 offset 100" in str(failure.value)
    assert stored(zk, group, name) == {0: "0", 1: "0"}
    # When the file is repaired, the same batch succeeds.
    again = query(name)
    again.wait_for_records(600)
    assert [batch.spans for batch in again.batches] == [{(name, 0): (0, 300, 300), (name, 1): (0, 300, 300)}]
    wait_until_equal(lambda: stored(zk, group, name), {0: "300", 1: "300"})


@pytest.mark.slow
def test_re_created_topic_is_detected_by_id(
    zkconsumer_cluster: DevCluster, query: Callable[..., Query], topic: Callable[..., str]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 50))
    query(name, trigger={"availableNow": True}).finish()
    admin.delete_topic(name)

    def create() -> bool:
        try:
            zkconsumer_cluster.create_topic(name, 1)
        except ZkConsumerError:
            return False  # the first topic still exists
        return True

    wait_for(create, what="the topic is re-created")
    produce(admin, name, 0, numbers(1000, 1080))
    with pytest.raises(
        Exception, match=rf"PARTITIONS_DELETED. topic '{name}' was deleted and re-created \(topic id id-"
    ):
        query(name, trigger={"availableNow": True}).finish()
    one = query(name, trigger={"availableNow": True}, failOnDataLoss=False)
    one.finish()
    assert one.batches[-1].column("value") == numbers(1000, 1080)


def flip(file: Path, position: int) -> None:
    """Flip one bit of a file in place, while the broker is running."""
    with file.open("r+b") as opened:
        opened.seek(position)
        [byte] = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 0x80]))


@pytest.mark.parametrize("policy", [pytest.param("skip", marks=pytest.mark.slow), "quarantine"])
def test_corrupt_batch_is_skipped_or_quarantined(
    policy: str, zkconsumer_cluster: DevCluster, query: Callable[..., Query], topic: Callable[..., str]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    for first in range(0, 300, 100):
        produce(admin, name, 0, [b"%060d" % n for n in range(first, first + 100)])
    [segment] = zkconsumer_cluster.folder.glob(f"broker-*-data/{name}-0/00000000000000000000.log")
    second = 12 + int.from_bytes(segment.read_bytes()[8:12])
    flip(segment, second + 500)
    try:
        one = query(name, trigger={"availableNow": True}, corrupt_record_policy=policy)
        one.finish()
    finally:
        flip(segment, second + 500)
    table = one.batches[0].table
    assert [n for n in table["offset"].to_pylist() if n is not None] == [*range(100), *range(200, 300)]
    if policy == "skip":
        assert "corrupt" not in table.column_names
    else:
        [corrupt] = [row for row in table["corrupt"].to_pylist() if row is not None]
        assert (corrupt["topic"], corrupt["partition"], corrupt["offset"]) == (name, 0, 100)
        assert "CRC" in corrupt["error"]
        assert len(corrupt["value"]) == second  # the size of the raw record batch
