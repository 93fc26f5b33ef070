"""Health of an application whose query makes no progress."""

from __future__ import annotations

import time

import pytest
from helpers.clocks import Clock

from zkconsumer.health import HealthState, ProgressWatch
from zkconsumer.spark.driver.activity import QueryActivity, QueryStatus

IDLE = QueryStatus("Waiting for next trigger", is_active=False, last_batch=7)
RUNNING = QueryStatus("Processing new data", is_active=True, last_batch=7)
PLANNING = QueryStatus("Getting offsets from zkconsumer", is_active=True, last_batch=7)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(0.1, 60), (20, 60), (21, 63), (600, 1_800)])
def test_watch_waits_three_intervals_and_a_minute(clock: Clock, interval_s: float, timeout_s: float) -> None:
    watch = ProgressWatch(interval_s)
    watch.update(1, has_work=True)
    clock.now += timeout_s - 1
    assert watch.find_stall() is None
    clock.now += 1
    assert watch.find_stall() == timeout_s


def test_watch_ignores_time_without_work(clock: Clock) -> None:
    watch = ProgressWatch(1)
    for has_work in (False, True, False, True):
        watch.update(1, has_work=has_work)
        clock.now += 59
        assert watch.find_stall() is None
    watch.update(1, has_work=True)
    clock.now += 1
    assert watch.find_stall() == 60


def test_watch_is_reset_by_progress(clock: Clock) -> None:
    watch = ProgressWatch(1)
    for position in range(5):
        watch.update(position, has_work=True)
        clock.now += 50
        watch.update(position, has_work=True)
        assert watch.find_stall() is None
    clock.now += 10
    assert watch.find_stall() == 60


@pytest.mark.parametrize(
    ("status", "lag", "code", "message"),
    [
        (RUNNING, 0, "batch_running", "batch 8 is running, but no task has finished for 75 s: task 0_1 on h"),
        (
            PLANNING,
            0,
            "no_batch",
            "no batch was finished for 75 s; status of the query: Getting offsets from zkconsumer",
        ),
        (IDLE, 3, "no_batch", "no batch was finished for 75 s; status of the query: Waiting for next trigger"),
        (QueryStatus(), 0, "no_batch", "no batch was finished for 75 s; status of the query: the query is starting"),
        (IDLE, 0, None, None),
    ],
)
def test_health_has_reason_after_a_minute(
    clock: Clock, status: QueryStatus, lag: int, code: str | None, message: str | None
) -> None:
    activity = QueryActivity(1.0, lambda: "task 0_1 on h")
    activity.update(status, lag=lag)
    before = time.time()
    clock.now += 59
    activity.update(status, lag=lag)
    assert list(activity.health_reasons()) == []
    clock.now += 16
    activity.update(status, lag=lag)
    reasons = list(activity.health_reasons())
    assert [(reason.code, reason.message, reason.state) for reason in reasons] == (
        [] if code is None else [(code, message, HealthState.STALLED)]
    )
    assert all(before - 76 < reason.since <= time.time() - 74 for reason in reasons)
    activity.update(status._replace(last_batch=8), lag=lag)
    assert list(activity.health_reasons()) == []


def test_ended_query_has_no_reason(clock: Clock) -> None:
    activity = QueryActivity(1.0, str)
    activity.update(RUNNING)
    activity.end()
    clock.now += 100
    assert list(activity.health_reasons()) == []


def test_batch_whose_tasks_finish_is_not_reported(clock: Clock) -> None:
    activity = QueryActivity(1.0, str)
    jobs = [{(4, 1)}, {(4, 2)}, {(4, 2), (5, 1)}, {(5, 1)}, set[tuple[int, int]]()]
    for finished in jobs:
        activity.update(RUNNING._replace(finished_tasks=finished))
        clock.now += 59
        assert list(activity.health_reasons()) == []
    activity.update(RUNNING)  # for example, foreachBatch waits for another system
    clock.now += 1
    assert [reason.code for reason in activity.health_reasons()] == ["batch_running"]


def test_tasks_are_described_once_per_update(clock: Clock) -> None:
    calls: list[float] = []

    def describe() -> str:
        calls.append(clock.now)
        return f"description {len(calls)}"

    activity = QueryActivity(1.0, describe)
    for _ in range(9):
        activity.update(RUNNING)
        reasons = [list(activity.health_reasons()) for _ in range(50)]
        clock.now += 10
    assert calls == [160, 170, 180]
    assert {reason.message.partition(": ")[2] for [reason] in reasons} == {"description 3"}
