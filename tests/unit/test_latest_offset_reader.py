"""The reader for Spark 4.0 and 4.1: which batch it acknowledges, plans and replays in each order of calls."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batch_offsets import offset_json
from pyspark.sql.types import StructType

from zkconsumer import TopicPartition
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning import process
from zkconsumer.spark.planning.batch_planner import TriggerKind
from zkconsumer.spark.query_context import QueryContext
from zkconsumer.spark.readers.latest_offset import LatestOffsetReader

SETTINGS = {"group.id": "g", "zookeeper.connect": "localhost:1", "subscribe": "t"}
FIRST, SECOND, THIRD = (offset_json({TopicPartition("t", 0): (number, number + 1)}) for number in range(3))


class Process:
    """Records the calls of a reader, and plans the batches that a test adds to ``planned``."""

    def __init__(self, context: QueryContext) -> None:
        self.limits: Limits = SourceOptions.parse(context.options).limits
        self.planned: list[dict[str, Any]] = []
        self.calls: list[Any] = []
        self.lag = 0

    def join(self) -> None:
        self.calls.append("join")

    def plan(self, start: dict[str, Any], max_offsets: int | None, trigger: TriggerKind) -> dict[str, Any]:
        self.calls.append(("plan after", start, max_offsets, trigger))
        return self.planned.pop(0) if self.planned else start

    def report_batch(self, end: dict[str, Any]) -> None:
        self.calls.append(("report", end))

    def latest(self) -> dict[str, Any]:
        return {"lag": self.lag}

    def tasks(self, end: dict[str, Any]) -> list[Any]:
        self.calls.append(("tasks", end))
        return ["task"]

    def stop(self) -> None:
        self.calls.append("stop")


class Query:
    """A reader in its planning process, and what the reader asked of the process."""

    def __init__(self, **options: str) -> None:
        self.reader = LatestOffsetReader(QueryContext(options={**SETTINGS, **options}, schema=StructType()))
        self.process: Any = self.reader._joined_process()
        self.limit = self.process.limits.max_offsets

    def calls(self) -> list[Any]:
        calls: list[Any] = self.process.calls
        self.process.calls = []
        return calls


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PlanningProcess", Process)
    monkeypatch.setattr("zkconsumer.spark.readers.stream_reader._exit_on_sigterm", lambda: SimpleNamespace(close=list))


def test_new_query_plans_after_initial_offset_and_acknowledges_each_batch() -> None:
    query = Query()
    query.process.planned = [FIRST, SECOND]
    assert query.reader.latestOffset() == FIRST
    assert query.calls() == ["join", ("plan after", INITIAL, None, TriggerKind.UNKNOWN), ("report", FIRST)]

    assert query.reader.initialOffset() == INITIAL
    assert query.reader.partitions(INITIAL, FIRST) == ["task"]
    assert query.reader.latestOffset() == SECOND
    assert query.calls() == [
        ("tasks", FIRST),
        ("plan after", FIRST, query.limit, TriggerKind.REPEATED),
        ("report", SECOND),
    ]


def test_idle_query_returns_its_last_offset() -> None:
    query = Query()
    assert query.reader.latestOffset() is INITIAL
    query.process.planned = [FIRST]
    assert query.reader.latestOffset() is FIRST
    assert ("report", INITIAL) not in query.calls()

    assert query.reader.latestOffset() is FIRST
    assert query.reader.latestOffset() is FIRST
    assert query.calls() == [("plan after", FIRST, query.limit, TriggerKind.REPEATED), ("report", FIRST)] * 2


def test_restart_after_finished_batch_plans_after_it() -> None:
    query = Query()
    query.process.planned = [THIRD]
    assert query.reader.partitions(SECOND, SECOND) == []
    assert query.calls() == ["join"], "nothing is planned for the last offset of the log"

    assert query.reader.latestOffset() == THIRD
    assert query.calls() == [("plan after", SECOND, None, TriggerKind.UNKNOWN), ("report", THIRD)]


@pytest.mark.parametrize(("start", "end"), [(INITIAL, FIRST), (FIRST, SECOND)], ids=["batch 0", "batch 1"])
def test_restart_after_failed_batch_replays_it_and_then_acknowledges_it(
    start: dict[str, Any], end: dict[str, Any]
) -> None:
    query = Query()
    query.process.planned = [THIRD]
    assert query.reader.partitions(end, end) == []
    assert query.reader.partitions(start, end) == ["task"]
    assert query.calls() == ["join", ("tasks", end)]

    assert query.reader.latestOffset() == THIRD
    assert query.calls() == [("plan after", end, None, TriggerKind.UNKNOWN), ("report", THIRD)]


def test_ended_query_leaves_its_group() -> None:
    query = Query()
    ended = {**SECOND, "ended": True}
    query.process.planned = [ended]
    assert query.reader.latestOffset() == ended
    assert query.reader.partitions(INITIAL, ended) == []
    query.calls()

    assert query.reader.latestOffset() == ended
    assert query.calls() == ["stop"]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, None),
        ({"minOffsetsPerTrigger": "5"}, None),
        ({"maxOffsetsPerTrigger": "7"}, 7),
        ({"maxOffsetsPerPartition": "7"}, (1 << 63) - 1),
        ({"maxBytesPerTrigger": "1000000"}, (1 << 63) - 1),
        ({"maxBytesPerTrigger": "1000000", "maxOffsetsPerTrigger": "7"}, 7),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_only_limits_of_user_apply_to_first_batch(options: dict[str, str], limit: int | None) -> None:
    """With Trigger.AvailableNow and Trigger.Once, it is the only batch."""
    query = Query(**options)
    query.process.planned = [FIRST]
    query.reader.latestOffset()
    assert query.calls()[1] == ("plan after", INITIAL, limit, TriggerKind.UNKNOWN)

    query.reader.latestOffset()
    assert query.calls()[0] == ("plan after", FIRST, query.limit, TriggerKind.REPEATED)


@pytest.mark.parametrize(("limit", "lag", "count"), [("7", 5, 1), ("7", 0, 0), (None, 5, 1)])
def test_offsets_that_a_limit_excludes_from_first_batch_are_logged(
    caplog: pytest.LogCaptureFixture, limit: str | None, lag: int, count: int
) -> None:
    query = Query() if limit is None else Query(maxOffsetsPerTrigger=limit)
    query.process.lag = lag
    query.process.planned = [FIRST, SECOND]
    with caplog.at_level(logging.INFO):
        query.reader.latestOffset()
        query.reader.latestOffset()

    assert caplog.text.count("event='first_batch_limited' unread_count=5") == count


@pytest.mark.parametrize(
    ("module", "joins"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", True),
        ("pyspark.sql.worker.plan_data_source_read", False),
        (None, False),
    ],
)
def test_only_planning_process_joins_in_constructor(
    monkeypatch: pytest.MonkeyPatch, module: str | None, joins: bool
) -> None:
    spec = None if module is None else SimpleNamespace(name=module)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    reader = LatestOffsetReader(QueryContext(options=SETTINGS, schema=StructType()))

    assert (reader._process is not None) == joins
    assert reader.__getstate__() == {}
