"""Each record that a step drops is counted once in ``metrics["dropped"]``, and logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.clocks import Clock

from zkconsumer.event_limits import log_unlogged
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    SourceRecord,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
    timestamps,
)
from zkconsumer.topology.dropped_records import DroppedRecords
from zkconsumer.topology.dsl import Emit, KGroupedStream, KStream, KTable, Materialized, StreamsBuilder
from zkconsumer.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

CONFIG = ApplicationConfig(
    key_serde=serdes.STRING,
    value_serde=serdes.STRING,
    deserialization_handler=handlers.log_and_continue,
    processing_handler=handlers.log_and_continue,
    production_handler=handlers.log_and_continue,
)
TUMBLING, SLIDING = TimeWindows(size_ms=10), SlidingWindows(difference_ms=10)
SESSIONS, JOIN = SessionWindows(gap_ms=10), JoinWindows(before_ms=10, after_ms=10)
LATE = [("a", "1", 0), ("a", "1", 1_000), ("a", "1", 0)]
NO_KEY, NO_VALUE = [(None, "1", 0)], [("a", None, 0)]


def stream(build: Callable[[KStream], object]) -> Callable[[StreamsBuilder], object]:
    """Return a function that adds a step to a stream of topic ``in``."""
    return lambda builder: build(builder.stream("in"))


def grouped(build: Callable[[KGroupedStream], object]) -> Callable[[StreamsBuilder], object]:
    """Return a function that adds an aggregation of topic ``in`` by key."""
    return stream(lambda source: build(source.group_by_key()))


def joined_with_table(join: Callable[[KStream, KTable], object]) -> Callable[[StreamsBuilder], object]:
    """Return a function that joins topic ``in`` with a table."""
    return lambda builder: join(builder.stream("in"), builder.table("table"))


def joined_tables(builder: StreamsBuilder) -> object:
    """Join a versioned table of topic ``in`` with another table."""
    left = builder.table("in", store=Materialized("left", history_ms=10_000))
    return left.join(builder.table("table", store=Materialized("right", history_ms=10_000)), pair)


def joined_with_global(builder: StreamsBuilder) -> object:
    """Join topic ``in`` with a global table."""
    return builder.stream("in").join(builder.global_table("table"), pair, key=lambda key, _value: key)


def windowed(windows: Any, emit: Emit = Emit.ON_UPDATE) -> Callable[[StreamsBuilder], object]:
    """Return a function that counts topic ``in`` by key and window."""
    return grouped(lambda one: one.windowed_by(windows, emit=emit).count())


def pair(left: Any, right: Any) -> str:
    """Return both values."""
    return f"{left}{right}"


@dataclass(frozen=True)
class Case:
    """A step that drops records.

    Attributes:
        build: adds the step to a builder.
        records: key, value and timestamp of the records of topic ``in``.
        reasons: number of dropped records by reason.
    """

    build: Callable[[StreamsBuilder], object]
    records: list[tuple[Any, Any, int]]
    reasons: dict[str, int]


CASES = {
    "count, no key": Case(grouped(lambda one: one.count()), NO_KEY, {"null_key": 1}),
    "count, no value": Case(grouped(lambda one: one.count()), NO_VALUE, {"null_value": 1}),
    "versioned count": Case(
        grouped(lambda one: one.count(store=Materialized("s", history_ms=10))), NO_KEY + NO_VALUE,
        {"null_key": 1, "null_value": 1},
    ),
    "cogroup": Case(
        grouped(lambda one: one.cogroup(lambda _key, value, _so_far: value).aggregate(lambda: "")), NO_VALUE,
        {"null_value": 1},
    ),
    "tumbling, no key": Case(windowed(TUMBLING), NO_KEY, {"null_key": 1}),
    "tumbling, late": Case(windowed(TUMBLING), LATE, {"closed_window": 1}),
    "hopping, late": Case(windowed(TimeWindows(size_ms=10, advance_ms=2)), [*LATE[:2], ("a", "1", 20)],
                          {"closed_window": 5}),
    "tumbling on close, late": Case(windowed(TUMBLING, Emit.ON_CLOSE), LATE, {"closed_window": 1}),
    "sliding, no value": Case(windowed(SLIDING), NO_VALUE, {"null_value": 1}),
    "sliding, late": Case(windowed(SLIDING), LATE, {"closed_window": 1}),
    "sessions, no key": Case(windowed(SESSIONS), NO_KEY, {"null_key": 1}),
    "sessions, late": Case(windowed(SESSIONS), LATE, {"closed_window": 1}),
    "table, no key": Case(lambda builder: builder.table("in", store="s"), NO_KEY, {"null_key": 1}),
    "to_table, no key": Case(stream(lambda one: one.to_table()), NO_KEY, {"null_key": 1}),
    "table join, no key": Case(joined_with_table(lambda one, table: one.join(table, pair)), NO_KEY, {"null_key": 1}),
    "table left join, no value": Case(
        joined_with_table(lambda one, table: one.left_join(table, pair)), NO_VALUE, {"null_value": 1}
    ),
    "global table join": Case(joined_with_global, NO_KEY + NO_VALUE, {"null_key": 1, "null_value": 1}),
    "versioned table join": Case(joined_tables, [("a", "1", 10), ("a", "2", 5)], {"old_version": 1}),
    "stream join": Case(
        lambda builder: builder.stream("in").join(builder.stream("table"), pair, windows=JOIN), NO_KEY + NO_VALUE,
        {"null_key": 1, "null_value": 1},
    ),
    "self-join": Case(
        stream(lambda one: one.join(one, pair, windows=JOIN)), NO_KEY,
        {"null_key": 2},  # once for each side, as in Kafka Streams without optimization
    ),
    "versioned table, expired": Case(
        lambda builder: builder.table("in", store=Materialized("s", history_ms=10)),
        [("a", "1", 1_000), ("a", "2", 0)], {"expired": 1},
    ),
    "negative timestamp": Case(
        stream(lambda one: one.to("out")), [("a", "1", -1)], {"negative_timestamp": 1}
    ),
    "undecodable": Case(stream(lambda one: one.to("out")), [("a", b"\xff", 0)], {"deserialization": 1}),
    "unserializable": Case(stream(lambda one: one.map_values(len).to("out")), [("a", "1", 0)], {"production": 1}),
    "failed processor": Case(stream(lambda one: one.map_values(int).to("out")), [("a", "x", 0)], {"processing": 1}),
    "no partition": Case(
        stream(lambda one: one.to("out", partitioner=lambda *_: [])), [("a", "1", 0)], {"no_partition": 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_dropped_records_are_counted_once(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    case.build(builder)
    config = CONFIG
    if ("a", "1", -1) in case.records:
        config = ApplicationConfig(
            key_serde=serdes.STRING, value_serde=serdes.STRING, timestamp_extractor=timestamps.skip_on_invalid
        )

    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", encode, encode)
        for record in case.records:
            topic.pipe_input(*record)

        metrics = driver.metrics

    found = {name.partition("/")[2]: count for name, count in metrics.items() if name.startswith("dropped/")}
    assert found == case.reasons
    assert metrics["dropped"] == sum(case.reasons.values())
    events = [one.getMessage() for one in caplog.records if "record_dropped" in one.getMessage()]
    assert all(any(f"reason={reason!r}" in event for event in events) for reason in case.reasons), events


def encode(_topic: str, item: Any) -> bytes | None:
    """Serialize text; bytes are written as they are."""
    return item.encode() if isinstance(item, str) else item


def test_processor_counts_records_that_it_drops() -> None:
    class DropAll(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            self.context.drop("unwanted")

    builder = StreamsBuilder()
    builder.stream("in").process(DropAll, name="p").to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic("in").pipe_values(["1", "2"])

        assert driver.metrics["dropped"] == driver.metrics["dropped/unwanted"] == 2


def test_expired_puts_of_stores_are_counted() -> None:
    class Put(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.store = context.get_state_store("s")

        def process(self, record: Record) -> None:
            self.store.put(record.key, record.value, record.timestamp)

    store = stores.window("s", serdes.STRING, serdes.STRING, retention_ms=10, window_size_ms=10)
    builder = StreamsBuilder()
    builder.stream("in").process(Put, stores=[store])
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.create_input_topic("in")
        for timestamp in (1_000_000, 0, 1):
            topic.pipe_input("a", "1", timestamp)

        assert driver.metrics["dropped"] == driver.metrics["dropped/expired"] == 2


def test_events_of_all_tasks_are_limited_by_cause(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark creates a task again for each batch."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    metrics: dict[str, int] = {}
    source = SourceRecord("in", 0, 7, 0, None, None)

    def drop(node: str, task: str = "0_0") -> None:
        DroppedRecords(task, metrics, "app").add(source, reason="null_key", node=node)
        log_unlogged()

    for number in range(5):
        drop("n", f"0_{number}")
    drop("other")
    clock.now += 60
    drop("n")

    assert metrics == {"dropped": 7, "dropped/null_key": 7}
    found = [(one.getMessage().count("node='n'"), one.getMessage()[-9:]) for one in caplog.records]
    assert found == [(1, "records=1"), (0, "records=1"), (1, "records=5")]


def test_first_errors_of_a_handler_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    for number in range(25):
        DroppedRecords(f"0_{number}", {}, "app").add(None, reason="processing", node="n", error=f"error {number}")
    clock.now += 60
    DroppedRecords("0_0", {}, "app").add(None, reason="processing", node="n", error="last")

    assert [one.getMessage().partition(" records=")[2] for one in caplog.records] == [*["1"] * 10, "16"]


def test_applications_in_one_process_have_separate_limits(caplog: pytest.LogCaptureFixture) -> None:
    for application in ("a", "b", "a"):
        DroppedRecords("0_0", {}, application).add(None, reason="null_key", node="n")
        log_unlogged()

    assert len(caplog.records) == 2
