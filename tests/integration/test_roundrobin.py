"""Tests of the round-robin and Flink strategies, and of members with another strategy than their group."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from helpers.aliases import Consumers, Topics
from helpers.waiting import wait_for
from helpers.znodes import owners
from kazoo.client import KazooClient

from zkconsumer import TopicPartition
from zkconsumer.errors import ConsumerRebalanceFailedError
from zkconsumer.rebalance.assignors import assign_flink, assign_roundrobin


def dealt(topic: str, threads: dict[str, list[str]], order: str) -> dict[TopicPartition, str]:
    return assign_roundrobin({topic: list(range(12))}, {topic: threads[topic]}, order)


@pytest.mark.parametrize("order", ["1.0", "0.10.2"])
def test_partitions_of_all_topics_are_assigned(
    order: str, topic: Topics, consumer: Consumers, zk: KazooClient, group: str
) -> None:
    a, b = topic(5), topic(4)
    settings = {"partition_assignment_strategy": "roundrobin", "roundrobin_order": order}
    members = [consumer(consumer_id=letter, **settings) for letter in "xyz"]
    for member in members:
        member.create_message_streams({a: 1, b: 1})

    wait_for(lambda: all(len(member.assignment) == 3 for member in members))
    assert {**owners(zk, group, a)}.keys() | owners(zk, group, b).keys() == set(range(5))
    union = [partition for member in members for partition in member.assignment]
    assert len(union) == len(set(union)) == 9


def test_other_assignment_order_is_detected(
    topic: Topics,
    consumer: Consumers,
    zk: KazooClient,
    group: str,
    unique: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = {t: [f"{group}_{member}-0" for member in ("c0", "c1", "odd")] for t in (unique("t") for _ in range(100))}
    name = next(t for t in threads if dealt(t, threads, "1.0") != dealt(t, threads, "0.10.2"))
    topic(12, name=name)
    theirs = [consumer(consumer_id=f"c{i}", partition_assignment_strategy="roundrobin") for i in range(2)]
    for member in theirs:
        member.create_message_streams({name: 1})

    odd = consumer(
        consumer_id="odd",
        partition_assignment_strategy="roundrobin",
        roundrobin_order="0.10.2",
        rebalance_max_retries=3,
        rebalance_backoff_ms=500,
        zookeeper_session_timeout_ms=2000,
    )
    with (
        caplog.at_level(logging.ERROR, "zkconsumer.rebalance"),
        pytest.raises(ConsumerRebalanceFailedError, match=r"roundrobin.order=1.0, but.*must use the same strategy"),
    ):
        odd.create_message_streams({name: 1})

    assert any("assignment_strategy_mismatch" in record.getMessage() for record in caplog.records)
    wait_for(lambda: len(found := owners(zk, group, name)) == 12 and f"{group}_odd-0" not in found.values())


def test_members_assign_like_flink(topic: Topics, consumer: Consumers, zk: KazooClient, group: str) -> None:
    name = topic(7)
    members = [consumer(consumer_id=letter, partition_assignment_strategy="flink") for letter in "xyz"]
    for member in members:
        member.create_message_streams({name: 1})
    wanted = assign_flink({name: range(7)}, {name: [f"{group}_{letter}-0" for letter in "xyz"]})
    wait_for(lambda: owners(zk, group, name) == {partition: thread for (_, partition), thread in wanted.items()})


def test_flink_order_in_other_group_is_detected(
    topic: Topics, consumer: Consumers, zk: KazooClient, group: str, unique: Callable[[str], str]
) -> None:
    ids = [f"{group}_{member}-0" for member in ("c0", "c1", "odd")]
    # When odd registers, range moves partition 2 from c0 to c1, and odd could claim it in between. So the topic is one
    # for which flink does not assign partition 2 to odd.
    names = (unique("t") for _ in range(100))
    name = topic(6, name=next(n for n in names if assign_flink({n: [2]}, {n: ids})[TopicPartition(n, 2)] != ids[2]))
    for number in range(2):
        consumer(consumer_id=f"c{number}").create_message_streams({name: 1})
    odd = consumer(
        consumer_id="odd",
        partition_assignment_strategy="flink",
        rebalance_max_retries=3,
        rebalance_backoff_ms=500,
        zookeeper_session_timeout_ms=2000,
    )
    with pytest.raises(
        ConsumerRebalanceFailedError,
        match=r"strategy=range, but this consumer uses flink; .*must use the same",
    ):
        odd.create_message_streams({name: 1})
    wait_for(lambda: len(found := owners(zk, group, name)) == 6 and f"{group}_odd-0" not in found.values())
