"""Tests of ConsumerRebalanceListener: when it is called, its arguments, and commits inside it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import owners, stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerRebalanceListener, TopicPartition
from zkconsumer.errors import MessageStreamsExistError


class Recorder(ConsumerRebalanceListener):
    """Records the arguments of its calls."""

    def __init__(self) -> None:
        self.released: list[dict[str, set[int]]] = []
        self.assigned: list[tuple[str, dict[str, dict[int, str]]]] = []

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        self.released.append({topic: set(found) for topic, found in partitions.items()})

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        self.assigned.append((consumer_id, {topic: dict(found) for topic, found in assignment.items()}))


def test_listeners_of_both_members_get_same_assignment(topic: Topics, consumer: Consumers, group: str) -> None:
    """Source: Kafka 1.1 ZookeeperConsumerConnectorTest.testConsumerRebalanceListener."""
    name = topic(2)
    one, two = Recorder(), Recorder()
    first = consumer(consumer_id="consumer1")
    first.set_consumer_rebalance_listener(one)
    first.create_message_streams({name: 1})

    assert one.assigned == [(f"{group}_consumer1", {name: dict.fromkeys((0, 1), f"{group}_consumer1-0")})]
    assert one.released == []

    second = consumer(consumer_id="consumer2")
    second.set_consumer_rebalance_listener(two)
    second.create_message_streams({name: 1})

    both = {name: {0: f"{group}_consumer1-0", 1: f"{group}_consumer2-0"}}
    wait_until_equal(lambda: one.assigned[-1], (f"{group}_consumer1", both))
    assert one.released == [{name: {1}}]
    assert two.assigned == [(f"{group}_consumer2", both)]
    with pytest.raises(MessageStreamsExistError):
        second.set_consumer_rebalance_listener(one)


def test_listener_can_commit_released_partitions(
    admin: Any, topic: Topics, consumer: Consumers, zk: KazooClient, group: str
) -> None:
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    first = consumer(consumer_id="consumer1", auto_commit_enable=False)

    class Committer(ConsumerRebalanceListener):
        def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
            first.commit_offsets({TopicPartition(t, p): 4 for t, found in partitions.items() for p in found})

    first.set_consumer_rebalance_listener(Committer())
    [stream] = first.create_message_streams({name: 1})[name]
    take(stream, 5)

    second = consumer(consumer_id="consumer2", auto_commit_enable=False)
    [theirs] = second.create_message_streams({name: 1})[name]

    assert take(theirs, 1)[0].offset == 4
    assert stored(zk, group, name) == {1: "4"}


def test_raising_listener_is_called_again(topic: Topics, consumer: Consumers) -> None:
    name = topic()
    failures = [ValueError("one"), ValueError("two")]

    class Failing(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
            if failures:
                raise failures.pop()

    connector = consumer(rebalance_backoff_ms=10)
    connector.set_consumer_rebalance_listener(Failing())
    connector.create_message_streams({name: 1})

    assert failures == []
    assert set(connector.assignment) == {TopicPartition(name, 0)}


def test_blocked_listener_does_not_block_group(topic: Topics, consumer: Consumers, zk: KazooClient, group: str) -> None:
    name = topic(2)
    released, let_go = threading.Event(), threading.Event()

    class Stuck(ConsumerRebalanceListener):
        def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
            released.set()
            let_go.wait(60)

    first = consumer(consumer_id="consumer1", rebalance_backoff_ms=100)
    first.set_consumer_rebalance_listener(Stuck())
    first.create_message_streams({name: 1})
    second = consumer(consumer_id="consumer2")
    second.create_message_streams({name: 1})
    try:
        assert released.is_set()
        wait_for(lambda: owners(zk, group, name) == {0: f"{group}_consumer1-0", 1: f"{group}_consumer2-0"})
    finally:
        let_go.set()


def test_listener_can_commit_all_delivered_messages(
    admin: Any, topic: Topics, consumer: Consumers, zk: KazooClient, group: str
) -> None:
    """The commit includes revoked partitions, because they are still owned."""
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    first = consumer(consumer_id="consumer1", auto_commit_enable=False)

    class Committer(ConsumerRebalanceListener):
        def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
            first.commit_offsets()

    first.set_consumer_rebalance_listener(Committer())
    [stream] = first.create_message_streams({name: 1})[name]
    take(stream, 20)

    consumer(consumer_id="consumer2", auto_commit_enable=False).create_message_streams({name: 1})

    assert stored(zk, group, name) == {0: "10", 1: "10"}


def test_listener_blocked_at_start_does_not_block_group(
    topic: Topics, consumer: Consumers, zk: KazooClient, group: str
) -> None:
    name, let_go = topic(2), threading.Event()

    class Stuck(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
            let_go.wait(60)

    first = consumer(consumer_id="consumer1", rebalance_backoff_ms=100)
    first.set_consumer_rebalance_listener(Stuck())
    try:
        first.create_message_streams({name: 1})
        consumer(consumer_id="consumer2").create_message_streams({name: 1})
        wait_for(lambda: owners(zk, group, name) == {0: f"{group}_consumer1-0", 1: f"{group}_consumer2-0"})
    finally:
        let_go.set()
