"""Durations that applications pass as a ``timedelta``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from zkconsumer.durations import to_milliseconds
from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.spark import QuerySettings
from zkconsumer.spark.streams.application_properties import read_application_properties
from zkconsumer.topology import ApplicationConfig, Processor, Record, Topology, TopologyTestDriver, serdes
from zkconsumer.topology.dsl import Materialized, StreamsBuilder
from zkconsumer.topology.processor import ProcessorContext, PunctuationType

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (np.int32(5), 5),
        (timedelta(0), 0),
        (timedelta(milliseconds=-1), -1),
        (timedelta(days=1, milliseconds=1), 86_400_001),
        (timedelta.max, None),
        (timedelta.max - timedelta(microseconds=999), timedelta.max // timedelta(milliseconds=1)),
        (timedelta(microseconds=1), None),
        (timedelta(microseconds=-999), None),
        (pd.Timedelta(seconds=1), 1_000),
        (pd.Timedelta(nanoseconds=1_000_001), None),
        (True, None),
        (1.5, None),
        ("PT1S", None),
        (None, None),
    ],
)
def test_durations_are_converted(value: Any, expected: int | None) -> None:
    converted = to_milliseconds(value)
    assert converted == expected
    assert type(converted) in (int, type(None))


class Ticking(Processor):
    """Forwards the time of each punctuation, with an interval of one second."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record) -> None:
        self.context.forward(record)

    def tick(self, now_ms: int) -> None:
        self.context.forward(Record("tick", str(now_ms), now_ms))


def test_punctuators_and_test_driver_accept_timedeltas() -> None:
    topology = Topology().add_source("in", "in").add_processor("p", Ticking, "in").add_sink("out", "out", "p")
    with TopologyTestDriver(topology, TEXT) as driver:
        output = driver.create_output_topic("out")
        driver.advance_wall_clock_time(timedelta(milliseconds=999))
        assert len(output) == 0
        driver.advance_wall_clock_time(timedelta(milliseconds=1))
        assert output.read_key_values() == [("tick", "1000")]
        topic = driver.create_input_topic("in", start_ms=5, auto_advance_ms=timedelta(seconds=1))
        topic.pipe_values(["a", "b"])
        topic.advance_time(timedelta(minutes=1))
        topic.pipe_values(["c"])
        topic.pipe_values(["d", "e"], 0, timedelta(milliseconds=2))
        topic.pipe_values(["f", "g"], 100, -5)
        assert [record.timestamp for record in output.read_records()] == [5, 1_005, 62_005, 0, 2, 100, 95]
        with pytest.raises(ValueError, match=r"advance_ms must be an integer .* got datetime"):
            topic.pipe_values([], 0, timedelta(microseconds=2))


def test_punctuator_rejects_fraction_of_millisecond() -> None:
    class Wrong(Ticking):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(timedelta(microseconds=1_500), PunctuationType.STREAM_TIME, self.tick)

    topology = Topology().add_source("in", "in").add_processor("p", Wrong, "in")
    expected = "a positive integer or a positive timedelta of whole milliseconds"
    with pytest.raises(StreamsError, match=rf"interval_ms must be {expected}, got datetime.timedelta\(micros"):
        TopologyTestDriver(topology)


def test_grace_period_of_join_can_be_timedelta() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", store=Materialized("versions", history_ms=timedelta(seconds=1)))
    builder.stream("in").join(table, lambda left, right: left + right, grace_ms=timedelta(milliseconds=100)).to("out")
    with TopologyTestDriver(builder.build(), TEXT) as driver:
        stream, changes = driver.create_input_topic("in"), driver.create_input_topic("table")
        stream.pipe_input("k", "early", 10)
        changes.pipe_input("k", "1", 5)
        stream.pipe_input("k", "late", 110)
        assert driver.create_output_topic("out").read_key_values() == [("k", "early1")]


def test_properties_can_be_timedeltas() -> None:
    second = timedelta(seconds=1)
    names = ("commit.interval.ms", "max.task.idle.ms", "repartition.purge.interval.ms")
    found = read_application_properties(
        {"application.id": "a", "bootstrap.servers": "b:1", **dict.fromkeys(names, second)}
    )
    assert found.config.max_task_idle_ms == 1_000
    assert (found.settings.trigger_ms, found.settings.purge_interval_ms) == (1_000, 1_000)


def test_settings_of_queries_can_be_timedeltas() -> None:
    second = timedelta(seconds=1)
    names = ("trigger_ms", "tick_interval_ms", "purge_interval_ms")
    settings = QuerySettings(**dict.fromkeys(names, second))  # type: ignore[arg-type]
    assert [(type(one), one) for one in (getattr(settings, name) for name in names)] == [(int, 1_000)] * 3
    with pytest.raises(ConfigurationError, match=r"trigger_ms must be a positive integer or timedelta, got datetime"):
        QuerySettings(trigger_ms=timedelta(0))
