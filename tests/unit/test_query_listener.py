"""Tests of the query listener without Spark: progress reports, and the end of its commits."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from helpers.no_session import NoSession
from helpers.threads import in_thread
from helpers.waiting import wait_for

from zkconsumer.errors import BrokerUnavailableError, ConfigurationError
from zkconsumer.health import HealthState
from zkconsumer.message import Endpoint
from zkconsumer.metrics import Metrics
from zkconsumer.spark.driver import commits, observed_query, query_listener
from zkconsumer.spark.driver.query_health import QueryHealth
from zkconsumer.spark.driver_link import DriverLink
from zkconsumer.spark.offset import BatchOffset
from zkconsumer.spark.options.source_options import SourceOptions


def test_batch_end_time_is_taken_from_progress() -> None:
    progress = {"timestamp": "2026-01-01T00:00:00.500Z", "durationMs": {"triggerExecution": 250}}
    assert observed_query.find_completion_time(progress) == 1_767_225_600.75


def test_malformed_offset_is_reported_without_connection() -> None:
    options = SourceOptions.parse({"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t"})
    with pytest.raises(ConfigurationError, match="cannot be parsed"):
        commits.commit_batch(commits.CompletedBatch(options, {"generation": "x", "ranges": {}}, 0.0), set(), {})


class StuckQuery:
    """A query whose batch does not end."""

    def __init__(self) -> None:
        self.may_stop = threading.Event()

    def stop(self) -> None:
        assert self.may_stop.wait(20)
        raise ConnectionError("the JVM has ended")


def test_query_that_does_not_stop_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, query = query_listener.QueryListener(NoSession()), StuckQuery()
    monkeypatch.setattr(one, "_active", lambda _run: [query])
    try:
        in_thread(lambda: one._stop_query("run")).result(5)
    finally:
        query.may_stop.set()
        one.close()
    wait_for(lambda: "query_stop_failed" in caplog.text)


def test_failed_listener_is_logged_and_closes_its_port(caplog: pytest.LogCaptureFixture) -> None:
    one = query_listener.QueryListener(NoSession())
    one._planners.start()
    one._thread.start()
    wait_for(lambda: not one.is_open)
    assert "query_listener_failed" in caplog.text
    with socket.socket() as probe:
        assert probe.connect_ex((one.link.host, one.link.port)) != 0


def test_join_of_commits_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(commits, "commit_batch", lambda *_: dict[str, int]() if may_end.wait(20) else None)
    in_driver = commits.DriverCommits(Metrics())
    for number in range(5):
        options = SourceOptions.parse({"group.id": f"g{number}", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t"})
        of_query = commits.UncommittedBatches(f"q{number}", [options])
        of_query.add(0, commits.CompletedBatch(options, {}, 0.0))
        in_driver.commit(of_query, 0.0)
    started = time.monotonic()
    in_driver.join(0.3)
    elapsed = time.monotonic() - started
    may_end.set()
    in_driver.join(20)
    assert 0.3 <= elapsed < 0.9


def test_driver_commit_uses_brokers_of_planning_process(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t", "bootstrap.servers": "a:1"}
    options = SourceOptions.parse(properties)
    of_query = commits.UncommittedBatches("q", [options])
    one = query_listener.QueryListener(NoSession())
    one._queries["run"] = query = observed_query.ObservedQuery(
        "id", "q", [options], of_query, QueryHealth(NoSession(), StuckQuery(), "q", ["g"])
    )
    end = {"group": "g", "generation": "x", "ranges": {}}
    source = {"endOffset": end, "latestOffset": {"consumer": "g_me"}}
    progress = {"batchId": 0, "sources": [source], "timestamp": "2026-01-01T00:00:00.500Z", "durationMs": {}}
    configured, first, second = (Endpoint(host, 1) for host in "abc")
    one._receive("g_me", {"brokers": [["b", 1]]})
    try:
        one._handle_progress("run", query, progress)
    finally:
        one._planners.close()
    [batch] = of_query.take().values()
    assert batch.known.before([configured]) == [first, configured]
    one._receive("g_me", {"brokers": [["c", 1]]})
    used: list[Any] = []

    def open_access(*_: object, known: Any) -> None:
        used.extend(known.before([configured]))
        raise BrokerUnavailableError("stopped")

    monkeypatch.setattr(commits, "open_access", open_access)
    monkeypatch.setattr(BatchOffset, "from_json", lambda _: None)
    with pytest.raises(BrokerUnavailableError):
        commits.commit_batch(batch, set(), {})
    assert used == [second, configured]


def create_query(query_id: str = "id", name: str = "q") -> observed_query.ObservedQuery:
    options = SourceOptions.parse({"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t"})
    uncommitted = commits.UncommittedBatches(name, [options])
    health = QueryHealth(NoSession(), StuckQuery(), name, ["g"])
    return observed_query.ObservedQuery(query_id, name, [options], uncommitted, health)


def test_batches_are_uncommitted_while_their_commit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    query, seen = create_query(), list[bool]()
    uncommitted = query.uncommitted

    def fail(*_: object) -> dict[str, int]:
        seen.append(bool(uncommitted))
        if len(seen) == 1:
            raise BrokerUnavailableError("planned")
        return {}

    monkeypatch.setattr(commits, "commit_batch", fail)
    in_driver = commits.DriverCommits(Metrics())
    uncommitted.add(0, commits.CompletedBatch(query.sources[0], {}, 0.0))
    found = []
    for _ in range(2):
        in_driver.commit(uncommitted, 0.0)
        in_driver.join(20)
        found.append((bool(uncommitted), uncommitted.commit_counts[0]))
    assert seen == [True, True]
    assert found == [(True, 0), (False, 1)]


def test_commit_of_replaced_batch_is_counted() -> None:
    query = create_query()
    query.uncommitted.consumer_ids["g_me"] = 0
    for report in range(3):
        batch = commits.CompletedBatch(query.sources[0], {}, 0.0)
        query.uncommitted.add(0, batch)
        query.reported[0] = report, batch
    query.confirm("g_me", 0)
    query.confirm("h_other", 1)
    assert (bool(query.uncommitted), query.uncommitted.commit_counts[0]) == (True, 1)
    query.confirm("g_me", 2)
    assert (bool(query.uncommitted), query.uncommitted.commit_counts[0]) == (False, 2)


@pytest.mark.parametrize("error", [None, "ValueError: planned\n\tat stack trace"])
def test_failed_query_keeps_its_health_until_a_restart(error: str | None) -> None:
    one = query_listener.QueryListener(NoSession())
    try:
        one._add("run", create_query())
        one._handle("run", query_listener._Terminated(error))
        found = [(reason.code, reason.state) for reason in one.health.reasons]
        values = [value["Value"] for name, value in one.metrics.items() if name.name == "Health"]
        one._add("next", create_query())
        restarted = one.health
    finally:
        one._planners.close()
    assert found == ([] if error is None else [("query_failed", HealthState.FAILED)])
    assert values == ([] if error is None else [4.0])
    assert restarted.is_healthy


@pytest.mark.parametrize("kept_s", [0.0, 600.0])
def test_brokers_of_ended_planning_processes_are_forgotten(kept_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once, because the listener may handle the report of their last batch later."""
    monkeypatch.setattr(query_listener, "_KEPT_BROKERS_S", kept_s)
    one, query = query_listener.QueryListener(NoSession()), create_query()
    one._planners.start()
    link = DriverLink("g_connected", 2, lambda _: True)
    try:
        link.connect(one.link)
        wait_for(lambda: "g_connected" in one._planners.connected)
        query.uncommitted.consumer_ids["g_reported"] = 0
        one._add("run", query)
        for consumer_id in ("g_connected", "g_reported", "g_ended"):
            one._receive(consumer_id, {"brokers": [["b", 1]]})
        one._forget_planners()
        kept = sorted(one._known)
        one._handle("run", query_listener._Terminated(None))
        link.close()
        wait_for(lambda: not one._planners.connected)
        one._forget_planners()
    finally:
        link.close()
        one._planners.close()
    assert kept == (["g_connected", "g_reported"] if kept_s == 0 else ["g_connected", "g_ended", "g_reported"])
    assert sorted(one._known) == ([] if kept_s == 0 else kept)
