"""Tests of the query listener without Spark: progress reports, and the end of its commits."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from no_session import NoSession
from threads import in_thread
from waiting import wait_for

from zkconsumer.errors import BrokerUnavailableError, ConfigurationError
from zkconsumer.message import Endpoint
from zkconsumer.metrics import Metrics
from zkconsumer.spark.driver import commits, query_listener
from zkconsumer.spark.driver.lag import offset_object
from zkconsumer.spark.driver.query_health import QueryHealth
from zkconsumer.spark.offset import BatchOffset
from zkconsumer.spark.options.source_options import SourceOptions


def test_batch_end_time_is_taken_from_progress() -> None:
    progress = {"timestamp": "2026-01-01T00:00:00.500Z", "durationMs": {"triggerExecution": 250}}
    assert query_listener._find_completion_time(progress) == 1_767_225_600.75


def test_offsets_of_other_sources_are_ignored() -> None:
    assert offset_object(7) == offset_object("7") == offset_object(None) == offset_object("[1]") == {}
    assert offset_object('{"a": 1}') == offset_object({"a": 1}) == {"a": 1}


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
    one._queries["run"] = query = query_listener._Query(
        "q", [options], of_query, QueryHealth(NoSession(), StuckQuery(), "q", ["g"])
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
