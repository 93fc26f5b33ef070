"""Tests of event-time alignment with many partitions: how many records are sampled, and what a batch may read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pytest
from helpers.batches import Record, entry

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.protocol import PartitionData
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.planning.alignment import Alignment, EventTime, EventTimes

LAG = 100


class Logs:
    """Logs in memory: the record times of each partition.

    Attributes:
        corrupt: partitions whose records cannot be decoded.
        fetches: number of partitions and maximum bytes per partition of each fetch.
    """

    def __init__(self, times: Sequence[Sequence[int]]) -> None:
        self.times = {TopicPartition("t", number): list(of_one) for number, of_one in enumerate(times)}
        self.corrupt: set[TopicPartition] = set()
        self.fetches: list[tuple[int, int]] = []

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {partition: len(times) for partition, times in self.times.items()}

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        self.fetches.append((len(positions), max_bytes))
        return {partition: self._data(partition, position) for partition, position in positions.items()}

    def _data(self, partition: TopicPartition, position: int) -> PartitionData:
        times = self.times[partition]
        records = [
            entry(2, [Record(at, times[at], value=b"x")]) for at in range(position, min(len(times), position + 5))
        ]
        data = b"".join(records)
        if partition in self.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 255]) if len(records) == 1 else data.replace(b"x", b"y", 1)
        return PartitionData(partition, 0, len(times), (), data)

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return {p: next((n for n, time in enumerate(self.times[p]) if time >= timestamp), -1) for p in partitions}

    def record_time(self, record: MessageAndMetadata) -> int:
        return self.times[TopicPartition(record.topic, record.partition)][record.offset]

    def head(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the earliest time of a next record."""
        return min(self.times[p][at] for p, at in positions.items() if at < len(self.times[p]))


def alignment(logs: Logs, event_time: EventTime | None = None) -> Alignment:
    return Alignment(EventTimes(LAG, 10, lambda: 0.0), cast(LogOffsets, logs), event_time)


def read_all(logs: Logs, event_time: EventTime | None, limit: random.Random | None = None) -> list[list[int]]:
    """Read the logs in batches. Returns the numbers of partitions in the fetches of each batch.

    Args:
        limit: draws how many records a batch reads of each partition.
    """
    one, positions, ends, fetches = alignment(logs, event_time), dict.fromkeys(logs.times, 0), logs.ends, []
    while positions != ends:
        logs.fetches.clear()
        bounds = one.limit_ends(positions, ends, closed=True)
        fetches.append([count for count, _ in logs.fetches])
        read = {p: max(0, min(bounds[p], ends[p]) - at) for p, at in positions.items()}
        assert any(read.values()), "an empty batch would end the query"
        head = logs.head(positions)
        for partition, at in positions.items():
            times = logs.times[partition][at : at + read[partition]]
            assert not times or max(times) <= head + LAG, "a batch reads no further ahead than the lag"
        if limit is not None:
            read = {p: limit.randint(1, count) if count else 0 for p, count in read.items()}
        positions = {p: at + read[p] for p, at in positions.items()}
    return fetches


@pytest.mark.parametrize("has_decoder", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_batches_read_no_further_than_the_lag(seed: int, has_decoder: bool) -> None:
    draw = random.Random(seed)
    gap = draw.choice([5, 50, 500])
    logs = Logs([sorted(draw.randrange(gap * 10) for _ in range(draw.randrange(12))) for _ in range(100)])
    read_all(logs, logs.record_time if has_decoder else None, draw if seed % 2 else None)


def test_batch_samples_limited_number_of_partitions() -> None:
    logs = Logs([[number % 100 + 30 * n for n in range(40)] for number in range(200)])
    first, *others = read_all(logs, None)
    assert sum(first) == 200, "at the start no time is known"
    assert max(first) <= 64
    assert max(map(sum, others)) <= 64
    assert len(others) == 12, "each batch covers the time of the lag, as if all partitions were sampled"


def test_gap_in_all_partitions_is_crossed_at_once() -> None:
    logs = Logs([[number, 1_000_000 + number] for number in range(200)])
    assert len(read_all(logs, None)) < 8


def test_scan_of_many_partitions_limits_bytes() -> None:
    logs = Logs([[number % 50, number % 50 + 20] for number in range(500)])
    assert (
        alignment(logs, logs.record_time).limit_ends(dict.fromkeys(logs.times, 0), logs.ends, closed=True) == logs.ends
    )
    count, size = max(logs.fetches)
    assert count == 500
    assert count * size <= 64 << 20


def test_corrupt_partition_does_not_stop_the_query() -> None:
    """Its task reports the corrupt record."""
    logs = Logs([[10, 1_000_000], *([number] for number in range(5))])
    one, first = alignment(logs), TopicPartition("t", 0)
    positions = logs.ends
    assert one.limit_ends(dict.fromkeys(logs.times, 0), logs.ends, closed=True)[first] == 1
    logs.corrupt.add(first)
    positions[first] = 1
    assert one.limit_ends(positions, logs.ends, closed=True)[first] == 2
