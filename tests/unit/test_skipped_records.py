"""Counts of lost and skipped records: in the planning process, over the connections, and in reports and metrics."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from helpers.waiting import wait_for

from zkconsumer import TopicPartition
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.health import HealthState
from zkconsumer.log import get_logger
from zkconsumer.spark import driver_link
from zkconsumer.spark.data_loss import DataLossError, range_deleted, start_offset_deleted
from zkconsumer.spark.driver.lag import lag
from zkconsumer.spark.driver.metrics import query_metrics
from zkconsumer.spark.driver.skipped import update
from zkconsumer.spark.driver_link import DriverLink, PlannerConnections
from zkconsumer.spark.executor.task_reports import ReportAddress, ReportListener, SkippedRange, TaskReport
from zkconsumer.spark.keyed_server import KeyedServer, ServerAddress, messages, to_line
from zkconsumer.spark.planning.skipped_records import SkippedRecords

pytestmark = pytest.mark.timeout(30)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def skipped_records(*, fails: bool = False) -> SkippedRecords:
    return SkippedRecords(get_logger("zkconsumer.spark"), fails_on_data_loss=fails)


def test_skipped_records_of_ranges_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    counts = skipped_records()
    counts.start_batch({A: (0, 100), B: (0, 10)})
    counts.record([SkippedRange(*A, 0, lost=5), SkippedRange(*A, 50, lost=2, skipped=3), SkippedRange(*B, 0, lost=1)])
    assert "event='records_lost' records_by_partition={'t-0': 7, 't-1': 1} records=8" in caplog.text
    assert "event='records_skipped' records_by_partition={'t-0': 3} records=3" in caplog.text


def test_repeated_task_is_counted_once() -> None:
    counts = skipped_records()
    counts.start_batch({A: (0, 100), B: (0, 10)})
    counts.record([SkippedRange(*A, 0, lost=5), SkippedRange(*A, 50, skipped=2)])
    counts.record([SkippedRange(*A, 0, lost=7, skipped=1)])
    counts.start_batch({A: (0, 100), B: (0, 10)})  # Spark runs the batch again
    assert counts.counts == ({A: 7}, {A: 3})
    counts.start_batch({A: (100, 200)})
    counts.record([SkippedRange(*A, 0, lost=9)])  # a late report of the first batch
    counts.record([SkippedRange(*A, 100, lost=1)])
    assert counts.counts == ({A: 8}, {A: 3})


def test_reports_outside_of_batch_are_ignored() -> None:
    counts = skipped_records()
    counts.start_batch({A: (0, 100)})
    counts.record([SkippedRange(*A, 100, lost=5), SkippedRange(*B, 0, lost=5), SkippedRange(*A, 99, skipped=1)])
    assert counts.counts == ({}, {A: 1})


def test_loss_during_planning_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    counts = skipped_records()
    counts.lose(start_offset_deleted(A, 10, 25, ""))
    assert counts.counts == ({A: 15}, {})
    assert "records_lost" in caplog.text
    assert "failOnDataLoss=false" not in caplog.text, "the remedy is that of the error"
    with pytest.raises(DataLossError, match="15 offsets are lost"):
        skipped_records(fails=True).lose(start_offset_deleted(A, 10, 25, ""))


@pytest.mark.parametrize(
    ("log", "lost"), [((30, 200), 20), ((150, 200), 90), ((0, 5), 90), ((0, 80), 20), ((20, 90), 20)]
)
def test_lost_part_of_range_is_counted(log: tuple[int, int], lost: int) -> None:
    assert range_deleted(A, 10, 100, *log).lost == {A: lost}


def test_task_reports_reach_the_listener() -> None:
    found: list[SkippedRange] = []
    listener = ReportListener("127.0.0.1", None, on_skipped=found.extend)
    listener.start()
    try:
        listener.address.send(TaskReport(skipped=(SkippedRange("t", 3, 5, lost=7, skipped=2),)))
        assert found == [SkippedRange("t", 3, 5, lost=7, skipped=2)]
        assert not listener.has_ended
        listener.address.send(TaskReport(has_ended=True))
        assert listener.has_ended
        stranger = ReportAddress("127.0.0.1", listener.address.port, b"x" * 32)
        with pytest.raises(BrokerUnavailableError, match="SPARK_LOCAL_HOSTNAME"):
            stranger.send(TaskReport(skipped=(SkippedRange("t", 3, 5, lost=100),)))
        assert len(found) == 1
    finally:
        listener.close()


class Link(NamedTuple):
    """Both ends of a link, with what they have received."""

    driver: PlannerConnections
    planner: DriverLink
    messages: list[dict[str, Any]]
    finished: list[dict[str, Any]]


@pytest.fixture
def link() -> Iterator[Link]:
    before = set(threading.enumerate())
    messages: list[dict[str, Any]] = []
    finished: list[dict[str, Any]] = []

    def finish(offset: dict[str, Any]) -> bool:
        finished.append(offset)
        return bool(offset["owned"])

    driver = PlannerConnections(lambda consumer_id, message: messages.append({"from": consumer_id, **message}))
    driver.start()
    driver.broadcast({"cores": 3})
    planner = DriverLink("g_me", 2, finish)
    planner.connect(driver.address)
    wait_for(lambda: planner.cores == 3)
    yield Link(driver, planner, messages, finished)
    planner.close()
    driver.close()
    wait_for(lambda: set(threading.enumerate()) <= before, what="the threads of the link end")


def test_driver_reports_cores_and_finished_batches(link: Link) -> None:
    link.driver.broadcast({"cores": 8})
    wait_for(lambda: link.planner.cores == 8)
    link.driver.send("g_me", {"finished": {"owned": False}, "number": 1})
    link.driver.send("g_me", {"finished": {"owned": True}, "number": 2})
    link.driver.send("g_other", {"finished": {"owned": True}, "number": 3})
    wait_for(lambda: link.messages)
    assert link.messages == [{"from": "g_me", "committed": 2}], "only committed batches are confirmed"
    assert link.finished == [{"owned": False}, {"owned": True}]


def test_planner_reports_skipped_records_to_driver(link: Link) -> None:
    link.planner.send(recordsLost={"t": {"0": 5}})
    wait_for(lambda: link.messages)
    assert link.messages == [{"from": "g_me", "recordsLost": {"t": {"0": 5}}}]


def test_unreachable_driver_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    link = DriverLink("g_me", 2, lambda _: True)
    link.connect(ServerAddress("127.0.0.1", 1, b""))
    assert "driver_listener_unreachable" in caplog.text
    link.send(recordsLost={})
    link.close()
    assert link.cores == 2


def test_wrong_key_of_the_driver_is_logged(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    """Another application may listen on the port after the driver has ended."""
    stranger = DriverLink("g_me", 2, lambda _: True)
    stranger.connect(dataclasses.replace(link.driver.address, key=b"x" * 32))
    wait_for(lambda: "driver_listener_unreachable" in caplog.text)
    stranger.close()


def test_message_that_was_sent_in_part_ends_the_link() -> None:
    """The rest of the message would be read as a part of the next one."""
    has_sent = threading.Event()
    received: list[Any] = []

    def serve(connection: socket.socket) -> None:
        assert has_sent.wait(20)
        received.extend(messages(connection))

    server = KeyedServer(serve, host="127.0.0.1", bind="127.0.0.1", name="zkconsumer-test", timeout_s=5.0)
    server.start()
    link = DriverLink("g_me", 2, lambda _: True, timeout_s=0.5)
    link.connect(server.address)
    link.send(recordsLost={"t": {"0": "x" * (7 << 20)}})  # more than the buffers of the connection
    wait_for(lambda: not any("sender" in thread.name for thread in threading.enumerate()))
    link.send(recordsLost={"t": {"0": 1}})
    has_sent.set()
    server.close()
    link.close()
    assert received == ["g_me"]


def test_stuck_planning_process_delays_no_other(link: Link) -> None:
    with link.driver.address.connect(5.0) as stuck:
        stuck.sendall(to_line("g_stuck"))
        assert stuck.recv(100) == to_line({"cores": 3})
        started = time.monotonic()
        link.driver.send("g_stuck", {"finished": "x" * (8 << 20)})
        link.driver.broadcast({"cores": 8})
        wait_for(lambda: link.planner.cores == 8)
        assert time.monotonic() - started < 3, "sending to the process times out after 5 s"


def test_full_queue_ends_connection_of_stuck_process(link: Link) -> None:
    with link.driver.address.connect(5.0) as stuck:
        stuck.sendall(to_line("g_stuck"))
        assert stuck.recv(100) == to_line({"cores": 3})
        started = time.monotonic()
        for _ in range(driver_link._MAX_QUEUED + 20):
            link.driver.send("g_stuck", {"finished": "x" * (1 << 19)})
        wait_for(lambda: "g_stuck" not in link.driver._outboxes, what="the connection has ended")
        assert time.monotonic() - started < 3


def test_process_that_stops_has_sent_its_reports(link: Link) -> None:
    for number in range(50):
        link.planner.send(recordsLost={"t": {"0": number}})
    link.planner.close()
    wait_for(lambda: len(link.messages) == 50)


def test_malformed_message_of_driver_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lines = [to_line({"cores": "many"}), to_line(["cores"]), to_line({"cores": 5}), b"no json\n", to_line({"cores": 6})]

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"".join(lines))
        connection.recv(100)

    server = KeyedServer(serve, host="127.0.0.1", bind="127.0.0.1", name="zkconsumer-test", timeout_s=5.0)
    server.start()
    link = DriverLink("g_me", 2, lambda _: True)
    link.connect(server.address)
    wait_for(lambda: caplog.text.count("driver_message_failed") == 3)
    assert link.cores == 5
    link.close()
    server.close()


class FinishedQuery:
    """Has the progress reports of a query of one source."""

    def __init__(self, latest: Any) -> None:
        source = {"endOffset": {"group": "g", "ranges": {"t": {"0": [0, 5]}}}, "latestOffset": latest}
        self.progress = {"timestamp": "2026-01-01T00:00:00.500Z", "sources": [source]}
        self.recentProgress = [SimpleNamespace(json=json.dumps(self.progress))]


def test_metrics_of_two_sources_are_combined_by_kind() -> None:
    first = {"latest": {"a": {"0": 50, "1": 10}}, "lag": 30, "maxOffsetsBehindLatest": 25, "minOffsetsBehindLatest": 5}
    second = {"latest": {"b": {"0": 90}}, "lag": 60, "maxOffsetsBehindLatest": 60, "minOffsetsBehindLatest": 60}
    sources = [
        {"endOffset": {"group": "g", "ranges": {}}, "latestOffset": latest | {"owned": 1, "commitAgeSeconds": age}}
        for latest, age in ((first, 2.5), (second, 1.5))
    ]
    found = query_metrics("q", {"sources": sources}, HealthState.STALLED)
    metrics = {name.name: value for name, value in found.items()}
    expected = {"Lag": 90, "MaxOffsetsBehindLatest": 60, "MinOffsetsBehindLatest": 5, "AvgOffsetsBehindLatest": 30}
    assert metrics.items() >= (expected | {"OwnedPartitions": 2, "CommitAgeSeconds": 2.5, "Health": 2}).items()


def test_replayed_batch_has_no_lag() -> None:
    """Spark reports no latest offset for a batch that is replayed after a restart."""
    one = FinishedQuery({"latest": {"t": {"0": 12}}})
    replayed = FinishedQuery("null")
    one.recentProgress = [*replayed.recentProgress, *one.recentProgress]

    assert [(row.offset, row.end) for row in lag(one).rows] == [(5, 12)]
    assert lag(replayed).rows == ()


def test_lag_and_metrics_show_newest_counts() -> None:
    one = FinishedQuery({"consumer": "g_x", "recordsLost": {"t": {"0": 5}}, "recordsSkipped": {}})
    assert repr(lag(one)) == "Lag(total=0, partitions=0, records_lost=5)"
    update("g_x", {"recordsLost": {"t": {"0": 9, "1": 1}}, "recordsSkipped": {"t": {"1": 2}}})
    shown = lag(one)
    assert (shown.records_lost, shown.records_skipped) == ({A: 9, B: 1}, {B: 2})
    assert "records_lost=10, records_skipped=2" in shown._repr_html_()
    metrics = query_metrics("q", one.progress, HealthState.HEALTHY)
    assert {name.tags: value for name, value in metrics.items() if name.name == "RecordsLost"} == {
        (("query", "q"),): 10,
        (("query", "q"), ("topic", "t"), ("partition", "0")): 9,
        (("query", "q"), ("topic", "t"), ("partition", "1")): 1,
    }
