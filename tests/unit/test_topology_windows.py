"""Windows: boundaries and grace. The numbers are those of upstream's tests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.dsl import UntilTimeLimit
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)


class Aggregate(Processor):
    """Appends values per key and window, as KStreamWindowAggregate does, and forwards each new aggregate."""

    def __init__(self, windows: TimeWindows) -> None:
        self._windows = windows

    def init(self, context: ProcessorContext) -> None:
        self._context, self._store = context, context.get_state_store("s")

    def process(self, record: Record) -> None:
        for start, end in self._windows.windows_for(record.timestamp):
            if self._windows.is_closed(end, self._context.current_stream_time_ms):
                self._context.count("late")
                continue
            aggregate = (self._store.fetch(record.key, start) or "0") + f"+{record.value}"
            self._store.put(record.key, aggregate, start)
            self._context.forward(Record(f"{record.key}@{start}/{end}", aggregate, record.timestamp))


class Sessions(Processor):
    """Counts per key and session, as KStreamSessionWindowAggregate does."""

    def __init__(self, windows: SessionWindows) -> None:
        self._windows = windows

    def init(self, context: ProcessorContext) -> None:
        self._context, self._store = context, context.get_state_store("s")

    def process(self, record: Record) -> None:
        gap_ms, time = self._windows.gap_ms, record.timestamp
        merged = list(self._store.find_sessions(record.key, time - gap_ms, time + gap_ms))
        start = min([time, *(session.start for session, _ in merged)])
        end = max([time, *(session.end for session, _ in merged)])
        if self._windows.is_closed(end, self._context.current_stream_time_ms):
            self._context.count("late")
            return
        for session, _ in merged:
            self._store.remove(session)
        self._store.put(Windowed(record.key, start, end), 1 + sum(count for _, count in merged))


def aggregating(windows: TimeWindows) -> Topology:
    store = stores.window(
        "s", serdes.STRING, serdes.STRING, retention_ms=windows.retention_ms, window_size_ms=windows.size_ms
    )
    topology = Topology().add_source("src", "in").add_processor("p", lambda: Aggregate(windows), "src", stores=[store])
    return topology.add_sink("out", "out", "p")


def sessions(windows: SessionWindows) -> Topology:
    store = stores.session("s", serdes.STRING, serdes.LONG, retention_ms=3 * windows.gap_ms)
    return Topology().add_source("src", "in").add_processor("p", lambda: Sessions(windows), "src", stores=[store])


@pytest.mark.parametrize(
    ("windows", "timestamp", "expected"),
    [
        (TimeWindows(size_ms=12, advance_ms=5), 21, [(10, 22), (15, 27), (20, 32)]),
        (TimeWindows(size_ms=6, advance_ms=5), 7, [(5, 11)]),
        (TimeWindows(size_ms=12), 21, [(12, 24)]),
        (TimeWindows(size_ms=12, advance_ms=5), 0, [(0, 12)]),
        (TimeWindows(size_ms=12), 12, [(12, 24)]),
        (TimeWindows(size_ms=12), 11, [(0, 12)]),
    ],
)
def test_windows_of_timestamp(windows: TimeWindows, timestamp: int, expected: list[tuple[int, int]]) -> None:
    assert windows.windows_for(timestamp) == expected


def test_windows_contain_timestamp_for_all_sizes() -> None:
    for size in range(1, 13):
        for advance in range(1, size + 1):
            for time in range(40):
                expected = [(start, start + size) for start in range(0, 60, advance) if start <= time < start + size]
                assert TimeWindows(size_ms=size, advance_ms=advance).windows_for(time) == expected


@pytest.mark.parametrize(
    ("windows", "arguments", "message"),
    [
        (TimeWindows, {"size_ms": 0}, "size_ms must be a positive integer or timedelta, got 0"),
        (TimeWindows, {"size_ms": -1}, "size_ms must be a positive integer or timedelta, got -1"),
        (
            TimeWindows,
            {"size_ms": 10, "advance_ms": 0},
            "advance_ms must be a positive integer, timedelta or None, got 0",
        ),
        (
            TimeWindows,
            {"size_ms": 10, "advance_ms": -1},
            "advance_ms must be a positive integer, timedelta or None, got -1",
        ),
        (TimeWindows, {"size_ms": 10, "advance_ms": 11}, "advance_ms must be at most size_ms (10), got 11"),
        (
            TimeWindows,
            {"size_ms": 3, "grace_ms": -1},
            "grace_ms must be a non-negative integer or timedelta, got -1",
        ),
        (SessionWindows, {"gap_ms": 0}, "gap_ms must be a positive integer or timedelta, got 0"),
        (
            SessionWindows,
            {"gap_ms": 3, "grace_ms": -1},
            "grace_ms must be a non-negative integer or timedelta, got -1",
        ),
    ],
)
def test_window_arguments_are_checked(windows: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        windows(**arguments)


def test_records_of_closed_hopping_windows_are_skipped() -> None:
    topology = aggregating(TimeWindows(size_ms=10, advance_ms=5, grace_ms=90))
    with TopologyTestDriver(topology, TEXT) as driver:
        topic = driver.create_input_topic("in")
        for time in (100, 0, 1, 2, 3, 4, 5, 6, 105, 106):
            topic.pipe_input("k", str(time), time)

        assert driver.metrics["p/late"] == 7
        assert driver.create_output_topic("out").read_key_values() == [
            ("k@95/105", "0+100"),
            ("k@100/110", "0+100"),
            ("k@5/15", "0+5"),
            ("k@5/15", "0+5+6"),
            ("k@100/110", "0+100+105"),
            ("k@105/115", "0+105"),
            ("k@100/110", "0+100+105+106"),
            ("k@105/115", "0+105+106"),
        ]


def test_records_of_closed_tumbling_windows_are_skipped() -> None:
    topology = aggregating(TimeWindows(size_ms=10, grace_ms=90))
    with TopologyTestDriver(topology, TEXT) as driver:
        topic = driver.create_input_topic("in")
        for time in (200, 100, 101, 102, 103, 104, 105, 6):
            topic.pipe_input("k", str(time), time)

        assert driver.metrics["p/late"] == 7
        assert driver.create_output_topic("out").read_key_values() == [("k@200/210", "0+200")]


def test_window_is_closed_exactly_at_end_of_grace() -> None:
    windows = TimeWindows(size_ms=10, grace_ms=5)

    assert not windows.is_closed(10, 14)
    assert windows.is_closed(10, 15)


@pytest.mark.parametrize(
    ("grace_ms", "steps"), [(0, [(0, 0), (11, 1)]), (1, [(0, 0), (11, 0), (12, 1)])], ids=["zero", "nonzero"]
)
def test_late_record_of_session_is_skipped_after_grace(grace_ms: int, steps: list[tuple[int, int]]) -> None:
    with TopologyTestDriver(sessions(SessionWindows(gap_ms=10, grace_ms=grace_ms)), TEXT) as driver:
        topic = driver.create_input_topic("in")
        for number, (stream_time, late) in enumerate(steps):
            topic.pipe_input("dummy", "dummy", stream_time)
            topic.pipe_input(f"user{number}", "1", 0)

            assert driver.metrics.get("p/late", 0) == late


def test_sessions_within_gap_are_merged() -> None:
    with TopologyTestDriver(sessions(SessionWindows(gap_ms=300, grace_ms=700)), TEXT) as driver:
        topic = driver.create_input_topic("in")
        store = driver.get_state_store("s")
        topic.pipe_input("john", "first", 0)
        topic.pipe_input("john", "second", 301)
        assert list(store.fetch("john")) == [(Windowed("john", 0, 0), 1), (Windowed("john", 301, 301), 1)]

        topic.pipe_input("john", "between", 150)
        assert list(store.fetch("john")) == [(Windowed("john", 0, 301), 3)]

        topic.pipe_input("john", "equal", 301)
        topic.pipe_input("john", "apart", 602)
        assert list(store.fetch("john")) == [(Windowed("john", 0, 301), 4), (Windowed("john", 602, 602), 1)]


@pytest.mark.parametrize("windows", [TimeWindows, SessionWindows, SlidingWindows, JoinWindows, UntilTimeLimit])
def test_durations_are_not_matched_by_position(windows: Any) -> None:
    assert windows.__match_args__ == ()
