"""Streams and tables of ``StreamsBuilder``. The oracle compares random pipelines with Kafka Streams."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import cloudpickle

from zkconsumer.errors import StreamsError, TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SourceRecord,
    StreamTask,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
)
from zkconsumer.topology.dsl import (
    Emit,
    KStream,
    Materialized,
    Optimization,
    StreamsBuilder,
    UntilTimeLimit,
    UntilWindowCloses,
    session_windowed,
    time_windowed,
)
from zkconsumer.topology.dsl.change_serde import create_change_serde
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.murmur2 import murmur2
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windowed_serdes import PartitionByInnerKey
from zkconsumer.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

Event = tuple[str, Any, Any, int]
Run = Callable[..., list[tuple[Any, Any]]]


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder()


@pytest.fixture
def run(builder: StreamsBuilder) -> Iterator[Run]:
    """Build, feed records (topic, key, value, timestamp), and return the keys and values of topic ``out``."""
    drivers: list[TopologyTestDriver] = []

    def feed(*events: Event, cache_bytes: int = 0, output: Any = serdes.STRING) -> list[tuple[Any, Any]]:
        config = ApplicationConfig(
            key_serde=serdes.STRING, value_serde=serdes.STRING, statestore_cache_max_bytes=cache_bytes
        )
        driver = TopologyTestDriver(pickle.loads(cloudpickle.dumps(builder.build())), config)
        drivers.append(driver)
        for topic, key, value, timestamp in events:
            driver.create_input_topic(topic).pipe_input(key, value, timestamp)
        return driver.create_output_topic("out", value_deserializer=output.deserialize).read_key_values()

    yield feed
    for driver in drivers:
        driver.close()


def upper(value: str) -> str:
    return value.upper()


def starts_with_a(_key: Any, value: str) -> bool:
    return value.startswith("a")


def first_letter(_key: Any, value: str) -> str:
    return value[:1]


def join(one: Any, other: Any) -> str:
    return f"{one}+{other}"


def show_window(key: Any, _value: Any) -> str:
    return f"{key.key}@{key.start}-{key.end}"


class ShowPlace(Processor):
    """Adds the place of the source record to values."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        place = f"{metadata.topic}-{metadata.partition}-{metadata.offset}"
        self.context.forward(record.with_value(f"{record.value} at {place}"))


class Fail(Processor):
    def process(self, record: Record) -> None:
        raise ValueError(record.value)


def append(_key: Any, value: str, total: str) -> str:
    return total + value


# ---- streams ----


def test_word_count_has_names_of_kafka_streams(builder: StreamsBuilder) -> None:
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(first_letter).count(store="counts").to_stream().to("out")

    nodes = builder.build().nodes
    assert list(nodes) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-FLATMAPVALUES-0000000001",
        "KSTREAM-KEY-SELECT-0000000002",
        "counts-repartition-filter",
        "counts-repartition-sink",
        "counts-repartition-source",
        "KSTREAM-AGGREGATE-0000000003",
        "KTABLE-TOSTREAM-0000000007",
        "KSTREAM-SINK-0000000008",
    ]


def test_steps_without_state(builder: StreamsBuilder, run: Run) -> None:
    stream = builder.stream("in").filter(starts_with_a).map_values(upper).map_values(join, with_key=True)
    stream.select_key(first_letter).to("out")
    builder.stream("in").filter_not(starts_with_a).map(lambda key, value: (value, key)).to("out")
    assert run(("in", "k", "ab", 0), ("in", "k", "x", 0)) == [("k", "k+AB"), ("x", "k")]


def test_split_sends_each_record_to_one_branch(builder: StreamsBuilder, run: Run) -> None:
    branches = builder.stream("in").split(name="by-").branch(starts_with_a, name="a").branch(lambda k, v: v == "b")
    streams = branches.default_branch(name="rest")
    assert sorted(streams) == ["by-2", "by-a", "by-rest"]
    streams["by-a"].map_values(upper).to("out")
    streams["by-rest"].to("out")
    assert run(("in", "k", "a", 0), ("in", "k", "b", 0), ("in", "k", "c", 0)) == [("k", "A"), ("k", "c")]
    with pytest.raises(TopologyError, match="a branch was added after default_branch"):
        branches.branch(starts_with_a)


def test_chain_replaces_stream_of_branch(builder: StreamsBuilder) -> None:
    chained = builder.stream("in").split().branch(starts_with_a, chain=lambda stream: stream.map_values(upper))
    streams = chained.default_branch(chain=lambda stream: stream.to("rest"))
    [only] = streams.values()
    assert isinstance(only, KStream)
    assert only.name.startswith("KSTREAM-MAPVALUES-")


def test_processed_values_are_not_repartitioned(builder: StreamsBuilder, run: Run) -> None:
    class Praise(Processor):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            self.context.forward(record.with_value("good"))

    builder.stream("in").process_values(Praise).group_by_key().reduce(join).to_stream().to("out")
    assert run(("in", "k", "x", 0)) == [("k", "good")]
    assert builder.build().resolve({"in": 1}).internal_topics == {}


def test_declarations_have_no_addresses(builder: StreamsBuilder) -> None:
    """A checkpoint compares them after a restart."""
    grouped = builder.table("in", value_serde=serdes.STRING).group_by(lambda key, value: (value, value))
    grouped.count()
    windows = builder.stream("clicks").group_by_key().windowed_by(TimeWindows(size_ms=10)).count()
    windows.suppress(UntilWindowCloses()).to_stream().to("out")
    for one in builder.build().resolve({"in": 1, "clicks": 1}).subtopologies.values():
        assert " at 0x" not in one.fingerprint


def test_declaration_changes_with_arguments_of_steps() -> None:
    def declare(size_ms: int, mapper: Callable[[Any], Any]) -> str:
        builder = StreamsBuilder()
        windows = builder.stream("in").map_values(mapper).group_by_key().windowed_by(TimeWindows(size_ms=size_ms))
        windows.count().to_stream().to("out")
        return builder.build().resolve({"in": 1}).subtopologies[0].fingerprint

    assert declare(10, str.upper) == declare(10, str.upper)
    assert len({declare(10, str.upper), declare(20, str.upper), declare(10, str.lower)}) == 3


@pytest.mark.parametrize("kind", ["merged sources", "reused repartition topic", "suppressed", "cogrouped"])
def test_joined_topics_must_have_equal_partition_counts(builder: StreamsBuilder, kind: str) -> None:
    first = builder.stream("in")
    if kind == "merged sources":
        builder.stream("in").join(builder.table("t"), join).to("out")
    elif kind == "reused repartition topic":
        rekeyed = first.select_key(first_letter)
        rekeyed.join(builder.table("t0"), join).to("out")
        rekeyed.join(builder.table("t"), join).to("out")
    elif kind == "suppressed":
        builder.table("in2").suppress(UntilTimeLimit(wait_ms=5)).join(builder.table("t"), join).to_stream().to("out")
    else:
        cogrouped = first.group_by_key().cogroup(append).aggregate(str)
        cogrouped.join(builder.table("t"), join).to_stream().to("out")
    counts = {"in": 2, "in2": 2, "t0": 2, "t": 5}
    with pytest.raises(TopologyError, match="partition"):
        builder.build().resolve(counts).check_partition_counts(counts)


def test_topic_read_by_its_writer_gets_partition_count(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    counts = stream.to_table().group_by(lambda key, value: (value, key)).count()
    stream.join(counts, lambda value, count: f"{value}{count}").to("out")
    stream.group_by(lambda _, value: value).count(store="values")

    topics = builder.build().resolve({"in": 3}).internal_topics

    assert set(topics.values()) == {3}
    assert "values-repartition" in topics


def test_overlapping_joins_have_one_partition_count(builder: StreamsBuilder) -> None:
    rekeyed, other = builder.stream("in").select_key(first_letter), builder.stream("other").select_key(first_letter)
    windows = JoinWindows(before_ms=1, after_ms=1)
    rekeyed.join(other, join, windows=windows).to("out")
    rekeyed.join(builder.table("t"), join).to("out")
    counts = builder.build().resolve({"in": 1, "other": 4, "t": 3}).internal_topics
    assert set(counts.values()) == {3}


def test_topologies_can_be_built_again(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").select_key(first_letter)
    stream.group_by_key().count(store="one")
    stream.group_by_key().count(store="two")
    assert builder.build(Optimization.ALL).describe() == builder.build(Optimization.ALL).describe()


def test_processor_uses_store_of_builder(builder: StreamsBuilder, run: Run) -> None:
    class Last(Processor):
        def init(self, context: Any) -> None:
            self.context, self.store = context, context.get_state_store("last")

        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(join(self.store.get(record.key), record.value)))
            self.store.put(record.key, record.value)

    builder.add_state_store(stores.key_value("last", serdes.STRING, serdes.STRING))
    builder.stream("in").process(Last, "last", name="last-of-key").to("out")
    assert run(("in", "k", "1", 0), ("in", "k", "2", 0)) == [("k", "None+1"), ("k", "1+2")]


def test_records_are_repartitioned_before_aggregation(builder: StreamsBuilder, run: Run) -> None:
    grouped = builder.stream("in").group_by(first_letter, name="letters")
    grouped.reduce(join, store="last").to_stream().to("out")
    assert builder.build().resolve({"in": 4}).internal_topics == {"letters-repartition": 4}
    assert run(("in", "x", "ab", 0), ("in", "y", "ac", 0)) == [("a", "ab"), ("a", "ab+ac")]


# ---- tables ----


def test_caches_forward_last_change_of_commit(builder: StreamsBuilder, run: Run) -> None:
    builder.stream("in").flat_map_values(str.split).group_by_key().count(store="c").to_stream().to("out")
    events = [("in", "k", "a b c", 0), ("in", "k", "d", 0)]
    assert run(*events, output=serdes.LONG) == [("k", 1), ("k", 2), ("k", 3), ("k", 4)]
    assert run(*events, cache_bytes=1_000_000, output=serdes.LONG) == [("k", 3), ("k", 4)]


def test_table_filter_deletes_rejected_keys(builder: StreamsBuilder, run: Run) -> None:
    builder.table("in", store="t").filter(starts_with_a).map_values(upper, store="upper").to_stream().to("out")
    events = [("in", "k", "a", 0), ("in", "k", "b", 0), ("in", "k", "c", 0)]
    assert run(*events) == [("k", "A"), ("k", None)]


def test_grouped_table_subtracts_old_values(builder: StreamsBuilder, run: Run) -> None:
    grouped = builder.table("in").group_by(lambda key, value: (value[:1], value))
    grouped.aggregate(str, append, lambda _key, value, total: total.replace(value, "")).to_stream().to("out")
    events = [("in", "k1", "ab", 0), ("in", "k2", "ac", 0), ("in", "k1", "x", 0), ("in", "k2", None, 0)]
    assert run(*events) == [("a", "ab"), ("a", "abac"), ("a", "ac"), ("x", "x"), ("a", "")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("k", "1+2"), ("k", None)]),
        ("left_join", [("k", "1+None"), ("k", "1+2"), ("k", None)]),
        ("outer_join", [("k", "1+None"), ("k", "1+2"), ("k", "None+2")]),
    ],
)
def test_table_joins(builder: StreamsBuilder, run: Run, kind: str, expected: list[Any]) -> None:
    joined = getattr(builder.table("left"), kind)(builder.table("right"), join)
    joined.to_stream().to("out")
    assert run(("left", "k", "1", 0), ("right", "k", "2", 0), ("left", "k", None, 0)) == expected


def test_stream_joins_table_and_global_table(builder: StreamsBuilder, run: Run) -> None:
    stream = builder.stream("in")
    stream.join(builder.table("table"), join).to("out")
    stream.left_join(builder.global_table("global"), join, key=lambda key, value: value).to("out")
    events = [("global", "v", "g", 0), ("in", "k", "v", 0), ("table", "k", "t", 0), ("in", "k", "w", 0)]
    assert run(*events) == [("k", "v+g"), ("k", "w+t"), ("k", "w+None")]


def test_versioned_table_joins_by_time(builder: StreamsBuilder, run: Run) -> None:
    table = builder.table("table", store=Materialized("versions", history_ms=1_000))
    builder.stream("in").join(table, join, grace_ms=100).to("out")
    events = [("in", "k", "early", 10), ("table", "k", "1", 5), ("table", "k", "2", 50), ("in", "k", "late", 200)]
    assert run(*events) == [("k", "early+1")], "the first record has waited for the change at 5"


def test_suppress_forwards_only_final_windows(builder: StreamsBuilder, run: Run) -> None:
    windows = TimeWindows(size_ms=10, grace_ms=5)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.suppress(UntilWindowCloses()).to_stream(show_window).to("out")
    events = [("in", "k", "", time) for time in (1, 2, 12, 9, 16, 3)]
    assert run(*events, output=serdes.LONG) == [("k@0-10", 3)]


def test_full_suppress_buffer(builder: StreamsBuilder, run: Run) -> None:
    builder.table("in").suppress(UntilTimeLimit(wait_ms=1_000, max_records=1)).to_stream().to("out")
    assert run(("in", "a", "1", 0), ("in", "a", "2", 5), ("in", "b", "1", 6)) == [("a", "2")]
    builder.table("in2").suppress(UntilTimeLimit(wait_ms=1_000, max_records=1, emits_early=False)).to_stream().to("out")
    with pytest.raises(StreamsError, match=r"exceeded max_records \(limit: 1, actual: 2\); increase max_records"):
        run(("in2", "a", "1", 0), ("in2", "b", "1", 6))


def test_held_back_records_keep_place_of_their_source(builder: StreamsBuilder, run: Run) -> None:
    table = builder.table("table", store=Materialized("versions", history_ms=1_000))
    stream = builder.stream("in")
    stream.join(table, join, grace_ms=100).process_values(ShowPlace).to("out")
    stream.to_table().suppress(UntilTimeLimit(wait_ms=100)).to_stream().process(ShowPlace).to("out")
    stream.process(ShowPlace).to("out")
    events = [("table", "k", "1", 0), ("in", "k", "first", 10), ("in", "other", "second", 500)]
    assert run(*events) == [
        ("k", "first at in-0-0"),
        ("k", "first+1 at in-0-0"),
        ("k", "first at in-0-0"),
        ("other", "second at in-0-1"),
    ]


def test_quarantined_record_of_suppress_has_headers_with_its_place(builder: StreamsBuilder) -> None:
    builder.table("in").suppress(UntilTimeLimit(wait_ms=100)).to_stream().process(Fail).to("out")
    config = ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.STRING,
        processing_handler=handlers.quarantine,
        quarantine_topic="errors",
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", "v", 1)
        topic.pipe_input("other", "v", 500)
        record = driver.create_output_topic("errors").read_record()
    assert (record.key, record.value) == (None, None)
    assert {("zkconsumer.topic", b"in"), ("zkconsumer.offset", b"0")} <= set(record.headers)


# ---- windows ----


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TimeWindows(size_ms=10), [("k@0-10", "a"), ("k@0-10", "ab"), ("k@20-30", "c")]),
        (
            TimeWindows(size_ms=10, advance_ms=5),
            [("k@0-10", "a"), ("k@0-10", "ab"), ("k@15-25", "c"), ("k@20-30", "c")],
        ),
        (SlidingWindows(difference_ms=10), [("k@0-10", "a"), ("k@2-12", "b"), ("k@0-10", "ab"), ("k@10-20", "c")]),
    ],
    ids=["tumbling", "hopping", "sliding"],
)
def test_windowed_aggregates(builder: StreamsBuilder, run: Run, windows: Any, expected: list[Any]) -> None:
    builder.stream("in").group_by_key().windowed_by(windows).aggregate(str, append).to_stream(show_window).to("out")
    assert run(("in", "k", "a", 1), ("in", "k", "b", 4), ("in", "k", "c", 20)) == expected


def test_sessions_are_merged(builder: StreamsBuilder, run: Run) -> None:
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows(gap_ms=10, grace_ms=100))
    sessions.count().to_stream(show_window).to("out")
    expected = [("k@0-0", 1), ("k@20-20", 1), ("k@0-0", None), ("k@20-20", None), ("k@0-20", 3)]
    assert run(*(("in", "k", "", time) for time in (0, 20, 10)), output=serdes.LONG) == expected
    with pytest.raises(TopologyError, match="with SessionWindows requires merger"):
        sessions.aggregate(str, append)


def test_continued_task_reads_suppress_buffer_on_demand(builder: StreamsBuilder) -> None:
    table = builder.table("in", key_serde=serdes.STRING, value_serde=serdes.STRING)
    table.suppress(UntilTimeLimit(wait_ms=10_000), name="held").to_stream().to("out")
    [subtopology] = builder.build().resolve({"in": 1}).subtopologies.values()
    config = ApplicationConfig(page_bytes=1_024)
    pages: dict[str, stores.MemoryPages] = {}
    runtime = TaskRuntime(
        clock=lambda: 0, pages=lambda store: pages.setdefault(store.name, stores.MemoryPages()), takes_snapshots=True
    )

    def process(snapshot: bytes | None, numbers: range) -> StreamTask:
        task = subtopology.task(0, config, runtime, snapshot)
        task.initialize()
        records = [SourceRecord("in", 0, number, number, b"key %d" % number, b"v" * 500) for number in numbers]
        task.add_records(TopicPartition("in", 0), records)
        task.run()
        task.commit()
        return task

    first = process(None, range(1_000))
    second = process(first.snapshot(), range(1_000, 1_001))
    assert second.metrics["held-store/pages_read"] < len(pages["held-store"]) / 5
    third = process(second.snapshot(), range(10_500, 10_501))
    values = [record.key for record in third.take_output().records()]
    assert values == [b"key %d" % number for number in range(501)]


def test_windows_of_long_batches_are_forwarded(builder: StreamsBuilder) -> None:
    """The wall clock stands still during a batch of Spark."""
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(size_ms=10), emit=Emit.ON_CLOSE)
    windowed.count().to_stream(show_window).to("out")
    config = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)
    task = builder.build().resolve({"in": 1}).subtopologies[0].task(0, config, runtime)
    task.initialize()
    records = [SourceRecord("in", 0, time_ms, time_ms, b"k", b"v") for time_ms in range(0, 1_000, 2)]
    task.add_records(TopicPartition("in", 0), records)
    task.run()
    assert [record.value for record in task.take_output().records()] == [(5).to_bytes(8, "big")] * 99


def test_closed_windows_are_forwarded_once(builder: StreamsBuilder, run: Run) -> None:
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(size_ms=10), emit=Emit.ON_CLOSE)
    windowed.count().to_stream(show_window).to("out")
    events = [("in", "k", "", time) for time in (1, 2, 15, 16, 25)]
    assert run(*events, output=serdes.LONG) == [("k@0-10", 2), ("k@10-20", 2)]


def test_joined_streams_forward_unmatched_records_when_windows_close(builder: StreamsBuilder, run: Run) -> None:
    windows = JoinWindows(before_ms=10, after_ms=10)
    builder.stream("left").outer_join(builder.stream("right"), join, windows=windows).to("out")
    events = [("left", "k", "1", 0), ("right", "k", "2", 5), ("left", "x", "3", 6), ("right", "k", "4", 30)]
    assert run(*events) == [("k", "1+2"), ("x", "3+None")]


def test_cogrouped_streams_share_a_table(builder: StreamsBuilder, run: Run) -> None:
    one, other = builder.stream("one").group_by_key(), builder.stream("other").group_by_key()
    cogrouped = one.cogroup(append).cogroup(other, lambda key, value, total: f"{total}({value})")
    cogrouped.aggregate(str, store="both").to_stream().to("out")
    assert run(("one", "k", "a", 0), ("other", "k", "b", 0)) == [("k", "a"), ("k", "a(b)")]


# ---- errors ----


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 250])
def test_invalid_names_are_rejected(builder: StreamsBuilder, name: str) -> None:
    for declare in (
        lambda: builder.stream("in").filter(starts_with_a, name=name),
        lambda: Materialized(name),
        lambda: builder.stream("in").group_by_key(name=name),
        lambda: builder.stream("in").repartition(name=name),
    ):
        with pytest.raises(TopologyError, match="a name must consist of 1 to 249 ASCII letters"):
            declare()


def test_invalid_steps_are_rejected(builder: StreamsBuilder) -> None:
    stream, table = builder.stream("in"), builder.table("t")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: builder.stream(), "requires exactly one of topics and pattern"),
        (lambda: builder.stream("a", pattern="b"), "requires exactly one of topics and pattern"),
        (lambda: stream.join(builder.stream("b"), join), "a stream-stream join requires windows"),
        (lambda: stream.join(builder.global_table("g"), join), "a join with a global table requires key"),
        (lambda: stream.outer_join(table, join), "is not supported with a table; use left_join"),  # type: ignore[call-overload]
        (lambda: stream.join("in", join), "must be a KStream, KTable or GlobalKTable, got 'in'"),  # type: ignore[call-overload]
        (
            lambda: stream.join(table, join, grace_ms=5),
            "requires a versioned table with history_ms of at least 5, got history_ms=None",
        ),
        (
            lambda: stream.join(table, join, windows=JoinWindows(before_ms=0, after_ms=1)),
            "'windows' is not supported by",
        ),
        (lambda: stream.join(table, join, window=5), "unknown join argument 'window'"),  # type: ignore[call-overload]
        (lambda: table.suppress(UntilWindowCloses()), "requires a windowed aggregation before suppress"),
        (lambda: table.filter(starts_with_a, store=5), "store must be a name or a Materialized"),  # type: ignore[arg-type]
        (lambda: builder.global_table("v", store=Materialized(history_ms=1)), "cannot be versioned"),
    ]
    for declare, message in cases:
        with pytest.raises(TopologyError, match=message):
            declare()


def test_windows_are_checked() -> None:
    for create, message in (
        (
            lambda: SlidingWindows(difference_ms=-1),
            "difference_ms must be a non-negative integer or timedelta, got -1",
        ),
        (lambda: JoinWindows(before_ms=-5, after_ms=4), r"before_ms \+ after_ms must not be negative, got -5 and 4"),
        (lambda: JoinWindows(before_ms="1", after_ms=4), "before_ms must be an integer"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=message):
            create()


# ---- optimization ----


def test_repartition_topics_are_merged(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").select_key(first_letter)
    stream.group_by_key().count(store="one")
    stream.group_by_key().count(store="two")
    topology = builder.build(Optimization.ALL)
    assert list(topology.resolve({"in": 1}).internal_topics) == ["one-repartition"]


def test_stream_joined_with_itself_has_one_store(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.join(stream, join, windows=JoinWindows(before_ms=1, after_ms=1)).to("out")
    assert len(builder.build(Optimization.SINGLE_STORE_SELF_JOIN).stores) == 1


# ---- serdes ----


def test_windowed_keys_are_serialized_as_in_kafka_streams() -> None:
    time, session = time_windowed(serdes.STRING, 10), session_windowed(serdes.STRING)
    window = Windowed("key", 5, 15)
    assert time.serialize("t", window) == b"key" + (5).to_bytes(8, "big")
    assert time.deserialize("t", time.serialize("t", window)) == window
    assert session.serialize("t", window) == b"key" + (15).to_bytes(8, "big") + (5).to_bytes(8, "big")
    assert session.deserialize("t", session.serialize("t", window)) == window
    both: list[serdes.Serde] = [time, session]
    assert all(serde.serialize("t", None) is serde.deserialize("t", None) is None for serde in both)


def test_windows_of_key_are_in_one_partition() -> None:
    """The numbers are those of ``Utils.murmur2`` in Kafka's Java client."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {data: murmur2(data) - (murmur2(data) >> 31 << 32) for data in expected} == expected
    partitioner = PartitionByInnerKey(serdes.STRING)
    assert partitioner("t", Windowed("foobar", 0, 1), None, 10) == (-790332482 & 0x7FFFFFFF) % 10


@pytest.mark.parametrize("change", [TableChange("new"), TableChange(None, "old"), TableChange("n" * 200, "old")])
def test_changes_are_serialized(change: TableChange) -> None:
    serde = create_change_serde(serdes.STRING)
    assert serde.deserialize("t", serde.serialize("t", change)) == change


def test_malformed_changes_are_rejected() -> None:
    serde = create_change_serde(serdes.STRING)
    with pytest.raises(StreamsError, match="must have a new or an old value"):
        serde.serialize("t", TableChange(None))
    for data, message in (
        (b"x\7", "the last byte must be 0, 1 or 2, got b'.x07'"),
        (b"\xff\2", "truncated length prefix"),
    ):
        with pytest.raises(StreamsError, match=message):
            serde.deserialize("t", data)


def test_topology_is_the_same_class(builder: StreamsBuilder) -> None:
    assert isinstance(builder.build(), Topology)


class _Rekey(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.flush)

    def process(self, record: Record) -> None:
        self.context.forward(record.with_key(record.value))

    def flush(self, now_ms: int) -> None:
        self.context.forward(Record("flushed", "1", now_ms))


def test_process_values_rejects_changed_key(builder: StreamsBuilder) -> None:
    builder.stream("in").process_values(_Rekey, name="p").to("out")
    config = ApplicationConfig(
        key_serde=serdes.STRING, value_serde=serdes.STRING, processing_handler=handlers.log_and_continue
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in")
        for key, value in (("a", "a"), ("a", "b"), (None, "a"), (None, None), ("b", None)):
            topic.pipe_input(key, value)
        driver.advance_wall_clock_time(100)
        found = driver.create_output_topic("out").read_key_values()
        assert found == [("a", "a"), (None, None), ("flushed", "1")]
        assert driver.metrics["dropped/processing"] == 3


def test_process_values_names_both_keys(builder: StreamsBuilder) -> None:
    builder.stream("in").process_values(_Rekey, name="p").to("out")
    config = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)
    with (
        TopologyTestDriver(builder.build(), config) as driver,
        pytest.raises(StreamsError, match="processor 'p': the key must not change, got 'b' instead of 'a'"),
    ):
        driver.create_input_topic("in").pipe_input("a", "b")


def test_repeated_topics_of_a_stream_are_read_once(builder: StreamsBuilder, run: Run) -> None:
    builder.stream(["in", "other", "in"]).to("out")
    assert run(("in", "k", "1", 0), ("other", "k", "2", 0)) == [("k", "1"), ("k", "2")]


def test_copartitioned_topics_of_merged_sources_are_checked(builder: StreamsBuilder) -> None:
    builder.stream("a").to("copy")
    builder.stream("b").join(builder.table("t"), join)
    builder.stream("b").to("copy")
    assert frozenset({"b", "t"}) in builder.build().resolve({"a": 1, "b": 1, "t": 1}).copartitioned


def test_out_of_order_record_does_not_wait_for_grace_period(builder: StreamsBuilder, run: Run) -> None:
    windows = JoinWindows(before_ms=10, after_ms=10, grace_ms=1_000)
    builder.stream("left").left_join(builder.stream("right"), join, windows=windows).to("out")
    events = [("left", "x", "0", 100), ("left", "k", "1", 0), ("right", "k", "2", 5)]
    assert run(*events) == [("k", "1+None"), ("k", "1+2")]
