"""Tests of event-time alignment: the limit of partitions with and without records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest
from helpers.batches import Record, entry

from zkconsumer.broker.protocol import PartitionData
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.executor.decoders import BatchDecoder, RecordDecoder
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning import alignment as alignment_module
from zkconsumer.spark.planning.alignment import Alignment, AlignmentLimit, EventTimes
from zkconsumer.spark.planning.sampling import SAMPLE_BYTES

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


def test_idle_timeout_of_released_partition_starts_again() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    times.find_limit({P[0]: 500, P[1]: None})
    times.find_limit({P[0]: 500})
    clock.now += 11
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
        fetch_sizes: maximum bytes of each fetch.
        look_ups: partitions and time of each lookup of offsets.
    """

    def __init__(self, times: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.times = {partition: list(of_partition) for partition, of_partition in times.items()}
        self.corrupt: set[TopicPartition] = set()
        self.fetches: list[dict[TopicPartition, int]] = []
        self.fetch_sizes: list[int] = []
        self.look_ups: list[tuple[list[TopicPartition], int]] = []

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        self.fetches.append(dict(positions))
        self.fetch_sizes.append(max_bytes)
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
    assert [len(positions) for positions in logs.fetches[:2]] == [64, 2]
    assert bounds(one, logs, [then] * 66) == [2] * 66


def test_record_without_time_is_read_before_1970() -> None:
    logs = MemoryLogs({P[0]: [0, 1, 2], P[1]: [0]})
    times = {(0, 0): None, (0, 1): -300, (0, 2): -150, (1, 0): -300}
    one = alignment(logs, lambda record: times[record.partition, record.offset])
    assert bounds(one, logs, [0, 0]) == [2, 1]


def test_record_at_limit_is_read() -> None:
    logs = MemoryLogs({P[0]: [0], P[1]: [100]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [1, 1]
    assert one.state()["eventTimeHeldBackBy"] is None


def test_corrupt_record_has_earliest_known_time() -> None:
    logs = MemoryLogs({P[0]: [0], P[1]: [500], P[2]: [500]})
    logs.corrupt = {P[1]}
    assert bounds(alignment(logs), logs, [0, 0, 0]) == [1, 1, 0]


def test_first_offset_after_limit_is_looked_up_once() -> None:
    logs = MemoryLogs({P[0]: [0, 300], P[1]: [500]})
    logs.corrupt = {P[1]}
    one = alignment(logs)
    for _ in range(2):
        assert bounds(one, logs, [0, 0]) == [1, 1]
    assert logs.look_ups == [([P[0], P[1]], 101)]


def test_alignment_is_disabled_once(caplog: pytest.LogCaptureFixture) -> None:
    logs = MemoryLogs({P[0]: [-1], P[1]: [-1]})
    assert bounds(alignment(logs), logs, [0, 0]) == [1, 1]
    assert caplog.text.count("alignment_disabled") == 1


def test_slowest_partition_is_logged_if_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    logs = MemoryLogs({P[0]: [0, 500], P[1]: [10, 500], P[2]: [900]})
    one = alignment(logs)
    caplog.set_level("INFO", "zkconsumer")
    slowest = []
    for positions in ([0, 0, 0], [0, 0, 0], [1, 0, 0]):
        bounds(one, logs, positions)
        slowest.append(one.state()["eventTimeHeldBackBy"])
    assert slowest == [str(P[0]), str(P[0]), str(P[1])]
    messages = [record.getMessage() for record in caplog.records]
    held_back = [message for message in messages if "event='partitions_held_back'" in message]
    assert len(held_back) == 2
    assert f"slowest_partition='{P[0]}'" in held_back[0]
    assert f"slowest_partition='{P[1]}'" in held_back[1]


def test_scans_are_limited_by_partition_and_in_total() -> None:
    for count, size in ((1, 1 << 20), (100, (64 << 20) // 100), (2_000, SAMPLE_BYTES)):
        logs = MemoryLogs({TopicPartition("t", number): [0, 1000] for number in range(count)})
        assert bounds(alignment(logs, lambda record: record.timestamp), logs, [0] * count) == [1] * count
        assert logs.fetch_sizes[-1] == size


# ---- partitions that come and go, and more than can be sampled at once -----------------------------------------


def test_released_partition_is_sampled_and_looked_up_again() -> None:
    logs = MemoryLogs({P[0]: [0, 50, 300], P[1]: [10, 20, 300]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [2, 2]
    one.limit_ends({P[0]: 0}, {P[0]: 3}, closed=False)
    logs.times[P[1]] = [90, 300, 300]

    assert bounds(one, logs, [0, 0]) == [2, 1]

    assert [positions for positions in logs.fetches if positions] == [{P[0]: 0, P[1]: 0}, {P[1]: 0}]
    assert logs.look_ups == [([P[0], P[1]], 101), ([P[1]], 101)]


@pytest.mark.parametrize("has_decoder", [False, True])
def test_partition_read_up_to_limit_is_after_it(has_decoder: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of partitions that are not sampled are at 101 or later, so the second limit is 201."""
    monkeypatch.setattr(alignment_module, "_SAMPLED", 1)
    logs = MemoryLogs({P[0]: [0, 200, 201, 202], P[1]: [10, 210], P[2]: [20, 220]})
    one = alignment(logs, (lambda record: record.timestamp) if has_decoder else None)
    assert bounds(one, logs, [0, 0, 0]) == [1, 1, 1]
    assert bounds(one, logs, [1, 1, 1]) == [3, 1, 1]


def test_earliest_partition_is_sampled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "_SAMPLED", 1)
    logs = MemoryLogs({P[0]: [50, 60, 70], P[1]: [10, 20, 30]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [3, 3]
    assert bounds(one, logs, [1, 1]) == [3, 3]
    assert [positions for positions in logs.fetches if positions] == [{P[0]: 0}, {P[1]: 0}, {P[1]: 1}]


@pytest.mark.parametrize(("sampled", "fetched"), [(1, {P[2]: 0}), (2, {P[2]: 0, P[0]: 1})])
def test_new_partitions_are_sampled_instead_of_others(
    sampled: int, fetched: dict[TopicPartition, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_module, "_SAMPLED", sampled)
    logs = MemoryLogs({P[0]: [0, 10], P[1]: [0, 10]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [2, 2]
    logs.fetches.clear()
    logs.times[P[2]] = [5]
    assert bounds(one, logs, [1, 1, 0]) == [2, 2, 1]
    assert [positions for positions in logs.fetches if positions] == [fetched]


def test_later_partitions_are_not_sampled_for_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "_SAMPLED", 1)
    logs = MemoryLogs({P[0]: [0, 1000], P[1]: [0, 250, 251], P[2]: [300, 310]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0, 0]) == [1, 1, 0]
    logs.fetches.clear()

    assert bounds(one, logs, [1, 1, 1]) == [1, 3, 2]

    assert [positions for positions in logs.fetches if positions] == [{P[0]: 1}, {P[1]: 1}]


def test_partition_that_became_corrupt_is_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "_SAMPLED", 1)
    logs = MemoryLogs({P[0]: [0, 1000], P[1]: [0, 1000]})
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [1, 1]
    logs.corrupt = {P[1]}
    assert bounds(one, logs, [1, 1]) == [1, 2]


def test_partition_after_corrupt_record_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "_SAMPLED", 1)
    logs = MemoryLogs({P[0]: [0, 20, 30, 40], P[1]: [5, 50, 500, 501]})
    logs.corrupt = {P[1]}
    one = alignment(logs)
    assert bounds(one, logs, [0, 0]) == [4, 2]
    logs.corrupt = set()
    assert bounds(one, logs, [0, 1]) == [4, 2]
    assert bounds(one, logs, [1, 2]) == [4, 2]


# ---- options ---------------------------------------------------------------------------------------------------

REQUIRED = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "t"}


class Plain(RecordDecoder):
    schema = "value string"

    def decode(self, record: MessageAndMetadata) -> None:
        pass


class Timed(Plain):
    """Its event time is the option ``decoder.time``."""

    def open(self, options: Mapping[str, str]) -> None:
        self._time = int(options["time"])

    def event_time(self, record: MessageAndMetadata) -> int:
        return self._time + record.offset


class Batches(BatchDecoder):
    schema = "value string"

    def decode(self, batch: Any) -> Any:
        return batch


def from_options(logs: MemoryLogs, idle: Iterable[TopicPartition] = (), **options: str) -> Alignment | None:
    return Alignment.from_options(SourceOptions.parse({**REQUIRED, **options}), cast("Any", logs), idle)


def test_no_alignment_without_lag() -> None:
    assert from_options(MemoryLogs({})) is None


@pytest.mark.parametrize("decoder", [None, "Plain", "Batches"])
def test_decoder_without_event_time_uses_timestamps(decoder: str | None) -> None:
    logs = MemoryLogs({P[0]: [0, 2000, 2001], P[1]: []})
    options = {} if decoder is None else {"decoder": f"{__name__}:{decoder}"}
    one = from_options(logs, [P[1]], maxAlignmentLag="2s", idleTimeout="1m", **options)
    assert one is not None
    assert bounds(one, logs, [0, 0]) == [2, 0]
    assert logs.look_ups == [([P[0]], 2001)]
    assert one.idle == {P[1]}


def test_event_time_of_decoder_is_used() -> None:
    logs = MemoryLogs({P[0]: [0, 0], P[1]: [0]})
    options = {"decoder": f"{__name__}:Timed", "decoder.time": "7000"}
    one = from_options(logs, [], maxAlignmentLag="0s", **options)
    assert one is not None
    assert bounds(one, logs, [0, 0]) == [1, 1]
    assert logs.look_ups == []
