"""Tests of the properties of Kafka Streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.streams.application_properties import read_application_properties
from zkconsumer.spark.streams.output import ProcessingGuarantee
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.topology import ApplicationConfig, handlers, serdes, timestamps

FILE = """
application.id = counts
bootstrap.servers = kafka:9092
default.key.serde = org.apache.kafka.common.serialization.Serdes$StringSerde
default.value.serde=org.apache.kafka.common.serialization.Serdes$LongSerde
default.timestamp.extractor: org.apache.kafka.streams.processor.WallclockTimestampExtractor
deserialization.exception.handler = org.apache.kafka.streams.errors.LogAndContinueExceptionHandler
processing.exception.handler = org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler
max.task.idle.ms = 100
statestore.cache.max.bytes = 0
commit.interval.ms = 250
processing.guarantee = exactly_once_v2
producer.linger.ms = 5
security.protocol = SSL
fetch.min.bytes = 1
consumer.fetch.min.bytes = 2
"""


def test_streams_properties_are_converted_to_settings(tmp_path: Path) -> None:
    path = tmp_path / "streams.properties"
    path.write_text(FILE)

    found = read_application_properties(path, QuerySettings(partitions=3, producer={"batch.size": 10}))

    assert found.config == ApplicationConfig(
        application_id="counts",
        key_serde=serdes.STRING,
        value_serde=serdes.LONG,
        timestamp_extractor=timestamps.wall_clock,
        deserialization_handler=handlers.log_and_continue,
        max_task_idle_ms=100,
        statestore_cache_max_bytes=0,
    )
    assert found.settings == QuerySettings(
        trigger_ms=250,
        partitions=3,
        processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2,
        producer={"batch.size": 10, "linger.ms": "5"},
    )
    assert found.consumer == {"bootstrap.servers": "kafka:9092", "security.protocol": "SSL", "fetch.min.bytes": "2"}


def test_objects_are_accepted_instead_of_class_names() -> None:
    own = serdes.Serde(serdes.JSON.serialize, serdes.JSON.deserialize)
    found = read_application_properties(
        {"application.id": "a", "default.value.serde": own, "processing.exception.handler": handlers.log_and_continue}
    )

    assert found.config.value_serde is own
    assert found.config.processing_handler is handlers.log_and_continue


def test_new_names_and_long_prefixes_take_precedence() -> None:
    found = read_application_properties(
        {
            "application.id": " a ",
            "statestore.cache.max.bytes": "1",
            "cache.max.bytes.buffering": "2",
            "main.consumer.fetch.min.bytes": "3",
            "consumer.fetch.min.bytes": "4",
            "processing.guarantee": "exactly_once_v2 ",
        }
    )

    assert found.config.application_id == "a"
    assert found.config.statestore_cache_max_bytes == 1
    assert found.consumer == {"fetch.min.bytes": "3"}
    assert found.settings.is_transactional


def test_settings_must_be_query_settings() -> None:
    with pytest.raises(ConfigurationError, match="settings must be a QuerySettings"):
        read_application_properties({"application.id": "a"}, {})  # type: ignore[arg-type]


def test_failed_records_are_written_to_dead_letter_queue() -> None:
    continuing = "LogAndContinueExceptionHandler"
    found = read_application_properties(
        {
            "application.id": "a",
            "errors.dead.letter.queue.topic.name": "failed",
            "deserialization.exception.handler": continuing,
            "processing.exception.handler": handlers.quarantine,
        }
    )

    assert found.config.quarantine_topic == "failed"
    assert found.config.deserialization_handler is handlers.quarantine
    assert found.config.processing_handler is handlers.quarantine
    assert found.config.production_handler is handlers.fail


@pytest.mark.parametrize(
    "name", ["num.stream.threads", "state.dir", "topic.retention.ms", "restore.consumer.max.poll.records", "linger.ms"]
)
def test_properties_without_effect_are_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = read_application_properties({"application.id": "a", name: "secret"})

    assert found.consumer == {}
    assert "secret" not in caplog.text
    assert f"event='property_ignored' property='{name}'" in caplog.text


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "'application.id' is required"),
        ({"default.key.serde": "com.example.OrderSerde"}, "'default.key.serde' must be one of ByteArraySerde"),
        ({"default.value.serde": serdes}, "'default.value.serde' must be a Serde"),
        ({"processing.exception.handler": 5}, "'processing.exception.handler' must be a function, got 5"),
        ({"max.task.idle.ms": "soon"}, "'max.task.idle.ms' must be an integer, got 'soon'"),
        ({"commit.interval.ms": "0"}, "'commit.interval.ms' must be a positive integer or timedelta, got '0'"),
        (
            {"processing.guarantee": "exactly_once"},
            "'processing.guarantee' must be 'at_least_once' or 'exactly_once_v2', got 'exactly_once'",
        ),
        (
            {"auto.offset.reset": "latest"},
            "'auto.offset.reset' must be 'earliest', got 'latest'; to start at the latest offset",
        ),
        ({"default.key.serde": "com.acme.StringSerde"}, "must be one of ByteArraySerde.*got 'com.acme.StringSerde'"),
        ({"commit.interval.ms": 1.9}, "'commit.interval.ms' must be an integer, got 1.9"),
        ({"producer.acks": "1"}, "'producer.acks' must not be set"),
    ],
)
def test_invalid_property_is_reported_by_name(properties: dict[str, Any], message: str) -> None:
    given = {"application.id": "a", **properties} if properties else {}
    with pytest.raises(ConfigurationError, match=message):
        read_application_properties(given)


def test_error_contains_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "streams.properties"
    path.write_text("application.id=a\ncommit.interval.ms=-5\n")

    with pytest.raises(ConfigurationError, match=rf"got '-5' \({path}:2\)"):
        read_application_properties(path)
