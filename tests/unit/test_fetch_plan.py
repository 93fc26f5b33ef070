"""Tests of ConsumerFetcherThread.build_fetch_request: which partitions a request contains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest
from helpers.configurations import fetch_settings

from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics

BUDGET = 1_000


class Fetcher:
    """A fetcher that is not started, with the partitions 0 to 3; partition 3 is in a stream of its own."""

    def __init__(self) -> None:
        budget, settings = ByteBudget(BUDGET), fetch_settings()
        requests = FetchRequests(Endpoint("127.0.0.1", 9), settings, budget, Metrics())
        self.thread = ConsumerFetcherThread("t", requests, settings, budget, lambda _: None, lambda *_: None)
        self.streams = [StreamQueue(budget), StreamQueue(budget)]
        self.infos = [
            PartitionTopicInfo(TopicPartition("t", number), PartitionQueue(self.streams[number == 3], 2), 0)
            for number in range(4)
        ]
        self.thread.add_partitions(self.infos)

    def put(self, *counts: int, size: int = 1) -> Fetcher:
        """Add chunks to the partitions' queues."""
        for info, count in zip(self.infos, counts, strict=True):
            for _ in range(count):
                info.queue.put(Chunk(info.partition, 0, 1, b"x" * size))
        return self

    @property
    def requested(self) -> list[int]:
        return [info.partition.partition for info in self.thread.build_fetch_request()]

    @property
    def allows_request(self) -> bool:
        """Whether a partition with room is in a stream without full queues, or has no items."""
        full = {info.queue.stream for info in self.infos if not info.queue.has_room}
        return any(
            info.queue.has_room and (info.queue.stream not in full or info.queue.is_empty) for info in self.infos
        )

    @property
    def is_woken(self) -> bool:
        """Whether the thread was woken since this property was read last."""
        return self.thread._wakeup.wait(0)


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    made = Fetcher()
    with closing(made.thread):
        yield made


@pytest.mark.parametrize(
    ("counts", "requested"),
    [
        ((0, 0, 0, 0), [0, 1, 2, 3]),
        ((1, 1, 1, 1), [0, 1, 2, 3]),
        ((2, 2, 2, 2), []),
        ((0, 2, 2, 2), [0]),
        ((0, 1, 2, 2), [0, 1]),
    ],
    ids=["empty", "with room", "full", "one empty", "one empty and one with room"],
)
def test_partitions_with_room_are_requested(counts: tuple[int, ...], requested: list[int], fetcher: Fetcher) -> None:
    assert fetcher.put(*counts).requested == requested


@pytest.mark.parametrize("counts", [(1, 2, 2, 2), (1, 1, 2, 2)])
def test_request_waits_while_stream_has_full_queue_and_no_empty_one(counts: tuple[int, ...], fetcher: Fetcher) -> None:
    """Fewer requests with more partitions take less time, and the stream has enough items until then."""
    assert fetcher.put(*counts).requested == []


def test_request_is_sent_when_stream_took_from_each_full_queue(fetcher: Fetcher) -> None:
    fetcher.put(2, 2, 2, 2)
    requested = []
    for _ in range(3):
        fetcher.streams[0].take(0)
        requested.append(fetcher.requested)

    assert requested == [[], [], [0, 1, 2]]


def test_stream_that_is_not_read_delays_no_other_stream(fetcher: Fetcher) -> None:
    assert fetcher.put(2, 2, 2, 1).requested == [3]
    fetcher.streams[0].take(0)
    assert fetcher.requested == [0, 3]


def test_spent_budget_delays_no_stream_without_records(fetcher: Fetcher) -> None:
    assert fetcher.put(1, 0, 0, 0, size=BUDGET).requested == [3]


@pytest.mark.parametrize("takes", list(itertools.product((0, 1), repeat=5)))
def test_item_taken_wakes_thread_if_it_allows_request(takes: tuple[int, ...]) -> None:
    for counts in itertools.product((0, 1, 2), repeat=4):
        fetcher = Fetcher().put(*counts)
        with closing(fetcher.thread):
            assert fetcher.is_woken  # because partitions were added
            is_waiting = not fetcher.requested
            assert is_waiting != fetcher.allows_request
            for stream in takes:
                if fetcher.streams[stream].take(0) is not None and is_waiting:
                    is_waiting = not fetcher.allows_request
                    assert fetcher.is_woken != is_waiting, counts


def test_item_taken_before_queues_were_checked_wakes_thread(fetcher: Fetcher) -> None:
    fetcher.put(2, 2, 2, 2)
    assert fetcher.is_woken  # because partitions were added
    fetcher.streams[0].take(0)
    assert fetcher.is_woken


def test_removed_partition_wakes_thread(fetcher: Fetcher) -> None:
    assert fetcher.put(2, 1, 1, 2).requested == []
    assert fetcher.is_woken  # because partitions were added
    fetcher.thread.remove_partitions([fetcher.infos[0].partition])
    assert fetcher.is_woken
    assert fetcher.requested == [1, 2]
    fetcher.thread.remove_infos([fetcher.infos[3]])
    assert fetcher.is_woken
