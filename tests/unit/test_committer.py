"""Tests of commits that wait for others in the thread of the calls, with a storage of offsets in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.errors import OwnershipLostError
from zkconsumer.rebalance.broker_calls import BrokerCalls
from zkconsumer.rebalance.committer import OffsetCommitter

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Memory:
    """Offsets in memory. A commit waits until it is allowed."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.is_closed = False
        self.is_running, self.allowed = threading.Event(), threading.Event()

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.committed.get(partition, -1) for partition in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False) -> dict[TopicPartition, int]:
        del allow_lower
        self.is_running.set()
        assert self.allowed.wait(10)
        self.committed.update(offsets)
        return dict(offsets)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def allow_lower_once(self, partition: TopicPartition) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Part:
    """A committer, its storage, and the membership whose assignment the test changes."""

    def __init__(self) -> None:
        self.offsets = Memory()
        assignment = {A: "g_c-0", B: "g_c-0"}
        self.membership = cast(
            "Any",
            SimpleNamespace(group="g", consumer_id="g_c", assignment=assignment, check_session=lambda: None),
        )
        handler: Any = SimpleNamespace(consumed=dict)
        calls = BrokerCalls("test-calls", wait=lambda _: None, wake=lambda: None)
        calls.start()
        self.committer = OffsetCommitter(
            ConsumerConfig.from_dict({"zookeeper.connect": "z:1", "group.id": "g"}),
            self.membership,
            self.offsets,
            handler,
            calls,
            interval_s=None,
        )
        self.join = calls.join


@pytest.fixture
def part() -> Iterator[Part]:
    made = Part()
    yield made
    made.offsets.allowed.set()
    made.committer.close()
    made.join()


def test_commit_that_waited_is_refused_after_release(part: Part) -> None:
    """The next owner may have committed a higher offset of the partition meanwhile."""
    part.committer.commit({A: 5, B: 5})
    assert part.offsets.is_running.wait(10)
    second = part.committer.commit({A: 7}, allow_lower=True)
    third = part.committer.commit({B: 7})
    part.membership.assignment = {B: "g_c-0"}
    part.offsets.allowed.set()
    with pytest.raises(OwnershipLostError, match="partition t-0 is not owned by consumer g_c"):
        second.result(10)

    assert third.result(10) == {B: 7}


def test_switch_that_waited_copies_what_is_owned_then(part: Part) -> None:
    part.committer.commit({A: 5, B: 6})
    assert part.offsets.is_running.wait(10)
    target = Memory()
    target.allowed.set()
    switched = part.committer.switch(lambda: target)
    part.membership.assignment = {B: "g_c-0"}
    part.offsets.allowed.set()

    assert switched.result(10) == target.committed == {B: 6}
    assert part.offsets.is_closed
