"""Health of queries that read with ``format("zkconsumer")``."""

from __future__ import annotations

import time
from typing import Any

import pytest
from helpers.clocks import Clock
from helpers.no_session import NoSession
from helpers.waiting import wait_for
from py4j.protocol import Py4JError

from zkconsumer.health import HealthState
from zkconsumer.spark.driver.activity import QueryStatus, describe_running_tasks, read_status
from zkconsumer.spark.driver.failures import describe_failure
from zkconsumer.spark.driver.query_health import FailedQueries, QueryHealth, find_trigger_interval
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


def update(health: QueryHealth) -> None:
    health.update({}, {})


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
        update(health)
        assert codes(health) == []
        clock.now += 10
    update(health)

    reasons = list(health.reasons())
    assert [(reason.code, reason.state) for reason in reasons] == ([(code, HealthState.STALLED)] if code else [])
    for reason in reasons:
        text = "batch 8 is running, but no task has finished" if code == "batch_running" else "no batch was finished"
        assert reason.message.startswith(f"query 'q': {text} for 90 s")
    health.add_progress(progress(8, state(lag)))
    update(health)
    assert codes(health) == []


@pytest.mark.parametrize("query", [Query(PLANNING, is_active=True), Query()], ids=["planning", "waiting"])
@pytest.mark.parametrize(("lag", "is_delayed"), [(0, False), (3, True), (3, False)])
@pytest.mark.parametrize("has_batch", [False, True])
def test_planning_without_records_is_progress(
    clock: Clock, query: Query, lag: int, is_delayed: bool, has_batch: bool
) -> None:
    health = create(query)
    if has_batch:
        health.add_progress(progress(7, state(100)))
    for _ in range(20):
        health.add_idle("g_me", {**state(lag), "delayed": is_delayed})
        health.add_idle("other_me", {**state(9), "group": "other"})
        update(health)
        clock.now += 10

    assert codes(health) == (["no_batch"] if lag and not is_delayed else [])


def test_planning_that_hangs_while_records_are_delayed_is_reported(clock: Clock) -> None:
    health = create(Query(PLANNING, is_active=True))
    health.add_idle("g_me", {**state(3), "delayed": True})
    for _ in range(10):
        update(health)
        clock.now += 10
    assert codes(health) == ["no_batch"]


def test_lag_of_revoked_partitions_is_ignored(clock: Clock) -> None:
    health = create(Query())
    health.add_progress(progress(7, state(3)))
    for _ in range(20):
        health.add_idle("g_me", state(3, owned=0))
        update(health)
        clock.now += 10

    assert codes(health) == []


def test_uncommitted_offsets_are_reported(clock: Clock) -> None:
    health = create(Query())
    for has_uncommitted in (True, False, True, True):
        health.update({0: "g"} if has_uncommitted else {}, {})
        assert codes(health) == []
        clock.now += 59
    [reason] = health.reasons()

    assert (reason.code, reason.state) == ("commit_failed", HealthState.STALLED)
    assert reason.message == "query 'q': the offsets of a finished batch of the group 'g' were not committed for 118 s"


def test_pending_batch_is_not_reported_while_others_are_committed(clock: Clock) -> None:
    health = create(Query())
    for count in range(20):
        health.update({0: "g"}, {0: count})
        clock.now += 59
        assert codes(health) == []


def test_source_that_never_commits_is_reported_beside_one_that_commits(clock: Clock) -> None:
    health = create(Query())
    for count in range(3):
        health.update({0: "g", 2: "h"}, {0: count})
        clock.now += 30
    [reason] = health.reasons()
    assert reason.message == "query 'q': the offsets of a finished batch of the group 'h' were not committed for 90 s"


@pytest.mark.parametrize("error", [Py4JError("stopped"), AttributeError("sc"), ConnectionError()], ids=repr)
def test_stopped_session_raises_no_error(clock: Clock, error: Exception) -> None:
    class Stopped:
        @property
        def sparkContext(self) -> Any:
            raise error

    query = Query(RUNNING, is_active=True)
    assert describe_running_tasks(Stopped(), "run", None) == ""
    assert read_status(Stopped(), query, 3) == QueryStatus(RUNNING, is_active=True, last_batch=3)
    health = QueryHealth(Stopped(), query, "q", {"g"})
    for _ in range(10):
        update(health)
        clock.now += 10
    [reason] = health.reasons()
    assert reason.message == "query 'q': batch 0 is running, but no task has finished for 100 s"


def test_failed_query_is_reported_until_it_starts_again() -> None:
    failed, before = FailedQueries(), time.time()
    failed.add("1", "a", "ValueError: bad\n\tat stack trace")
    failed.add("2", "2", "ValueError: other")
    first, second = failed.reasons()
    assert failed.names == ["a", "2"]
    assert (first.state, first.code) == (HealthState.FAILED, "query_failed")
    assert first.message == "query 'a' failed and must be restarted: ValueError: bad"
    assert before <= first.since <= second.since <= time.time()

    trace = 'failed. Return Message: Traceback (most recent call last):\n  File "x"\nValueError: bad\n\tat java'
    assert describe_failure(trace) == "failed. Return Message: ValueError: bad"
    assert describe_failure(f"{trace}\nzkconsumer.errors.DataLossError: lost\n\tat java") == (
        "zkconsumer.errors.DataLossError: lost"
    )
    failed.remove("3", "3")
    assert failed.reasons() == [first, second]
    failed.remove("1", "renamed")
    failed.remove("2", "2")
    assert failed.reasons() == []
    failed.add("4", "temporary checkpoint", "x")
    failed.remove("5", "temporary checkpoint")
    assert failed.reasons() == []


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
