"""Ticks of applications: their times increase, even if the clock goes back."""

from __future__ import annotations

import json
import random
import secrets
import time
from typing import Any

import pytest
from helpers.clocks import Clock

from zkconsumer.health import HealthState
from zkconsumer.spark.streams import ticks
from zkconsumer.spark.streams.progress import ProgressReports
from zkconsumer.spark.streams.ticks import TickReader

INTERVAL_MS = 1_000
START_MS = 1_700_000_000_000


class Query:
    """Reads ticks, and restarts with the offset of the last one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.monotonic = START_MS, Clock()
        monkeypatch.setattr(ticks, "_read_clock_ms", lambda: self.now_ms)
        monkeypatch.setattr(time, "monotonic", self.monotonic)
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self, *, available_now: bool = False) -> None:
        self.reader = TickReader({"keys": "[3, 5]", "intervalMs": str(INTERVAL_MS)})
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def advance(self, milliseconds: int, *, clock_ms: int | None = None) -> None:
        """Let time pass; ``clock_ms`` is the change of the wall clock if it is different."""
        self.monotonic.now += milliseconds / 1_000
        self.now_ms += milliseconds if clock_ms is None else clock_ms

    def plan(self) -> list[int]:
        """Return the time of the next tick, relative to the start; empty if there is no new tick."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        partitions: list[Any] = self.reader.partitions(self.offset, end)
        self.offset = end
        return [partition.time_ms - START_MS for partition in partitions]


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(monkeypatch)


def test_ticks_are_multiples_of_their_interval(query: Query) -> None:
    query.advance(300)
    assert [query.plan(), query.plan()] == [[0], []]
    query.advance(699)
    assert query.plan() == []
    query.advance(1)
    assert [query.plan(), query.plan()] == [[1_000], []]
    query.advance(5_500)
    assert [query.plan(), query.plan()] == [[6_000], []]


def test_tick_has_row_for_each_task(query: Query) -> None:
    start = query.offset
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    [partition] = query.reader.partitions(start, end)
    assert list(query.reader.read(partition)) == [(key, None, None, START_MS, None, None, None) for key in (3, 5)]
    assert query.reader.partitions(end, end) == []


@pytest.mark.parametrize("available_now", [False, True])
def test_each_start_has_one_tick(query: Query, available_now: bool) -> None:
    for number in range(5):
        query.restart(available_now=available_now)
        assert [query.plan(), query.plan()] == [[number], []]
    query.advance(INTERVAL_MS)
    query.restart(available_now=available_now)
    assert query.plan() == [INTERVAL_MS]


@pytest.mark.parametrize("behind_ms", [1, 600, 999])
def test_clock_slightly_behind_is_not_reported(query: Query, behind_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    assert query.plan() == [0]
    query.advance(0, clock_ms=-behind_ms)
    assert query.plan() == []
    query.restart()
    assert query.plan() == [1]
    query.advance(INTERVAL_MS + behind_ms)
    assert query.plan() == [INTERVAL_MS]
    assert "clock_went_back" not in caplog.text


def test_ticks_continue_while_clock_is_behind(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    assert query.plan() == [0]
    query.advance(0, clock_ms=-600_000)
    found = []
    for _ in range(601):
        found += query.plan()
        query.advance(INTERVAL_MS)
    assert found == [*range(1, 601)]
    assert query.plan() == [INTERVAL_MS]
    assert caplog.text.count("clock_went_back") == 1


@pytest.mark.parametrize("seed", [2994877903, None])
def test_time_of_ticks_increases_with_any_clock(query: Query, seed: int | None) -> None:
    seed = secrets.randbits(32) if seed is None else seed
    print(f"seed {seed}")
    rng = random.Random(seed)
    last, without_tick = -1, 0
    for _ in range(2_000):
        if rng.random() < 0.05:
            query.restart(available_now=rng.random() < 0.1)
            without_tick = INTERVAL_MS * 3
        found = query.plan()
        assert all(time > last for time in found)
        last = max([last, *found])
        without_tick = 0 if found or query.reader._is_available_now else without_tick
        assert without_tick < INTERVAL_MS * 3
        passed = rng.choice((1, 10, 500, 1_000, 1_500))
        jump = rng.choice((-600_000, -2_000, -500, 0, 500, 700_000)) if rng.random() < 0.1 else 0
        query.advance(passed, clock_ms=passed + jump)
        without_tick += passed


def test_clock_that_is_behind_is_health_reason(query: Query) -> None:
    reports = ProgressReports()

    def report() -> list[tuple[str, HealthState]]:
        query.plan()
        reports.add({"id": "query", "batchId": 0, "sources": [{"endOffset": json.dumps(query.offset)}]})
        return [(reason.code, reason.state) for reason in reports.health_reasons()]

    assert report() == []
    query.advance(INTERVAL_MS, clock_ms=-600_000)
    assert report() == [("clock_went_back", HealthState.STALLED)]
    assert "600.0 s behind" in next(reports.health_reasons()).message
    query.advance(700_000)
    assert report() == []
