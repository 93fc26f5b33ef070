"""Health of a consumer whose partitions have unread records that are not fetched."""

from __future__ import annotations

import time

import pytest
from helpers.clocks import Clock

from zkconsumer.consumer.runtime import FetchProgress
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.health import Problem
from zkconsumer.message import TopicPartition


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


def info_of(number: int, fetch_offset: int, high_watermark: int) -> PartitionTopicInfo:
    queue = PartitionQueue(StreamQueue(ByteBudget(1 << 20)), 2)
    info = PartitionTopicInfo(TopicPartition("t", number), queue, fetch_offset)
    info.high_watermark = high_watermark
    return info


def find(progress: FetchProgress, *infos: PartitionTopicInfo) -> list[TopicPartition]:
    return [partition for partition, _ in progress.find_stalled(infos)]


def test_partition_that_is_not_fetched_is_stalled_after_a_minute(clock: Clock) -> None:
    progress = FetchProgress(0.1)
    stalled, read, unknown, moving = info_of(0, 3, 7), info_of(1, 7, 7), info_of(2, 0, -1), info_of(3, 1, 99)
    for second in range(61):
        moving.fetch_offset += second % 50 == 0
        found = progress.find_stalled([stalled, read, unknown, moving])
        assert [partition for partition, _ in found] == ([stalled.partition] if second == 60 else [])
        clock.now += 1
    [(_, problem)] = found
    assert problem.code == "fetch_stalled"
    assert problem.message.startswith("no records were fetched for 60 s, although 4 records after offset 3 are unread")
    stalled.fetch_offset = 4
    assert find(progress, stalled, read, unknown) == []


def test_interval_of_fetches_is_considered(clock: Clock) -> None:
    progress, info = FetchProgress(40), info_of(0, 3, 7)
    found = []
    for _ in range(3):
        found.append(find(progress, info))
        clock.now += 60
    assert found == [[], [], [info.partition]]


def test_queued_records_are_not_reported_as_stalled(clock: Clock) -> None:
    progress, info = FetchProgress(0.1), info_of(0, 3, 7)
    assert find(progress, info) == []
    clock.now += 100
    queue, info.queue = info.queue, PartitionQueue(StreamQueue(ByteBudget(1)), 0)  # it is always full
    assert find(progress, info) == []
    info.queue = queue
    clock.now += 59
    assert find(progress, info) == []


def test_known_problem_is_not_reported_again(clock: Clock) -> None:
    progress, info = FetchProgress(0.1), info_of(0, 3, 7)
    info.problem = Problem("fetch_failed", "planned", 0.0)
    find(progress, info)
    clock.now += 100
    assert find(progress, info) == []


def test_reassigned_partition_restarts_stall_timer(clock: Clock) -> None:
    progress, info = FetchProgress(0.1), info_of(0, 3, 7)
    find(progress, info)
    clock.now += 50
    assert find(progress) == []
    find(progress, info)
    clock.now += 50
    assert find(progress, info) == []
