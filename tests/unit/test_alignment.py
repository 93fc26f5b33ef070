"""Tests of event-time alignment: the limit of partitions with and without records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest
from batches import Record, entry

from zkconsumer.broker.protocol import PartitionData
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.planning.alignment import Alignment, AlignmentLimit, EventTimes

P = [TopicPartition("t", number) for number in range(4)]


class Clock:
    """A clock that the test advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_limit_is_earliest_record_plus_lag() -> None:
    times = EventTimes(100, 10, Clock())
    assert times.find_limit({P[0]: 3, P[1]: 12, P[2]: 102}) == AlignmentLimit(103, P[0])
    assert times.find_limit({P[0]: 30, P[1]: 12, P[2]: 1005}) == AlignmentLimit(112, P[1])


def test_partition_without_time_holds_back_until_idle() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    assert times.find_limit({P[0]: 3, P[1]: None}) is None
    clock.now += 10
    assert times.find_limit({P[0]: 3, P[1]: None}) is None, "idle only after more than 10 s"
    clock.now += 0.1
    assert times.find_limit({P[0]: 3, P[1]: None}) == AlignmentLimit(103, P[0])
    assert times.idle == {P[1]}


def test_exhausted_partition_holds_at_last_time() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    assert times.find_limit({P[0]: 500, P[1]: 50}) == AlignmentLimit(150, P[1])
    assert times.find_limit({P[0]: 500, P[1]: None}) == AlignmentLimit(150, P[1])
    clock.now += 11
    assert times.find_limit({P[0]: 500, P[1]: None}) == AlignmentLimit(600, P[0])


def test_idle_partition_becomes_active_with_new_record() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    times.find_limit({P[0]: 500, P[1]: None})
    clock.now += 11
    assert times.find_limit({P[0]: 500, P[1]: None}) == AlignmentLimit(600, P[0])
    assert times.find_limit({P[0]: 700, P[1]: 400}) == AlignmentLimit(500, P[1])
    assert times.idle == set()
    assert times.find_limit({P[0]: 700, P[1]: None}) == AlignmentLimit(500, P[1]), "the idle timeout starts again"


def test_time_of_released_partition_is_forgotten() -> None:
    times = EventTimes(100, 10, Clock())
    times.find_limit({P[0]: 500, P[1]: 50})
    assert times.find_limit({P[0]: 500}) == AlignmentLimit(600, P[0])
    assert times.find_limit({P[0]: 500, P[1]: None}) is None


def test_no_limit_if_all_are_idle() -> None:
    times = EventTimes(100, 10, Clock())
    assert times.find_limit({P[0]: None, P[1]: None}, closed=True) is None
    assert times.find_limit({}) is None


def test_bounded_query_ignores_empty_partitions() -> None:
    assert EventTimes(100, 10, Clock()).find_limit({P[0]: 3, P[1]: None}, closed=True) == AlignmentLimit(103, P[0])


def test_partition_idle_before_restart_holds_back_nothing() -> None:
    times = EventTimes(100, 10.0, lambda: 0.0, [P[1]])
    assert times.find_limit({P[0]: 3, P[1]: None}) == AlignmentLimit(103, P[0])
    assert times.idle == {P[1]}
    assert times.find_limit({P[0]: 3, P[1]: 1}) == AlignmentLimit(101, P[1])
    assert times.find_limit({P[0]: 3, P[1]: None}) == AlignmentLimit(101, P[1]), "idle only after more than 10 s"


# ---- the bounds of a batch -----------------------------------------------------------------------------


class MemoryLogs:
    """Logs whose records have the given times; a time of -1 is that of a record without a timestamp.

    Attributes:
        corrupt: partitions whose record batches cannot be decoded.
        fetches: the positions of each fetch.
        look_ups: partitions and time of each lookup of offsets.
    """

    def __init__(self, times: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.times = {partition: list(of_partition) for partition, of_partition in times.items()}
        self.corrupt: set[TopicPartition] = set()
        self.fetches: list[dict[TopicPartition, int]] = []
        self.look_ups: list[tuple[list[TopicPartition], int]] = []

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        self.fetches.append(dict(positions))
        return {partition: self._data(partition, position) for partition, position in positions.items()}

    def _data(self, partition: TopicPartition, position: int) -> PartitionData:
        end = len(self.times[partition])
        records = [
            entry(0 if time < 0 else 2, [Record(offset, time, value=b"x")])
            for offset, time in enumerate(self.times[partition])
            if offset >= position
        ]
        data = b"".join(records)
        return PartitionData(partition, 0, end, (), data[:-1] + b"?" if partition in self.corrupt else data)

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if wanted:
            self.look_ups.append((wanted, timestamp))
        return {p: next((n for n, time in enumerate(self.times[p]) if time >= timestamp), -1) for p in wanted}


def alignment(logs: MemoryLogs, event_time: Any = None, lag: int = 100) -> Alignment:
    return Alignment(EventTimes(lag, 10, Clock()), cast("Any", logs), event_time)


def bounds(one: Alignment, logs: MemoryLogs, positions: Sequence[int], *, closed: bool = False) -> list[int]:
    """Return the bounds of the partitions that have records in the logs."""
    ends = {partition: len(times) for partition, times in logs.times.items()}
    return list(one.limit_ends(dict(zip(ends, positions, strict=True)), ends, closed=closed).values())


def test_records_after_limit_are_held_back() -> None:
    logs = MemoryLogs({P[0]: [0, 50, 100, 101, 300], P[1]: [10, 20], P[2]: [150, 160]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0, 0]) == [3, 2, 0]
    assert logs.look_ups == [([P[0], P[1]], 101)]
    assert one.state() == {
        "eventTimeAlignment": "on",
        "eventTimeHeldBackBy": str(P[0]),
        "idlePartitions": [],
    }
    assert bounds(one, logs, [3, 2, 0]) == [4, 2, 0], "partition 1 still holds back the others, with time 10"
    logs.times[P[1]].append(400)
    assert bounds(one, logs, [3, 2, 0]) == [4, 2, 2]


def test_offsets_after_same_limit_are_looked_up_once() -> None:
    logs = MemoryLogs({P[0]: [0, 50, 300], P[1]: [10, 20]})
    one = alignment(logs)
    for _ in range(2):
        assert bounds(one, logs, [0, 0]) == [2, 2]
    assert logs.look_ups == [([P[0], P[1]], 101), ([P[1]], 101)], "there may be a record after the limit now"


def test_log_that_is_not_ordered_by_time_is_scanned() -> None:
    logs = MemoryLogs({P[0]: [500, 0, 50, 600, 60], P[1]: [10, 20]})
    one = alignment(logs)
    assert bounds(one, logs, [1, 0]) == [3, 2]


def test_nothing_is_held_back_without_times(caplog: pytest.LogCaptureFixture) -> None:
    logs = MemoryLogs({P[0]: [-1, -1], P[1]: [1000, 20]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [2, 2]
    assert "alignment_disabled" in caplog.text
    assert one.state()["eventTimeAlignment"] == "off"
    logs.fetches.clear()
    assert bounds(one, logs, [0, 0]) == [2, 2]
    assert logs.fetches == []


def test_partition_without_known_time_stops_batch() -> None:
    logs = MemoryLogs({P[0]: [0, 50], P[1]: []})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [0, 0]
    assert bounds(one, logs, [0, 0], closed=True) == [2, 0]
    assert one.idle == {P[1]}


def test_times_of_decoder_replace_timestamps(caplog: pytest.LogCaptureFixture) -> None:
    logs = MemoryLogs({P[0]: [7, 7, 7, 7], P[1]: [7, 7]})
    times: dict[TopicPartition, list[int | None]] = {P[0]: [0, 100, 101, 0], P[1]: [None, 10]}

    def event_time(record: MessageAndMetadata) -> int:
        time = times[TopicPartition(record.topic, record.partition)][record.offset]
        if time is None:
            raise ValueError("no time")
        return time

    one = alignment(logs, event_time)
    assert bounds(one, logs, [0, 0]) == [2, 2]
    assert logs.look_ups == []
    assert bounds(one, logs, [0, 0]) == [2, 2]
    assert caplog.text.count("event_time_failed") == 1


def test_heads_are_sampled_once_per_position() -> None:
    logs = MemoryLogs({P[0]: [0, 50], P[1]: [10, 20]})
    one = alignment(logs)
    for _ in range(2):
        bounds(one, logs, [0, 0])
    bounds(one, logs, [1, 0])
    heads = [positions for positions in logs.fetches if positions]
    assert heads[:2] == [{P[0]: 0, P[1]: 0}, {P[0]: 1}]


def test_corrupt_record_is_not_held_back() -> None:
    """The task that reads it reports it."""
    logs = MemoryLogs({P[0]: [0, 50], P[1]: [500, 20], P[2]: [50, 500]})
    logs.corrupt = {P[1], P[2]}
    one = alignment(logs)
    assert bounds(one, logs, [0, 0, 0]) == [2, 2, 1]
    assert logs.fetches == [{P[0]: 0, P[1]: 0, P[2]: 0}], "no log is scanned"


@pytest.mark.parametrize(
    ("times", "first", "then", "has_decoder"),
    [([0, 1000], 0, 1, False), ([0, 1000], 0, 1, True), ([1000, 0], 1, 0, True)],
    ids=["timestamps", "decoder", "decoder and re-created topics"],
)
def test_batch_has_records_after_partial_sampling(times: list[int], first: int, then: int, has_decoder: bool) -> None:
    """Two of the partitions are not among the 64 sampled ones, so their known times are those of earlier records."""
    logs = MemoryLogs({TopicPartition("t", number): times for number in range(66)})
    one = alignment(logs, (lambda record: record.timestamp) if has_decoder else None)
    assert bounds(one, logs, [first] * 66) == [first + 1] * 66
    assert bounds(one, logs, [then] * 66) == [2] * 66


def test_record_without_time_is_read_before_1970() -> None:
    logs = MemoryLogs({P[0]: [0, 1, 2], P[1]: [0]})
    times = {(0, 0): None, (0, 1): -300, (0, 2): -150, (1, 0): -300}
    one = alignment(logs, lambda record: times[record.partition, record.offset])
    assert bounds(one, logs, [0, 0]) == [2, 1]
