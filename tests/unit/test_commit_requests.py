"""Tests of commits that are sent together: which ones, their results, and their errors."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from zkconsumer.errors import BrokerUnavailableError, OwnershipLostError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.commit_requests import CommitRequest, CommitRequests

PARTITIONS = [TopicPartition("t", number) for number in range(6)]
A, B, C, *_ = PARTITIONS


class Storage:
    """Replaces the storage: keeps the higher offset unless lower ones are allowed, and rejects some partitions."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.calls: list[dict[TopicPartition, int]] = []
        self.errors: dict[TopicPartition, ZkConsumerError] = {}

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool) -> dict[TopicPartition, int]:
        self.calls.append(dict(offsets))
        for partition in offsets:
            if partition in self.errors:
                raise self.errors[partition]
        for partition, offset in offsets.items():
            if allow_lower or offset >= self.offsets.get(partition, -1):
                self.offsets[partition] = offset
        return {partition: self.offsets[partition] for partition in offsets}


def test_waiting_requests_are_committed_together() -> None:
    storage, seen = Storage(), list[dict[TopicPartition, int]]()
    requests = CommitRequests(storage.commit)
    waiting = [CommitRequest({p: 10 + p.partition}, False, seen.append) for p in PARTITIONS]
    for request in waiting:
        requests.add(request)
    assert [requests.commit_until(request) for request in waiting] == [dict(request.offsets) for request in waiting]
    assert len(storage.calls) == 1
    assert seen == [dict(request.offsets) for request in waiting]


def test_increasing_offsets_of_same_partitions_are_committed_together() -> None:
    """Each thread that calls ``commit_offsets`` commits all partitions of the consumer."""
    storage = Storage()
    requests = CommitRequests(storage.commit)
    waiting = [CommitRequest({A: 10 + number, B: 20}, False, None) for number in range(5)]
    for request in waiting:
        requests.add(request)
    assert [requests.commit_until(request) for request in waiting] == [{A: 14, B: 20}] * 5
    assert storage.calls == [{A: 14, B: 20}]


def test_lower_offset_is_committed_separately() -> None:
    storage = Storage()
    requests = CommitRequests(storage.commit)
    first, second = CommitRequest({A: 5, B: 1}, False, None), CommitRequest({A: 3, C: 1}, False, None)
    requests.add(first)
    requests.add(second)
    assert requests.commit_until(second) == {A: 5, C: 1}
    assert requests.commit_until(first) == {A: 5, B: 1}
    assert storage.calls == [{A: 5, B: 1}, {A: 3, C: 1}]


def test_rejected_partition_fails_only_its_request() -> None:
    storage = Storage()
    storage.errors[B] = OwnershipLostError("partition t-1 is not owned")
    requests = CommitRequests(storage.commit)
    waiting = [CommitRequest({p: 1}, False, None) for p in (A, B, C)]
    for request in waiting:
        requests.add(request)
    assert requests.commit_until(waiting[0]) == {A: 1}
    with pytest.raises(OwnershipLostError, match="t-1"):
        requests.commit_until(waiting[1])
    assert requests.commit_until(waiting[2]) == {C: 1}


def test_silent_coordinator_is_asked_once() -> None:
    storage = Storage()
    storage.errors = dict.fromkeys(PARTITIONS, BrokerUnavailableError("no response within 10 s"))
    requests = CommitRequests(storage.commit)
    waiting = [CommitRequest({p: 1}, False, None) for p in PARTITIONS]
    for request in waiting:
        requests.add(request)
    for request in waiting:
        with pytest.raises(BrokerUnavailableError):
            requests.commit_until(request)
    assert len(storage.calls) == 1


@pytest.mark.parametrize("seed", range(50))
def test_result_equals_that_of_separate_commits(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [
        ({p: rng.randrange(20) for p in rng.sample(PARTITIONS, rng.randint(1, 3))}, rng.random() < 0.3)
        for _ in range(30)
    ]
    alone, together = Storage(), Storage()
    alone.errors = together.errors = {rng.choice(PARTITIONS): ZkConsumerError("the offset is rejected")}

    def outcome(request: CommitRequest, requests: CommitRequests) -> dict[TopicPartition, int] | None:
        try:
            return requests.commit_until(request)
        except ZkConsumerError:
            return None

    expected = []
    for offsets, allow_lower in drawn:
        requests, request = CommitRequests(alone.commit), CommitRequest(offsets, allow_lower, None)
        requests.add(request)
        expected.append(outcome(request, requests))
    requests = CommitRequests(together.commit)
    waiting = [CommitRequest(offsets, allow_lower, None) for offsets, allow_lower in drawn]
    for request in waiting:
        requests.add(request)
    found = [outcome(request, requests) for request in waiting]
    assert together.offsets == alone.offsets
    assert [result is None for result in found] == [result is None for result in expected]
    for result, lowest in zip(found, expected, strict=True):
        assert result is None or lowest is None or all(result[p] >= lowest[p] for p in lowest), "a later offset counts"
