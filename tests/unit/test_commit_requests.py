"""Tests of commits that are sent together: which ones, their results, and their errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import cast

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


def request(
    offsets: Mapping[TopicPartition, int],
    allow_lower: bool = False,
    on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
) -> CommitRequest:
    return CommitRequest(offsets, Future(), allow_lower, on_committed)


def commit_all(requests: CommitRequests, waiting: Sequence[CommitRequest]) -> list[dict[TopicPartition, int] | None]:
    """Add the requests, commit them in order, and return their results; None for each that is rejected."""
    for one in waiting:
        requests.add(one)
    for one in waiting:
        requests.commit_until(one)
    return [None if isinstance(one.result.exception(0), ZkConsumerError) else one.result.result(0) for one in waiting]


def test_waiting_requests_are_committed_together() -> None:
    storage, seen = Storage(), list[dict[TopicPartition, int]]()
    waiting = [request({p: 10 + p.partition}, on_committed=seen.append) for p in PARTITIONS]
    assert commit_all(CommitRequests(storage.commit), waiting) == [dict(one.offsets) for one in waiting]
    assert len(storage.calls) == 1
    assert seen == [dict(one.offsets) for one in waiting]


def test_increasing_offsets_of_same_partitions_are_committed_together() -> None:
    """Each thread that calls ``commit_offsets`` commits all partitions of the consumer."""
    storage = Storage()
    waiting = [request({A: 10 + number, B: 20}) for number in range(5)]
    assert commit_all(CommitRequests(storage.commit), waiting) == [{A: 14, B: 20}] * 5
    assert storage.calls == [{A: 14, B: 20}]


def test_lower_offset_is_committed_separately() -> None:
    storage = Storage()
    requests = CommitRequests(storage.commit)
    first, second = request({A: 5, B: 1}), request({A: 3, C: 1})
    requests.add(first)
    requests.add(second)
    requests.commit_until(second)
    assert second.result.result(0) == {A: 5, C: 1}
    assert first.result.result(0) == {A: 5, B: 1}
    assert storage.calls == [{A: 5, B: 1}, {A: 3, C: 1}]


def test_requests_around_another_operation_are_committed_separately() -> None:
    storage = Storage()
    requests = CommitRequests(storage.commit)
    first, second, third = request({A: 1}), request({A: 2}), request({A: 3})
    requests.add(first)
    requests.separate()
    requests.add(second)
    requests.add(third)

    requests.commit_until(first)
    assert storage.calls == [{A: 1}], "the other operation is executed now"
    requests.commit_until(second)
    assert storage.calls == [{A: 1}, {A: 3}]
    assert third.result.done()


def test_completed_request_does_not_commit_later_ones() -> None:
    storage = Storage()
    requests = CommitRequests(storage.commit)
    first, merged, lower = request({A: 5}), request({A: 6}), request({A: 3})
    for one in (first, merged, lower):
        requests.add(one)
    requests.commit_until(first)
    requests.commit_until(merged)
    assert (merged.result.done(), lower.result.done()) == (True, False)
    assert storage.calls == [{A: 6}]


def test_rejected_partition_fails_only_its_request() -> None:
    storage = Storage()
    storage.errors[B] = OwnershipLostError("partition t-1 is not owned")
    waiting = [request({p: 1}) for p in (A, B, C)]
    assert commit_all(CommitRequests(storage.commit), waiting) == [{A: 1}, None, {C: 1}]
    with pytest.raises(OwnershipLostError, match="t-1"):
        waiting[1].result.result(0)


def test_silent_coordinator_is_asked_once() -> None:
    storage = Storage()
    storage.errors = dict.fromkeys(PARTITIONS, BrokerUnavailableError("no response within 10 s"))
    waiting = [request({p: 1}) for p in PARTITIONS]
    assert commit_all(CommitRequests(storage.commit), waiting) == [None] * len(PARTITIONS)
    assert {type(one.result.exception(0)) for one in waiting} == {BrokerUnavailableError}
    assert len(storage.calls) == 1


def test_unexpected_error_completes_all_merged_requests() -> None:
    """A request without a result would block the application until its timeout."""
    storage = Storage()
    requests = CommitRequests(storage.commit)
    waiting = [request({A: 1}), request({A: 2}), request({A: cast("int", "3")}), request({B: 4}, True)]
    for one in waiting:
        requests.add(one)
    requests.commit_until(waiting[0])
    assert [type(one.result.exception(0)) for one in waiting[:2]] == [TypeError, TypeError]
    requests.commit_until(waiting[3])
    assert isinstance(waiting[2].result.exception(0), TypeError)
    assert waiting[3].result.result(0) == storage.offsets == {B: 4}


def test_incomplete_result_fails_only_its_request() -> None:
    def fail(_committed: object) -> None:
        raise ZkConsumerError("the listener failed")

    waiting = [request({A: 1}), request({B: 1}), request({C: 1}, on_committed=fail)]
    requests = CommitRequests(lambda offsets, *, allow_lower: {p: offset for p, offset in offsets.items() if p != A})
    for one in waiting:
        requests.add(one)
    requests.commit_until(waiting[0])
    assert [type(one.result.exception(0)) for one in waiting] == [KeyError, type(None), ZkConsumerError]


@pytest.mark.parametrize("seed", range(50))
def test_result_equals_that_of_separate_commits(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [
        ({p: rng.randrange(20) for p in rng.sample(PARTITIONS, rng.randint(1, 3))}, rng.random() < 0.3)
        for _ in range(30)
    ]
    alone, together = Storage(), Storage()
    alone.errors = together.errors = {rng.choice(PARTITIONS): ZkConsumerError("the offset is rejected")}

    expected = [commit_all(CommitRequests(alone.commit), [request(*arguments)])[0] for arguments in drawn]
    found = commit_all(CommitRequests(together.commit), [request(*arguments) for arguments in drawn])
    assert together.offsets == alone.offsets
    assert [result is None for result in found] == [result is None for result in expected]
    for result, lowest in zip(found, expected, strict=True):
        assert result is None or lowest is None or all(result[p] >= lowest[p] for p in lowest), "a later offset counts"
