"""Offsets that applications commit to Kafka for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers.aliases import Cluster, Topics
from helpers.teardown import started
from helpers.waiting import wait_for

from zkconsumer.devcluster import DevCluster
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.offset_commits import OffsetCommits

QUERY = "11111111-1111-1111-1111-111111111111"


def open_cluster(bootstrap_servers: str, group: str) -> ApplicationCluster:
    return ApplicationCluster({"bootstrap.servers": bootstrap_servers, "group.id": group, "socket.timeout.ms": "2000"})


def read(cluster: ApplicationCluster, *partitions: TopicPartition) -> list[tuple[int, Marker | None]]:
    with cluster.open() as access:
        found = access.coordinator().fetch_offsets_and_metadata(partitions)
    return [(found[one].offset, Marker.from_metadata(found[one].metadata)) for one in partitions]


@pytest.fixture
def start(zkconsumer_cluster: Cluster, group: str) -> Iterator[Callable[[], OffsetCommits]]:
    def make() -> OffsetCommits:
        commits = OffsetCommits(open_cluster(zkconsumer_cluster.bootstrap_servers, group))
        commits.start()
        return commits

    with started(make, lambda commits: commits.close(10)) as create:
        yield create


def test_last_offsets_are_committed_before_close(
    start: Callable[[], OffsetCommits], zkconsumer_cluster: Cluster, topic: Topics, group: str
) -> None:
    name = topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    commits = start()
    for number in range(50):
        commits.add({first: number} if number % 2 else {first: number, second: 7}, Marker(QUERY, number))
    commits.close(30)
    cluster = open_cluster(zkconsumer_cluster.bootstrap_servers, group)
    [found, other] = read(cluster, first, second)
    assert found == (49, Marker(QUERY, 49))
    assert other[0] == 7
    assert commits.failure is None
    assert commits.health_reasons() == []


def test_offset_of_another_query_ends_commits(start: Callable[[], OffsetCommits], topic: Topics) -> None:
    partition = TopicPartition(topic(1), 0)
    first = start()
    first.add({partition: 1}, Marker("other", 3))
    first.close(30)
    commits = start()
    commits.add({partition: 1}, Marker(QUERY, 3))
    wait_for(lambda: commits.failure is not None, 30, what="the other query is detected")
    assert "committed offset 1" in str(commits.failure)
    assert f"in query other, so query {QUERY} stops in batch 3" in str(commits.failure)


@pytest.mark.slow
def test_unreachable_coordinator_is_health_reason(group: str) -> None:
    with DevCluster() as devcluster:
        partition = TopicPartition(devcluster.create_topic("t", 1), 0)
        cluster = open_cluster(devcluster.bootstrap_servers, group)
        commits = OffsetCommits(cluster)
        commits.start()
        try:
            commits.add({partition: 1}, Marker(QUERY, 0))
            wait_for(lambda: not commits._pending, 30, what="the offset is committed")
            devcluster.brokers[0].pause()
            for number in range(2, 5):
                commits.add({partition: number}, Marker(QUERY, number))
            wait_for(lambda: bool(commits.health_reasons()), 60, what="the commit has failed")
            [reason] = commits.health_reasons()
            assert reason.code == "commit_failed"
            assert commits.failure is None
            devcluster.brokers[0].resume()
            wait_for(lambda: not commits.health_reasons(), 60, what="the offset is committed")
            assert read(cluster, partition) == [(4, Marker(QUERY, 4))]
            devcluster.brokers[0].pause()
            commits.add({partition: 5}, Marker(QUERY, 5))
        finally:
            commits.close(1)
            devcluster.brokers[0].resume()
        assert commits.failure is None
