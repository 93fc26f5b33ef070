"""Commit modes of a query and of a plain consumer, by the table of Flink's commit modes.

Source: Flink 1.15 OffsetCommitModes, FlinkKafkaConsumerBaseTest.testConfigure*.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import ZookeeperConsumerConnector

from .queries import Query

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]


@pytest.mark.slow
def test_query_without_commits_changes_no_offset(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str, store: Callable[..., None]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    store(name, {0: 3})
    one = query(name, commitOffsets="false")
    one.wait_for_records(7)
    produce(admin, name, 0, numbers(10, 20))
    one.wait_for_records(17)
    one.handle.processAllAvailable()
    one.stop()
    produce(admin, name, 0, numbers(20, 30))
    again = query(name, commitOffsets="false", trigger={"availableNow": True})
    again.finish()
    assert (one.offsets + again.offsets) == {(0, offset): 1 for offset in range(3, 30)}
    assert stored(zk, group, name) == {0: "3"}


@pytest.mark.parametrize("auto_commit", [True, False])
def test_plain_consumer_commits_periodically_or_on_request(
    auto_commit: bool,
    zkconsumer_cluster: Cluster,
    topic: Topics,
    consumer: Callable[..., ZookeeperConsumerConnector],
    zk: KazooClient,
    group: str,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = consumer(auto_commit_enable=auto_commit, auto_commit_interval_ms=100)
    [stream] = one.create_message_streams({name: 1})[name]
    for _ in range(5):
        next(stream)
    if auto_commit:
        wait_until_equal(lambda: stored(zk, group, name), {0: "4"})  # the fifth message is not consumed yet
        return
    assert stored(zk, group, name) == {}
    one.commit_offsets()
    assert stored(zk, group, name) == {0: "5"}
