"""Topologies on Spark, without Spark: keys, packed ranges, tasks that are rebuilt in each batch, and checkpoints."""

from __future__ import annotations

import json
import pickle
import random
import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.configurations import fetch_settings
from helpers.operator_input import GivenRecords, Pages, Row, fetched, give, range_row

from zkconsumer.errors import ConfigurationError, StreamsError, TopologyError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.driver.failures import describe_error
from zkconsumer.spark.executor.decoders import PlannedRange
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.row_schema import RowSchema
from zkconsumer.spark.executor.task_reports import ReportAddress
from zkconsumer.spark.streams import task_batch
from zkconsumer.spark.streams.checkpoint import StoredApplication
from zkconsumer.spark.streams.cluster import ClusterState
from zkconsumer.spark.streams.dataframe import create_fetcher
from zkconsumer.spark.streams.fetching import FetchRange
from zkconsumer.spark.streams.markers import NO_OFFSET, decode_offsets
from zkconsumer.spark.streams.operator import TaskOperator
from zkconsumer.spark.streams.packing import KEYS_OPTION, RangePacker, choose_keys, encode_keys, from_blob, hash_of_int
from zkconsumer.spark.streams.pickling import check_picklable
from zkconsumer.spark.streams.plan import ApplicationPlan, TaskNumber, list_tasks, select_subtopologies
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.spark.streams.supervisor import ExceptionResponse, Supervisor
from zkconsumer.spark.streams.task_batch import BatchInput, SavedTask, run_batch
from zkconsumer.topology import (
    ApplicationConfig,
    ApplicationState,
    Lifecycle,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SourceRecord,
    TaskRuntime,
    Topology,
    serdes,
    stores,
)

CONFIG = ApplicationConfig(application_id="app", max_task_idle_ms=-1)


class Count(Processor):
    """Counts keys, and forwards totals by stream time and by wall-clock time."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.counts = context, context.get_state_store("counts")
        self.sent = context.remember("sent", 0)
        context.schedule(100, PunctuationType.STREAM_TIME, self.by_stream_time)
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.by_wall_clock)

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))

    def by_stream_time(self, now_ms: int) -> None:
        self.sent.value += 1
        self.context.forward(Record(b"stream %d" % self.sent.value, self.total(), now_ms))

    def by_wall_clock(self, now_ms: int) -> None:
        self.context.forward(Record(b"wall", self.total(), now_ms))

    def total(self) -> int:
        return sum(count for _, count in self.counts.all())


def counting() -> Topology:
    counts = stores.key_value("counts", serdes.BYTES, serdes.LONG, persistent=False)
    return (
        Topology()
        .add_source("source", ["a", "b"])
        .add_processor("count", Count, "source", stores=[counts])
        .add_sink("sink", "out", "count", value_serializer=serdes.LONG.serialize)
    )


def create_plan(topology: Topology, counts: dict[str, int], partitions: int = 2) -> ApplicationPlan:
    subtopologies = select_subtopologies(topology.resolve(counts), CONFIG, counts)
    return ApplicationPlan.create(subtopologies, CONFIG, counts, list_tasks(subtopologies), partitions, GivenRecords())


# ---- keys --------------------------------------------------------------------------------------------------


def test_hash_is_that_of_spark() -> None:
    # SELECT hash(i) of Spark 4.3
    assert [hash_of_int(number) for number in (0, 1, -1, 42)] == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize(("tasks", "partitions"), [(1, 1), (8, 8), (10, 4), (200, 7)])
def test_tasks_are_spread_over_partitions(tasks: int, partitions: int) -> None:
    keys = choose_keys(tasks, partitions)

    assert len(set(keys)) == tasks
    assert [hash_of_int(key) % partitions for key in keys] == [task % partitions for task in range(tasks)]
    assert choose_keys(tasks + 5, partitions)[:tasks] == keys


# ---- records -----------------------------------------------------------------------------------------------


def create_packer(keys: dict[str, list[int]]) -> RangePacker:
    packer = RangePacker()
    packer.open({KEYS_OPTION: encode_keys(keys)})
    return packer


@pytest.mark.parametrize("leader", [None, (3, Endpoint("b", 2))])
def test_range_is_packed_into_one_row(leader: tuple[int, Endpoint] | None) -> None:
    packer, partition = create_packer({"a": [7, 9]}), TopicPartition("a", 1)
    brokers, reports = (Endpoint("c", 3),), ReportAddress("driver", 4, b"key")
    leaders = {} if leader is None else {partition: leader}
    fetch = FetchTask(
        {partition: (5, 8)}, leaders, brokers, fetch_settings(), 2, RowSchema.from_columns(()), True, True, 1.0, reports
    )

    row = packer.decode_range(PlannedRange(partition, 8, 3, 1_000, fetch))
    assert row is not None
    [values] = row.to_pylist()
    found = pickle.loads(values.pop("blob"))
    assert values == {"task": 9, "topic": "a", "partition": 1, "first_offset": 1_000, "lag": 3, "until": 8}
    assert found == FetchRange(5, 8, leader, brokers, reports)


def test_empty_range_is_packed_without_task() -> None:
    row = create_packer({"a": [7]}).decode_range(PlannedRange(TopicPartition("a", 0), 8, 3, 1_000))
    assert row is not None
    assert row.to_pylist() == [
        {"task": 7, "topic": "a", "partition": 0, "first_offset": 1_000, "lag": 3, "blob": None, "until": 8}
    ]


def test_range_of_unknown_partition_fails() -> None:
    with pytest.raises(StreamsError, match="topic 'a' has new partition 2, which the running query does not read"):
        create_packer({"a": [7, 9]}).decode_range(PlannedRange(TopicPartition("a", 2), 8, 3, 1_000))


def test_ranges_of_removed_topics_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    planned = PlannedRange(TopicPartition("removed", 0), 7, 3, 1_000)
    assert create_packer({"a": [7]}).decode_range(planned) is None
    assert "event='removed_topic_skipped' topic='removed' partition=0 offset=7" in caplog.text


# ---- tasks -------------------------------------------------------------------------------------------------


def outputs(blob: bytes | None) -> list[Any]:
    if blob is None:
        return []
    return [(row["key"], row["value"], row["timestamp"]) for row in from_blob(blob).to_pylist()]


@pytest.mark.parametrize("run_number", range(5))
def test_task_that_is_rebuilt_in_each_batch_equals_one_that_is_not(run_number: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    plan = create_plan(counting(), {"a": 1, "b": 1})
    [number] = plan.tasks.values()
    clock = [0]
    runtime = TaskRuntime(clock=lambda: clock[0], pages=lambda _: None, commit=int, rollback=int)
    whole = plan.subtopologies[0].task(0, CONFIG, runtime)
    state, saved, found, expected = Pages(), None, [], []
    next_offset: Counter[str] = Counter()
    for batch_number in range(8):
        batch = BatchInput()
        if batch_number == 0 or rng.random() < 0.6:
            clock[0] += rng.choice((1, 50, 100, 1_000))
            batch.tick_ms = clock[0]
        if batch_number == 0:
            whole.initialize()
        for topic in ("a", "b"):
            chunks = []
            for _ in range(rng.randrange(3)):
                first = next_offset[topic]
                next_offset[topic] += rng.choice((1, 5, 20))
                chunk = fetched(topic, 0, range(first, next_offset[topic]))
                chunks.append(chunk)
                records = [
                    SourceRecord(topic, 0, offset, offset * 10, b"k%d" % (offset % 3), b"v")
                    for offset in chunk.column("offset").to_pylist()
                ]
                whole.add_records(TopicPartition(topic, 0), records)
            if chunks:
                batch.ranges[TopicPartition(topic, 0)] = give(*chunks)
        whole.run()
        if batch.tick_ms is not None:
            whole.punctuate_wall_clock()
        expected += [(one.key, one.value, one.timestamp) for one in whole.take_output().records()]

        result = run_batch(plan, number, state, saved, batch)
        saved = result.saved
        found += outputs(result.output.blob)

    assert found == expected
    assert next_offset["a"] < 40 or any(key == b"stream 3" for key, *_ in found)
    assert saved is not None
    assert saved.now_ms == clock[0]


class Batches:
    """Runs the batches of a task with the sources ``a`` and ``b``."""

    def __init__(self, config: ApplicationConfig, max_records: int | None = None, max_bytes: int | None = None) -> None:
        counts = {"a": 1, "b": 1}
        subtopologies = select_subtopologies(counting().resolve(counts), config, counts)
        plan = ApplicationPlan.create(subtopologies, config, counts, list_tasks(subtopologies), 1, GivenRecords())
        self._plan = replace(plan, max_records=max_records, max_bytes=max_bytes)
        [self._number] = self._plan.tasks.values()
        self._state = Pages()
        self._saved: SavedTask | None = None

    def run(self, tick_ms: int, *, lags: dict[str, int], **offsets: Sequence[int]) -> tuple[list[int], int]:
        """Return the timestamps of the records that were processed, and the number of enforced ones."""
        batch = BatchInput(tick_ms=tick_ms)
        for topic, of_topic in offsets.items():
            batch.ranges[TopicPartition(topic, 0)] = give(fetched(topic, 0, of_topic))
        for topic, lag in lags.items():
            batch.lags[TopicPartition(topic, 0)], batch.ends[TopicPartition(topic, 0)] = lag, 0
        result = run_batch(self._plan, self._number, self._state, self._saved, batch)
        self._saved = result.saved
        times = [time for key, _, time in outputs(result.output.blob) if key.startswith(b"k")]
        return times, result.metrics.get("enforced", 0)


def test_records_wait_for_a_partition_with_a_lag() -> None:
    batches = Batches(ApplicationConfig(application_id="app"))

    assert batches.run(1, lags={"a": 5, "b": 0}, a=[1], b=[2, 3, 4]) == ([10], 0)
    assert batches.run(2, lags={}) == ([], 0), "the lags of the last batch are known"
    assert batches.run(3, lags={"a": 0, "b": 0}, a=[3]) == ([20, 30, 30, 40], 2)


def test_records_wait_for_a_partition_of_which_nothing_is_known() -> None:
    batches = Batches(ApplicationConfig(application_id="app"))

    assert batches.run(1, lags={"b": 0}, b=[2]) == ([], 0)
    assert batches.run(2, lags={"a": 0, "b": 0}) == ([20], 1)


def test_records_wait_for_the_idle_time() -> None:
    batches = Batches(ApplicationConfig(application_id="app", max_task_idle_ms=100))

    assert batches.run(1_000, lags={"a": 0, "b": 0}, b=[2, 3]) == ([], 0)
    assert batches.run(1_099, lags={}) == ([], 0)
    assert batches.run(1_100, lags={}) == ([20, 30], 2)


def test_number_of_waiting_records_is_limited() -> None:
    batches = Batches(ApplicationConfig(application_id="app"), max_records=4)

    assert batches.run(1, lags={"a": 1, "b": 0}, b=range(10)) == ([0, 10, 20, 30, 40, 50], 6)
    assert batches.run(2, lags={"a": 1, "b": 0}, b=[10, 11]) == ([60, 70], 2)
    assert batches.run(3, lags={"a": 0, "b": 0}, a=[8]) == ([80, 80, 90, 100, 110], 3)


@pytest.mark.parametrize("max_bytes", [0, 1, 12, 13, 1_000])
def test_size_of_waiting_records_is_limited(max_bytes: int) -> None:
    batches = Batches(ApplicationConfig(application_id="app"), max_bytes=max_bytes)
    waiting = min(10, max_bytes // 3)  # a record has a key of two bytes and a value of one

    processed, enforced = batches.run(1, lags={"a": 1, "b": 0}, b=range(10))

    assert (len(processed), enforced) == (10 - waiting, 10 - waiting)
    assert batches.run(2, lags={"a": 1, "b": 0}) == ([], 0)
    assert batches.run(3, lags={"a": 0, "b": 0})[0] == [10 * offset for offset in range(10 - waiting, 10)]


def test_batch_planned_with_higher_limit_is_processed_in_parts() -> None:
    batches = Batches(CONFIG, max_records=4)

    assert batches.run(1, lags={}, a=range(20)) == ([10 * offset for offset in range(8)], 0)
    assert batches.run(2, lags={}, b=[8, 9])[0] == [80, 80, 90, 90, 100, 110, 120, 130]
    assert batches.run(3, lags={})[0] == [140, 150, 160, 170, 180, 190]
    assert batches.run(4, lags={}) == ([], 0)


def test_output_that_is_too_large_names_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_batch, "_MAX_OUTPUT_BYTES", 1_000)
    batches = Batches(CONFIG)
    with pytest.raises(StreamsError, match=r"task 0_0: .* at most 1000 bytes, got \d+ bytes in 110 records; reduce"):
        batches.run(1, lags={}, a=range(100))


def test_committed_offset_is_the_end_of_the_range() -> None:
    """The range can end with a transaction marker, or contain no records at all."""
    plan, state = create_plan(counting(), {"a": 1, "b": 1}), Pages()
    [(key, number)] = plan.tasks.items()

    def run(saved: SavedTask | None, *rows: Row) -> tuple[SavedTask, dict[TopicPartition, int]]:
        result = run_batch(plan, number, state, saved, BatchInput.from_rows(rows))
        return result.saved, decode_offsets(result.output.offsets)

    def range_to(until: int, topic: str = "a", records: Any = None) -> Row:
        return range_row(key, TopicPartition(topic, 0), records, until=until, planned_ms=1_000)

    first, other = TopicPartition("a", 0), {TopicPartition("b", 0): 7}
    tick = Row(key, None, None, 5)

    saved, offsets = run(None, tick)
    assert offsets == {first: NO_OFFSET, TopicPartition("b", 0): NO_OFFSET}
    saved, offsets = run(saved, tick, range_to(50), range_to(7, "b"))
    assert offsets == {first: 50, **other}
    saved, offsets = run(saved, range_to(63, records=give(fetched("a", 0, [60, 61]))))
    assert offsets == {first: 63, **other}
    saved, offsets = run(saved, tick)
    assert offsets == {first: 63, **other}
    assert run(saved, range_to(70))[1] == {first: 70, **other}


class Ticking(Processor):
    """Forwards a record on each tick."""

    def init(self, context: ProcessorContext) -> None:
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record(b"k", b"v", now)))

    def process(self, record: Record) -> None:
        """Ignore the record."""


def test_output_before_first_range_has_no_offset() -> None:
    topology = Topology().add_source("one", "a").add_source("two", "b").add_processor("p", Ticking, "one", "two")
    plan, state = create_plan(topology.add_sink("out", "out", "p"), {"a": 1, "b": 1}), Pages()
    [(key, number)] = plan.tasks.items()
    saved, found = None, []
    for tick_ms, ends in ((10, {}), (20, {}), (30, {"b": 7}), (40, {}), (50, {"a": 50})):
        rows = [
            range_row(key, TopicPartition(topic, 0), None, until=until, planned_ms=1_000)
            for topic, until in ends.items()
        ]
        batch = BatchInput.from_rows([Row(key, None, None, tick_ms), *rows])
        saved, output, _ = run_batch(plan, number, state, saved, batch)
        found.append((output.blob is not None, decode_offsets(output.offsets)))

    first, other = TopicPartition("a", 0), TopicPartition("b", 0)
    unknown = {first: NO_OFFSET, other: NO_OFFSET}
    assert found == [
        (False, unknown),
        *[(True, offsets) for offsets in (unknown, {other: 7}, {other: 7}, {first: 50, other: 7})],
    ]


def test_store_has_pages_although_it_is_not_persistent() -> None:
    plan = create_plan(counting(), {"a": 1, "b": 1})
    [(key, number)] = plan.tasks.items()
    state = Pages()

    rows = [Row(key, None, None, 5), range_row(key, TopicPartition("a", 0), give(fetched("a", 0, [0])))]
    saved = run_batch(plan, number, state, None, BatchInput.from_rows(rows)).saved

    assert state
    assert json.loads(saved.stores) == [0]


@pytest.mark.parametrize(("page_bytes", "planned"), [(None, 65_536), (16_384, 16_384)])
def test_plan_sets_page_size_unless_user_does(page_bytes: int | None, planned: int) -> None:
    config = replace(CONFIG, page_bytes=page_bytes)
    subtopologies = select_subtopologies(counting().resolve({"a": 1, "b": 1}), config, {"a": 1, "b": 1})

    plan = ApplicationPlan.create(subtopologies, config, {"a": 1, "b": 1}, list_tasks(subtopologies), 2, GivenRecords())

    assert plan.config.page_limits.page_bytes == planned


class ForwardTwice(Processor):
    """Forwards two records at each tick."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.forward)

    def process(self, record: Record) -> None:
        del record

    def forward(self, now_ms: int) -> None:
        for key in (b"one", b"two"):
            self.context.forward(Record(key, b"v", now_ms))


@pytest.mark.parametrize(("sink", "looped"), [("out", None), ("b", 2), ("app-mid", 2)])
def test_records_written_to_own_source_topics_are_counted(sink: str, looped: int | None) -> None:
    topology = Topology().add_source("source", "a").add_processor("twice", ForwardTwice, "source")
    topology.add_sink("sink", sink.removeprefix("app-"), "twice").add_source("second", "b")
    if sink == "app-mid":
        topology.add_internal_topic("mid").add_source("third", "mid")
    plan = create_plan(topology, {"a": 1, "b": 1, "app-mid": 1})
    [number] = [task for task in plan.tasks.values() if task.subtopology == 0]

    first = run_batch(plan, number, Pages(), None, BatchInput(tick_ms=1))
    second = run_batch(plan, number, Pages(), first.saved, BatchInput(tick_ms=2))

    assert len(outputs(second.output.blob)) == 2
    assert (first.metrics.get("looped"), second.metrics.get("looped")) == (None, looped)


def test_failed_task_is_closed() -> None:
    closed = []

    class Failing(Processor):
        def process(self, record: Record) -> None:
            raise ValueError("planned")

        def close(self) -> None:
            closed.append(1)

    topology = Topology().add_source("source", "a").add_processor("fail", Failing, "source")
    plan = create_plan(topology, {"a": 1})
    [(key, number)] = plan.tasks.items()
    row = range_row(key, TopicPartition("a", 0), give(fetched("a", 0, [0])))

    with pytest.raises(
        StreamsError, match="task 0_0, node 'fail', topic a, partition 0, offset 0: ValueError: planned"
    ):
        run_batch(plan, number, Pages(), None, BatchInput.from_rows([row]))
    assert closed == [1]


# ---- plans and checkpoints ---------------------------------------------------------------------------------


def test_starting_offsets_follow_sources() -> None:
    topology = (
        Topology()
        .add_source("new", "a", offset_reset="latest")
        .add_source("old", "b")
        .add_processor("count", Count, "new", "old", stores=[stores.key_value("counts")])
    )
    plan = create_plan(topology, {"a": 2, "b": 1})

    assert plan.starting_offsets == {"a": {"0": -1, "1": -1}, "b": {"0": -2}}
    assert {topic: len(keys) for topic, keys in plan.keys_by_topic.items()} == {"a": 2, "b": 1}
    assert plan.keys_by_topic["a"][0] == plan.keys_by_topic["b"][0]


def test_topologies_that_cannot_run_are_rejected() -> None:
    topology = counting()
    with pytest.raises(TopologyError, match="source topics do not exist: b"):
        create_plan(topology, {"a": 1})
    repartitioned = topology.add_sink("again", "again", "count").add_internal_topic("again").add_source("next", "again")
    with pytest.raises(StreamsError, match="internal topic 'app-again' does not exist; create it: .*app-again"):
        create_plan(repartitioned, {"a": 2, "b": 1})
    plan = create_plan(repartitioned, {"a": 2, "b": 1, "app-again": 2})
    assert sorted(plan.keys_by_topic) == ["a", "app-again", "b"]
    with_global_store = counting().add_global_store(stores.key_value("g", logging=False), "gs", "g", "gp", Count)
    assert "g" not in create_plan(with_global_store, {"a": 1, "b": 1, "g": 1}).keys_by_topic


def test_checkpoint_remembers_application() -> None:
    one = counting().resolve({"a": 2, "b": 2}).subtopologies
    stored = StoredApplication.create("app", one, 16)

    assert stored.partitions == 2
    assert StoredApplication.from_json(stored.to_json(), "here").continue_with("app", one, "here") == stored
    with pytest.raises(StreamsError, match="here belongs to application 'app', but application_id is 'other'"):
        stored.continue_with("other", one, "here")
    wider = counting().resolve({"a": 3, "b": 2}).subtopologies
    with pytest.raises(StreamsError, match="sub-topology 0 increased from 2 to 3, and its stores contain keys"):
        stored.continue_with("app", wider, "here")
    with pytest.raises(StreamsError, match="sub-topology 0 decreased from 2 to 1; use a new checkpoint"):
        stored.continue_with("app", counting().resolve({"a": 1, "b": 1}).subtopologies, "here")
    for text in ("{}", "[]", "x", stored.to_json()[:-9]):
        with pytest.raises(StreamsError, match="here is malformed"):
            StoredApplication.from_json(text, "here")
    with pytest.raises(StreamsError, match="here must have format 1, got 2; upgrade zkconsumer"):
        StoredApplication.from_json(stored.to_json().replace('"format": 1', '"format": 2'), "here")


def test_added_partitions_of_stateless_subtopology_are_added_tasks() -> None:
    def copying(count: int) -> Any:
        topology = Topology().add_source("a", "a").add_sink("x", "x", "a").add_source("b", "b").add_sink("y", "y", "b")
        return topology.resolve({"a": count, "b": 1}).subtopologies

    stored = StoredApplication.create("app", copying(1), 4)
    wider = stored.continue_with("app", copying(3), "here")

    assert wider.tasks == (TaskNumber(0, 0), TaskNumber(1, 0), TaskNumber(0, 1), TaskNumber(0, 2))
    assert wider.partitions == stored.partitions == 2


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="trigger_ms must be a positive integer or timedelta, got 0"):
        QuerySettings(trigger_ms=0)


def test_saved_task_has_fields_of_the_state() -> None:
    from zkconsumer.spark.streams import operator

    assert [field.name for field in operator._SAVED.fields] == list(SavedTask._fields)


def test_error_of_the_planning_process_is_described() -> None:
    text = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "data_loss.py", line 35, in raise_or_log\n'
        "zkconsumer.spark.data_loss.DataLossError: topic 't' was deleted\n SQLSTATE: 38000\n\tat org.apache.spark\n"
    )
    expected = "zkconsumer.spark.data_loss.DataLossError: topic 't' was deleted"
    assert describe_error(ValueError(text), "/data/c") == expected
    assert describe_error(ValueError("first\nsecond"), "/data/c") == "first"
    assert describe_error(ValueError(), "/data/c") == "ValueError()"


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nEOFError\n', "EOFError"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3\n    g()\nKeyError: 1\n\nDuring handling of the '
            "above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
            '  File "b.py", line 4, in h\nBrokenPipeError: [Errno 32] Broken pipe\n\tat org.apache.spark.Foo\n',
            "BrokenPipeError: [Errno 32] Broken pipe",
        ),
    ],
)
def test_worker_error_is_last_line_of_its_traceback(trace: str, expected: str) -> None:
    text = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "

    assert describe_error(ValueError(text + trace), "/data/c") == text + expected


class ClosedState:
    """The state of an operator whose server closed the connection."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def exists(self) -> bool:
        raise self._error


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError(32, "Broken pipe"), ConnectionResetError()])
def test_task_whose_state_server_closed_the_connection_is_named(error: Exception) -> None:
    plan: Any = SimpleNamespace(tasks={4: TaskNumber(0, 3)})
    operator = TaskOperator(plan)
    operator._saved, operator._done = ClosedState(error), set()

    with pytest.raises(StreamsError, match=f"state of task 0_3 could not be read or written.*{type(error).__name__}"):
        list(operator.handleInputRows((4,), iter(()), None))


@pytest.mark.parametrize(
    "text",
    [
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030",
        "[STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.OFFSET_LOG] Failed to write a streaming query checkpoint log entry.",
        "java.io.IOException: No space left on device",
        "org.apache.hadoop.security.AccessControlException: Permission denied: user=spark, access=WRITE",
    ],
)
def test_checkpoint_is_named_in_io_errors(text: str) -> None:
    error = ValueError(f"{text}\n=== Streaming Query ===")
    expected = f"{text}; check that checkpoint /data/c is on storage that the driver and all workers can read and write"
    assert describe_error(error, "/data/c").startswith(expected)


@pytest.mark.parametrize(
    ("trace", "is_file_error"),
    [
        ("org.apache.hadoop.security.AccessControlException: Permission denied\n\tat org.apache", True),
        ("java.io.FileNotFoundException: /data/c/state (Read-only file system)\n\tat java.io", True),
        ("java.io.IOException: Connection reset by peer\n\tat java.io", False),
    ],
)
def test_checkpoint_is_named_after_root_cause_in_file_system(trace: str, is_file_error: bool) -> None:
    """The message of a Spark exception does not contain the classes of its causes."""
    cause: Any = ValueError()
    cause._stackTrace = trace
    error: Any = ValueError("Job aborted")
    error._stackTrace, error._cause = "org.apache.spark.SparkException: Job aborted\n\tat org.apache", cause
    assert ("checkpoint /data/c" in describe_error(error, "/data/c")) is is_file_error


def test_part_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def create() -> Count:
        with lock:
            return Count()

    subtopologies = (
        Topology().add_source("in", "t").add_processor("locked", create, "in").resolve({"t": 1}).subtopologies
    )
    with pytest.raises(
        TopologyError, match="processor 'locked' cannot be pickled for the workers: cannot pickle '_thread.lock'"
    ):
        check_picklable(subtopologies, CONFIG)


class FailingQuery:
    """A query that fails at each start, after it has processed records at the starts with these numbers."""

    def __init__(self, processed: set[int]) -> None:
        self._processed, self._starts = processed, 0

    def start(self) -> None:
        self._starts += 1

    def wait(self, _timeout_s: float) -> bool:
        return True

    def take_reports(self) -> list[dict[str, Any]]:
        count = int(self._starts in self._processed)
        metrics = {"zkconsumer_tasks": {"metrics": [json.dumps({"0_0": {"processed": count}})]}}
        return [{"id": "query", "batchId": self._starts, "observedMetrics": metrics}]

    def finish_batch(self, _report: dict[str, Any]) -> None:
        pass

    def find_new_topics(self, **_: bool) -> list[str]:
        return []

    def exception(self) -> Exception:
        return ValueError("planned")

    def describe_running_tasks(self) -> str:
        return ""


class Pauses(threading.Event):
    """An event whose waits do not last."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return False


def test_pauses_between_restarts_grow_until_records_are_processed() -> None:
    query: Any = FailingQuery({1, 10})
    lifecycle = Lifecycle()
    supervisor = Supervisor(query, "app", lifecycle, str, trigger_s=1.0, max_restarts=9)
    supervisor.handler = lambda _error: ExceptionResponse.REPLACE_QUERY
    supervisor._stop = pauses = Pauses()
    lifecycle.set_state(ApplicationState.REBALANCING)
    assert str(supervisor._supervise()) == "planned"
    assert pauses.seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60] * 2


def test_new_sink_partitions_restart_the_query() -> None:
    counts = {"in": 1, "out": 2}
    builder = Topology()
    builder.add_source("source", "in")
    builder.add_sink("sink", "out", "source")
    query = TopologyQuery(builder, CONFIG, None, "/data/c", {}, QuerySettings())
    query._cluster = cast(
        "Any",
        SimpleNamespace(
            describe=lambda: SimpleNamespace(partition_counts=dict(counts)),
            config=SimpleNamespace(metadata_max_age_s=300.0),
        ),
    )
    query._watched_counts = dict(counts)

    assert query.find_new_topics(is_due=True) == []
    counts["out"] = 3
    assert query.find_new_topics(is_due=True) == ["out"]


def test_operator_fetches_with_the_properties_of_the_application() -> None:
    properties = {
        "bootstrap.servers": "a:1",
        "corrupt.record.policy": "skip",
        "failOnDataLoss": "false",
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": "4321",
    }
    template = create_fetcher(properties, ["t"], ClusterState({}, [Endpoint("b", 2)])).template

    assert (template.ranges, template.brokers, template.row_schema.policy) == ({}, (Endpoint("b", 2),), "skip")
    assert template.row_schema.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert not template.fails_on_data_loss
    assert (template.settings.read_committed, template.settings.fetch_message_max_bytes) == (True, 4321)
    assert template.unavailable_timeout_s == 300
