"""``TopologyTestDriver``: topics, clocks, stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zkconsumer.errors import ClosedError, StreamsError
from zkconsumer.topology import (
    ApplicationConfig,
    ApplicationState,
    Lifecycle,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    TestOutputTopic,
    TestRecord,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.dsl import StreamsBuilder
from zkconsumer.topology.lifecycle import TRANSITIONS

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)


class Count(Processor):
    """Counts per key, and forwards the time of each hour."""

    def init(self, context: ProcessorContext) -> None:
        self._context, self._counts = context, context.get_state_store("counts")
        context.schedule(3_600_000, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record) -> None:
        count = (self._counts.get(record.key) or 0) + 1
        self._counts.put(record.key, count)
        self._context.forward(record.with_value(str(count)))

    def _tick(self, now: int) -> None:
        self._context.forward(Record("tick", str(now), now))


def counting() -> Topology:
    counts = stores.key_value("counts", serdes.STRING, serdes.LONG)
    return (
        Topology()
        .add_source("src", "in")
        .add_processor("count", Count, "src", stores=[counts])
        .add_sink("sink", "out", "count")
    )


def test_output_can_be_read_in_each_form() -> None:
    with TopologyTestDriver(counting(), TEXT) as driver:
        clicks = driver.create_input_topic("in", start_ms=100, auto_advance_ms=5)
        counts = driver.create_output_topic("out")

        clicks.pipe_input("a", "x")
        assert counts.read_record() == TestRecord("a", "1", 100)
        clicks.pipe_key_values([("a", "x"), ("b", "x")])
        assert counts.read_key_value() == ("a", "2")
        assert counts.read_value() == "1"
        clicks.advance_time(1_000)
        clicks.pipe_records([Record("c", "x", 7, [("h", b"1")])])
        assert counts.read_records() == [TestRecord("c", "1", 7, (("h", b"1"),))]
        clicks.pipe_key_values([("a", "x"), ("a", "x"), ("b", "x")])
        assert len(counts) == 3
        assert counts.read_map() == {"a": "4", "b": "2"}
        driver.create_output_topic("unused")
        assert driver.produced_topics() == {"out"}


def test_read_of_empty_topic_and_unknown_topic_are_errors() -> None:
    with TopologyTestDriver(counting(), TEXT) as driver:
        with pytest.raises(LookupError, match="topic 'out' has no more records .topics with output: none"):
            driver.create_output_topic("out").read_value()
        for read in (TestOutputTopic.read_records, TestOutputTopic.read_value, len):
            with pytest.raises(LookupError, match="no sink writes to topic 'oout' .sink topics: out"):
                read(driver.create_output_topic("oout"))
        with pytest.raises(ValueError, match="no source reads topic 'other'"):
            driver.create_input_topic("other").pipe_input("k", "v")


def test_topics_that_have_no_records_yet_can_be_read() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda _key, value: value).repartition(name="by-value").to("out")
    config = replace(TEXT, application_id="app", quarantine_topic="rejected")
    with TopologyTestDriver(builder.build(), config) as driver:
        for topic in ("app-by-value-repartition", "out", "rejected"):
            assert driver.create_output_topic(topic).read_records() == []
        with pytest.raises(LookupError, match="no sink writes to topic 'by-value-repartition'"):
            driver.create_output_topic("by-value-repartition").read_records()

    chosen = Topology().add_source("src", "in").add_sink("sink", lambda record, _context: record.value, "src")
    with TopologyTestDriver(chosen, TEXT) as driver:
        assert driver.create_output_topic("any").read_records() == []


def test_wall_clock_moves_only_on_request() -> None:
    with TopologyTestDriver(counting(), TEXT, now_ms=1_000) as driver:
        ticks = driver.create_output_topic("out")
        driver.advance_wall_clock_time(3_599_999)
        assert len(ticks) == 0
        driver.advance_wall_clock_time(1)
        assert ticks.read_key_values() == [("tick", "3601000")]


def test_output_of_one_subtopology_is_input_of_another() -> None:
    # Source: Kafka 3.9 TopologyTestDriverTest.shouldForwardRecordsFromSubtopologyToSubtopology
    topology = counting().add_source("again", "out").add_sink("copy", "copied", "again")
    with TopologyTestDriver(topology, TEXT) as driver:
        driver.create_input_topic("in").pipe_input("a", "x")

        assert driver.create_output_topic("copied").read_key_values() == [("a", "1")]


def test_stores_are_available_and_driver_closes_once() -> None:
    driver = TopologyTestDriver(counting(), TEXT)
    driver.create_input_topic("in").pipe_input("a", "x")
    assert driver.get_state_store("counts").get("a") == 1
    assert driver.get_state_store("other") is None
    assert list(driver.get_all_state_stores()) == ["counts"]

    driver.close()
    driver.close()

    with pytest.raises(ClosedError, match="TopologyTestDriver is closed"):
        driver.create_input_topic("in").pipe_input("a", "x")


@pytest.mark.parametrize("old", ApplicationState)
@pytest.mark.parametrize("new", ApplicationState)
def test_transitions_are_those_of_kafka_streams(old: ApplicationState, new: ApplicationState) -> None:
    # Source: Kafka 3.9 KafkaStreams.setState
    s = ApplicationState
    lifecycle = Lifecycle()
    lifecycle._state = old
    changes: list[tuple[ApplicationState, ApplicationState]] = []
    lifecycle._listener = lambda new, old: changes.append((new, old))
    ignored = (
        (old is s.PENDING_SHUTDOWN and new is not s.NOT_RUNNING)
        or (old is s.NOT_RUNNING and new in (s.PENDING_SHUTDOWN, s.NOT_RUNNING))
        or (old is new is s.REBALANCING)
        or (old is s.ERROR and new in (s.PENDING_ERROR, s.ERROR))
        or (old is s.PENDING_ERROR and new is not s.ERROR)
    )

    if ignored:
        assert not lifecycle.set_state(new)
    elif new in TRANSITIONS[old]:
        assert lifecycle.set_state(new)
    else:
        with pytest.raises(StreamsError, match=f"invalid state transition from {old.name} to {new.name}"):
            lifecycle.set_state(new)
    assert lifecycle.state is (new if changes else old)
    assert changes in ([], [(new, old)])


def test_listener_is_set_before_start() -> None:
    lifecycle = Lifecycle()
    seen: list[ApplicationState] = []
    lifecycle.set_listener(lambda new, _old: seen.append(new))
    lifecycle.set_state(ApplicationState.REBALANCING)

    with pytest.raises(StreamsError, match="must be set before the application is started; the state is REBALANCING"):
        lifecycle.set_listener(None)
    assert seen == [ApplicationState.REBALANCING]
    assert lifecycle.wait_for(ApplicationState.REBALANCING, timeout_s=0)
    assert not lifecycle.wait_for(ApplicationState.RUNNING, timeout_s=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"key": 5},
            "topic 'in': key serializer of the test topic failed for 5: must be str, got int; pass a matching key_ser",
        ),
        ({"timestamp": 1.5}, "timestamp must be an integer in milliseconds, got 1.5"),
        ({"headers": {"a": b"b"}}, r"a header must be a tuple \(str, bytes or None\), got 'a'"),
        ({"headers": [("a", "b")]}, r"a header must be a tuple \(str, bytes or None\), got"),
    ],
)
def test_invalid_driver_input_is_rejected(arguments: Any, message: str) -> None:
    with TopologyTestDriver(counting(), TEXT) as driver, pytest.raises((ValueError, StreamsError), match=message):
        driver.create_input_topic("in").pipe_input(**{"key": "k", "value": "v", **arguments})


def test_output_that_cannot_be_deserialized_names_topic() -> None:
    with TopologyTestDriver(counting(), TEXT) as driver:
        driver.create_input_topic("in").pipe_input("a", "x")
        counts = driver.create_output_topic("out", value_deserializer=serdes.LONG.deserialize)
        with pytest.raises(ValueError, match="topic 'out': value deserializer of the test topic failed for b'1'"):
            counts.read_value()


def test_wall_clock_cannot_go_back() -> None:
    with (
        TopologyTestDriver(counting(), TEXT) as driver,
        pytest.raises(ValueError, match="must not be negative, got -1"),
    ):
        driver.advance_wall_clock_time(-1)


def test_serde_is_accepted_as_serializer_and_deserializer() -> None:
    topology = Topology().add_source("in", "in", key_deserializer=serdes.STRING, value_deserializer=serdes.LONG)
    topology.add_sink("out", "out", "in", key_serializer=serdes.STRING, value_serializer=serdes.DOUBLE)

    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.LONG).pipe_input("a", 1)
        assert driver.create_output_topic("out", serdes.STRING, serdes.DOUBLE).read_key_values() == [("a", 1.0)]
