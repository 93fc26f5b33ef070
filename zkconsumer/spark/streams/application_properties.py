"""Converts the properties of a Kafka Streams application to settings of the application, its query and its clients.

Source: Kafka 3.9 and 4.4 org.apache.kafka.streams.StreamsConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from os import PathLike
from typing import Any, NamedTuple

from zkconsumer.argument_checks import check_type, to_integer
from zkconsumer.checked_arguments import check_values
from zkconsumer.config.consumer_config import read_properties
from zkconsumer.config.properties_file import FileValue
from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger
from zkconsumer.spark.streams.output import ProcessingGuarantee
from zkconsumer.spark.streams.settings import QuerySettings, to_guarantee
from zkconsumer.topology import handlers, serdes, timestamps
from zkconsumer.topology.config import ApplicationConfig

_SERDES = {
    "ByteArraySerde": serdes.BYTES,
    "BytesSerde": serdes.BYTES,
    "DoubleSerde": serdes.DOUBLE,
    "IntegerSerde": serdes.INTEGER,
    "LongSerde": serdes.LONG,
    "StringSerde": serdes.STRING,
}
_EXTRACTORS = {
    "FailOnInvalidTimestamp": timestamps.fail_on_invalid,
    "LogAndSkipOnInvalidTimestamp": timestamps.skip_on_invalid,
    "UsePartitionTimeOnInvalidTimestamp": timestamps.partition_time_on_invalid,
    "WallclockTimestampExtractor": timestamps.wall_clock,
}
_DESERIALIZATION = {
    "LogAndFailExceptionHandler": handlers.fail,
    "LogAndContinueExceptionHandler": handlers.log_and_continue,
}
_PROCESSING = {
    "LogAndFailProcessingExceptionHandler": handlers.fail,
    "LogAndContinueProcessingExceptionHandler": handlers.log_and_continue,
}
_PRODUCTION = {"DefaultProductionExceptionHandler": handlers.fail}

#: Properties of Kafka Streams 3.9 and 4.4 without effect, by the reason that is logged.
_REASONS = {
    "Spark runs the tasks": (
        *("num.stream.threads", "num.standby.replicas", "max.warmup.replicas", "acceptable.recovery.lag"),
        *("probing.rebalance.interval.ms", "task.assignor.class", "group.protocol", "upgrade.from"),
        *("rack.aware.assignment.non_overlap_cost", "rack.aware.assignment.strategy", "rack.aware.assignment.tags"),
        "rack.aware.assignment.traffic_cost",
    ),
    "Spark plans the batches": ("poll.ms", "buffered.records.per.partition", "task.timeout.ms", "retries"),
    "the state is in the checkpoint": (
        *("state.dir", "state.cleanup.delay.ms", "state.cleanup.dir.max.age.ms", "allow.os.group.write.access"),
        *("default.dsl.store", "dsl.store.format", "dsl.store.suppliers.class", "rocksdb.config.setter"),
        *("enable.transactional.statestores", "statestore.uncommitted.max.bytes"),
        "windowstore.changelog.additional.retention.ms",
    ),
    "it is an argument of StreamsBuilder.build": ("topology.optimization",),
    "it is not supported": (
        *("application.server", "auto.include.jmx.reporter", "built.in.metrics.version", "default.client.supplier"),
        *("default.interactive.query.isolation.level", "default.list.key.serde.inner", "default.list.key.serde.type"),
        *("default.list.value.serde.inner", "default.list.value.serde.type", "enable.metrics.push"),
        *("ensure.explicit.internal.resource.naming", "log.summary.interval.ms", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "processor.wrapper.class"),
        *("processing.exception.handler.global.enabled", "replication.factor", "topology.description.push.enabled"),
        *("window.size.ms", "windowed.inner.class.serde"),
    ),
}
#: Properties that only producers have, and that Kafka Streams also accepts without a prefix.
_OF_PRODUCERS = {
    *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms", "enable.idempotence"),
    *("linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size", "partitioner.class"),
    "transaction.timeout.ms",
}
_WITHOUT_EFFECT = {name: reason for reason, names in _REASONS.items() for name in names}
_PREFIXES_WITHOUT_EFFECT = ("admin.", "topic.", "restore.consumer.", "global.consumer.")


class _Setting(NamedTuple):
    """The setting of a property.

    Attributes:
        name: attribute of ``ApplicationConfig`` or of ``QuerySettings``.
        parse: function that returns the value, given the name of the property and its value.
    """

    name: str
    parse: Callable[[str, Any], Any]


def _text(_name: str, value: Any) -> Any:
    return str(value).strip() if isinstance(value, str) else value  # Kafka ignores blanks around values


def _integer(name: str, value: Any) -> int:
    number = to_integer(value)
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            pass
    if number is None:
        raise _invalid(name, value, "must be an integer")
    return number


def _milliseconds(name: str, value: Any) -> Any:
    return value if isinstance(value, timedelta) else _integer(name, value)


def _guarantee(name: str, value: Any) -> ProcessingGuarantee:
    try:
        return to_guarantee(_text(name, value))
    except ConfigurationError as error:
        raise _rename(error, "processing_guarantee", name, value) from None


def _one_of(classes: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    """Return a parser of class names in Kafka, which also accepts a Python object instead."""

    def parse(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value  # a serde or a function, which the setting checks
        package, _, short = value.strip().replace("$", ".").rpartition(".")
        if short not in classes or (package and not package.startswith("org.apache.kafka.")):
            raise _invalid(
                name, value, f"must be one of {', '.join(classes)} (in a dict, it can also be a Python object)"
            )
        return classes[short]

    return parse


_OF_APPLICATION = {
    "application.id": _Setting("application_id", _text),
    "default.key.serde": _Setting("key_serde", _one_of(_SERDES)),
    "default.value.serde": _Setting("value_serde", _one_of(_SERDES)),
    "default.timestamp.extractor": _Setting("timestamp_extractor", _one_of(_EXTRACTORS)),
    "max.task.idle.ms": _Setting("max_task_idle_ms", _milliseconds),
    "cache.max.bytes.buffering": _Setting("statestore_cache_max_bytes", _integer),
    "statestore.cache.max.bytes": _Setting("statestore_cache_max_bytes", _integer),
    "default.deserialization.exception.handler": _Setting("deserialization_handler", _one_of(_DESERIALIZATION)),
    "deserialization.exception.handler": _Setting("deserialization_handler", _one_of(_DESERIALIZATION)),
    "processing.exception.handler": _Setting("processing_handler", _one_of(_PROCESSING)),
    "default.production.exception.handler": _Setting("production_handler", _one_of(_PRODUCTION)),
    "production.exception.handler": _Setting("production_handler", _one_of(_PRODUCTION)),
    "errors.dead.letter.queue.topic.name": _Setting("quarantine_topic", _text),
}
#: Names that a newer name replaces.
_DEPRECATED = {
    *("cache.max.bytes.buffering", "default.deserialization.exception.handler"),
    "default.production.exception.handler",
}
_OF_QUERY = {
    "commit.interval.ms": _Setting("trigger_ms", _milliseconds),
    "processing.guarantee": _Setting("processing_guarantee", _guarantee),
    "repartition.purge.interval.ms": _Setting("purge_interval_ms", _milliseconds),
}


@dataclass(frozen=True)
class ApplicationProperties:
    """The settings of an application.

    Attributes:
        config: application settings.
        settings: query settings.
        consumer: consumer properties.
    """

    config: ApplicationConfig
    settings: QuerySettings
    consumer: Mapping[str, str]


def read_application_properties(
    given: Mapping[str, Any] | str | PathLike[str], settings: QuerySettings | None = None
) -> ApplicationProperties:
    """Return the settings for properties of Kafka Streams. Properties without effect are logged (``property_ignored``).

    Args:
        given: properties by name, or the path of a Java properties file.
        settings: query settings. The properties take precedence.

    Raises:
        ConfigurationError: the file cannot be read, ``application.id`` is missing, or a property is invalid or not
            supported.
    """
    check_type("properties", given, (Mapping, str, PathLike), "a dict of properties or a path")
    settings = QuerySettings() if settings is None else settings
    check_type("settings", settings, QuerySettings, "a QuerySettings")
    properties = dict(given) if isinstance(given, Mapping) else dict(read_properties(given))
    if not properties.get("application.id"):
        raise ConfigurationError("property 'application.id' is required")
    application, query, producer, consumer = _sort(properties)
    return ApplicationProperties(
        ApplicationConfig(**application),
        replace(settings, producer={**settings.producer, **producer}, **query),
        consumer,
    )


def _sort(properties: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the settings of the application and of the query, the producer settings, and the consumer properties."""
    application: dict[str, Any] = {}
    query: dict[str, Any] = {}
    producer: dict[str, Any] = {}
    general: dict[str, Any] = {}
    of_consumer: dict[str, Any] = {}  # with a prefix, which takes precedence
    # As in Kafka, new names take precedence over deprecated ones, and the longer prefix over the shorter one.
    for name, value in sorted(properties.items(), key=lambda entry: entry[0] not in _DEPRECATED):
        if name in _OF_APPLICATION:
            application |= _parse(ApplicationConfig, _OF_APPLICATION[name], name, value)
        elif name in _OF_QUERY:
            query |= _parse(QuerySettings, _OF_QUERY[name], name, value)
        elif name.startswith("producer."):
            producer |= _parse_producer(name, value)
        elif name.startswith("main.consumer."):
            of_consumer[name.removeprefix("main.consumer.")] = value
        elif name.startswith("consumer."):
            of_consumer.setdefault(name.removeprefix("consumer."), value)
        elif (reason := _reason_without_effect(name)) is not None:
            place: dict[str, Any] = {"path": value.place} if isinstance(value, FileValue) else {}
            get_logger("zkconsumer.config").warning("property_ignored", property=name, reason=reason, **place)
        else:
            general[name] = value
    # Kafka's handlers that continue also write to the dead letter queue (KIP-1034). Those that fail do so, too, but not
    # here.
    if application.get("quarantine_topic"):
        application |= {
            name: handlers.quarantine for name, value in application.items() if value is handlers.log_and_continue
        }
    consumer = general | of_consumer
    reset = consumer.pop("auto.offset.reset", "earliest")
    if reset not in ("earliest", "smallest"):
        error = _invalid("auto.offset.reset", reset, "must be 'earliest'")
        raise ConfigurationError(
            f"{error}; to start at the latest offset, set offset_reset='latest' where the source is declared"
        )
    return application, query, producer, consumer


def _parse(kind: type[ApplicationConfig | QuerySettings], setting: _Setting, name: str, value: Any) -> dict[str, Any]:
    """Return a setting by its name.

    Raises:
        ConfigurationError: the value does not match the annotation of the setting.
    """
    given = {setting.name: setting.parse(name, value)}
    try:
        return check_values(kind.__name__, kind.__annotations__, given, ConfigurationError)
    except ConfigurationError as error:
        raise _rename(error, setting.name, name, value) from None


def _parse_producer(name: str, value: Any) -> dict[str, Any]:
    parsed = {name.removeprefix("producer."): value}
    try:
        QuerySettings(producer=parsed)
    except ConfigurationError:
        raise ConfigurationError(f"property {name!r} must not be set, because the application sets it") from None
    return parsed


def _reason_without_effect(name: str) -> str | None:
    if name.startswith(_PREFIXES_WITHOUT_EFFECT):
        return "it is not supported"
    if name in _OF_PRODUCERS:
        return f"the name of a producer setting must have a prefix: producer.{name}"
    return _WITHOUT_EFFECT.get(name)


def _rename(error: ConfigurationError, setting: str, name: str, value: object) -> ConfigurationError:
    """Return the error for the value of a setting, with the name of the property and its value."""
    return _invalid(name, value, str(error).partition(f"{setting} ")[2].partition(", got ")[0])


def _invalid(name: str, value: object, requirement: str) -> ConfigurationError:
    place = f" ({value.place})" if isinstance(value, FileValue) else ""
    shown = str(value) if isinstance(value, FileValue) else value
    return ConfigurationError(f"property {name!r} {requirement}, got {shown!r}{place}")
