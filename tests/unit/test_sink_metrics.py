"""Records that the sink drops are counted in the task metrics of the application."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from helpers.no_session import NoSession
from unit.test_streams_output import output_of, settings
from unit.test_streams_output import read as read_output
from unit.test_streams_progress import report_of

from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver import sink_metrics
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.driver.recent_values import RecentValues
from zkconsumer.spark.driver_link import send_once
from zkconsumer.spark.keyed_server import ServerAddress
from zkconsumer.spark.streams import sink
from zkconsumer.spark.streams.markers import NO_OUTPUT, Marker, encode_offsets
from zkconsumer.spark.streams.output import ProcessingGuarantee, TaskOutput
from zkconsumer.spark.streams.progress import ProgressReports
from zkconsumer.spark.streams.rejected_records import RejectedRecords
from zkconsumer.spark.streams.sink import TopicWriter, WrittenOutput
from zkconsumer.topology.handlers import ErrorHandler, log_and_continue, quarantine

DROPPED = {"dropped": 2, "dropped/production": 2}


@pytest.fixture
def link() -> Iterator[ServerAddress]:
    """The address of a driver listener."""
    listener = QueryListener(NoSession())
    listener._planners.start()
    try:
        yield listener.link
    finally:
        listener.close()


def commit(link: ServerAddress | None, batch: int, *metrics: dict[str, dict[str, int]]) -> None:
    """Commit a batch. Like Spark, pickle the messages of the tasks, because the sink runs in another process."""
    messages: list[Any] = [WrittenOutput("query", {}, dict(of_task)) for of_task in metrics]
    TopicWriter(settings().encode(), None, link).commit(pickle.loads(pickle.dumps([*messages, None])), batch)


@pytest.mark.parametrize(("handler", "quarantined"), [(log_and_continue, 0), (quarantine, 3)])
def test_rejected_records_are_counted_and_their_events_are_limited(
    handler: ErrorHandler, quarantined: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "zkconsumer")
    output = output_of([{}] * 3)
    error, records = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), read_output(output)
    for _ in range(10):  # each batch has its own object
        rejected = RejectedRecords(settings(handler=handler, quarantine_topic="bad"), output)
        found = [rejected.handle(position, error, record) for position, record in enumerate(records)]

        assert len(list(filter(None, found))) == quarantined
        assert rejected.metrics == {"dropped": 3, "dropped/production": 3}

    events = [one.getMessage() for one in caplog.records]
    assert len(events) == 10
    assert all("record_dropped" in event and "node='out'" in event and "task='0_3'" in event for event in events)


def test_metrics_of_a_sink_are_added_to_those_of_its_batch(link: ServerAddress) -> None:
    reports = ProgressReports()
    commit(link, 0, {"0_0": DROPPED}, {"0_1": DROPPED, "0_2": DROPPED}, {})
    reports.add(report_of(0, [{"0_0": {"processed": 5, "dropped": 1}}]))
    reports.add(report_of(1, []))

    assert reports.task_metrics() == {
        "0_0": {"processed": 5, "dropped": 3, "dropped/production": 2},
        "0_1": DROPPED,
        "0_2": DROPPED,
    }
    progress = reports.progress()
    assert progress is not None
    assert progress.dropped == 7


def test_repeated_batch_is_counted_once(link: ServerAddress) -> None:
    reports = ProgressReports()
    for _ in range(3):
        commit(link, 4, {"0_0": DROPPED})
    reports.add(report_of(4, []))
    commit(link, 5, {"0_0": DROPPED})

    assert reports.task_metrics() == {"0_0": DROPPED}


def test_batch_without_dropped_records_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    commit(ServerAddress("127.0.0.1", 1, b"k" * 32), 6, {})
    commit(None, 7, {"0_0": DROPPED})

    assert not caplog.records


class Commits:
    """Records the arguments of ``MarkerCommitter.commit``."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def commit(self, _client: Any, *arguments: Any, fails_on_changed_output: bool) -> None:
        self.found.append((*arguments, fails_on_changed_output))


class Writers:
    """Drops the records of task 0_3."""

    def write_all(
        self, _settings: str, outputs: list[TaskOutput], _marker: Marker, _servers: str | None
    ) -> dict[str, dict[str, int]]:
        return {output.task: DROPPED if output.task == "0_3" else {} for output in outputs}


@pytest.mark.parametrize("guarantee", list(ProcessingGuarantee))
def test_offsets_of_tasks_without_output_are_committed(
    guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, first = Commits(), TopicPartition("t", 0)
    monkeypatch.setattr(sink, "_committer", commits)
    monkeypatch.setattr(sink, "_find_batch", lambda: Marker("query", 9))
    monkeypatch.setattr(sink, "_open_writers", Writers)
    outputs = [
        TaskOutput("0_0", 0, encode_offsets({first: 7}), None),
        output_of([{}])._replace(offsets=encode_offsets({TopicPartition("t", 3): 8})),
        output_of([{}])._replace(task="0_4"),
    ]
    rows = pa.RecordBatch.from_pylist([one._asdict() for one in outputs])
    writer = TopicWriter(settings(guarantee=guarantee).encode(), None, None)

    written: Any = writer.write(iter([rows]))
    writer.commit([written], 9)

    assert written == WrittenOutput("query", {first: 7}, {"0_3": DROPPED})
    expected = [("app", {first: 7}, Marker("query", 9, NO_OUTPUT), True)]
    assert commits.found == (expected if guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else [])


@pytest.mark.parametrize("is_listening", [False, True])
def test_lost_report_is_logged(link: ServerAddress, is_listening: bool, caplog: pytest.LogCaptureFixture) -> None:
    stranger = ServerAddress(link.host, link.port if is_listening else 1, b"k" * 32)
    send_once(stranger, "sink query", sink_metrics.to_message("query", 8, {"0_0": DROPPED}))

    assert "driver_listener_unreachable" in caplog.text
    assert sink_metrics.take("query", 8) == {}


def test_metrics_of_old_batches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_metrics, "_metrics", RecentValues(3))
    for batch in range(10):
        sink_metrics.add(sink_metrics.to_message("query", batch, {"0_0": DROPPED})["sink"])

    assert [batch for batch in range(10) if sink_metrics.take("query", batch)] == [7, 8, 9]
