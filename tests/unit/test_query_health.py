"""Health of queries that read with ``format("zkconsumer")``."""

from __future__ import annotations

import time
from typing import Any

import pytest
from clocks import Clock
from no_session import NoSession
from py4j.protocol import Py4JError
from waiting import wait_for

from zkconsumer.health import HealthState
from zkconsumer.spark.driver.query_health import QueryHealth, find_trigger_interval
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.driver_link import DriverLink

RUNNING, PLANNING, WAITING = "Processing new data", "Getting offsets from zkconsumer", "Waiting for next trigger"


class Query:
    """A query with a status that the test sets, and a trigger interval of 30 seconds."""

    runId = "run"

    def __init__(self, message: str = WAITING, *, is_active: bool = False) -> None:
        self.status = {"message": message, "isTriggerActive": is_active}
        self._jsq = self

    def streamingQuery(self) -> Query:
        return self

    def trigger(self) -> Query:
        return self

    def intervalMs(self) -> int:
        return 30_000


class Session:
    """A session whose context cannot be used."""

    @property
    def sparkContext(self) -> Any:
        raise Py4JError("stopped")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


def create(query: Query) -> QueryHealth:
    return QueryHealth(Session(), query, "q", {"g"})


def state(lag: int = 0, health: str = "healthy", *codes: str, consumer: str = "g_me", owned: int = 1) -> dict[str, Any]:
    found = {"group": "g", "consumer": consumer, "lag": lag, "owned": owned}
    return {**found, "health": health, "healthReasons": list(codes)}


def progress(batch: int, *states: dict[str, Any]) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"latestOffset": one} for one in states] + [{"latestOffset": None}]}


def codes(health: QueryHealth) -> list[str]:
    return [reason.code for reason in health.reasons()]


@pytest.mark.parametrize(
    ("message", "is_active", "lag", "code"),
    [
        (RUNNING, True, 0, "batch_running"),
        (PLANNING, True, 0, "no_batch"),
        (WAITING, False, 5, "no_batch"),
        (WAITING, False, 0, None),
    ],
)
def test_stall_is_reported_after_three_trigger_intervals(
    clock: Clock, message: str, is_active: bool, lag: int, code: str | None
) -> None:
    health = create(Query(message, is_active=is_active))
    health.add_progress(progress(7, state(lag)))
    for _ in range(9):
        health.update(has_uncommitted=False)
        assert codes(health) == []
        clock.now += 10
    health.update(has_uncommitted=False)

    reasons = list(health.reasons())
    assert [(reason.code, reason.state) for reason in reasons] == ([(code, HealthState.STALLED)] if code else [])
    for reason in reasons:
        number = "batch 8 has been running" if code == "batch_running" else "no batch was finished"
        assert reason.message.startswith(f"query 'q': {number} for 90 s")
    health.add_progress(progress(8, state(lag)))
    health.update(has_uncommitted=False)
    assert codes(health) == []


@pytest.mark.parametrize("lag", [0, 3])
@pytest.mark.parametrize("has_batch", [False, True])
def test_planning_without_lag_is_progress(clock: Clock, lag: int, has_batch: bool) -> None:
    health = create(Query(PLANNING, is_active=True))
    if has_batch:
        health.add_progress(progress(7, state(100)))
    for _ in range(20):
        health.add_idle("g_me", state(lag))
        health.add_idle("other_me", {**state(9), "group": "other"})
        health.update(has_uncommitted=False)
        clock.now += 10

    assert codes(health) == (["no_batch"] if lag else [])


def test_lag_of_revoked_partitions_is_ignored(clock: Clock) -> None:
    health = create(Query())
    health.add_progress(progress(7, state(3)))
    for _ in range(20):
        health.add_idle("g_me", state(3, owned=0))
        health.update(has_uncommitted=False)
        clock.now += 10

    assert codes(health) == []


def test_uncommitted_offsets_are_reported(clock: Clock) -> None:
    health = create(Query())
    for has_uncommitted in (True, False, True, True):
        health.update(has_uncommitted=has_uncommitted)
        assert codes(health) == []
        clock.now += 59
    [reason] = health.reasons()

    assert (reason.code, reason.state) == ("commit_failed", HealthState.STALLED)
    assert reason.message == "query 'q': the offsets of a finished batch were not committed for 118 s"


def test_reasons_of_planning_processes_keep_their_first_time() -> None:
    health, before = create(Query()), time.time()
    health.add_progress(progress(0, state(0, "stalled", "leader_not_found"), state(0, consumer="g_other")))
    [first] = health.reasons()
    health.add_idle("g_other", state(0, "disconnected", "zookeeper_disconnected"))
    again, other = health.reasons()

    assert (first, first.state) == (again, HealthState.STALLED)
    assert (other.code, other.state) == ("zookeeper_disconnected", HealthState.DISCONNECTED)
    assert before <= first.since <= other.since <= time.time()
    health.add_progress(progress(1, state()))
    assert codes(health) == []


def test_trigger_without_interval_has_interval_zero() -> None:
    assert find_trigger_interval(Query()) == 30.0
    assert find_trigger_interval(object()) == 0.0


def test_listener_receives_state_of_planning_process() -> None:
    listener = QueryListener(NoSession())
    listener._planners.start()
    link = DriverLink("g_me", 2, lambda _: True)
    try:
        link.connect(listener.link)
        link.send(idle=state())
        wait_for(lambda: not listener._events.empty())
        run, (consumer_id, found) = listener._events.get()
    finally:
        link.close()
        listener.close()

    assert (run, consumer_id, found) == ("idle", "g_me", state())
    assert listener.health.is_healthy
