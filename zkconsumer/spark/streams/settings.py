"""Settings of an application's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.checked_arguments import check_fields
from zkconsumer.durations import Duration, default_ms
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.streams.output import ProcessingGuarantee

#: Producer settings that users cannot change, because the processing guarantees depend on them.
_RESERVED = {
    "acks",
    "bootstrap.servers",
    "default.topic.config",
    "delivery.report.only.error",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "logger",
    "metadata.broker.list",
    "metadata.max.age.ms",
    "on_delivery",
    "partitioner",
    "request.required.acks",
    "topic.metadata.refresh.interval.ms",
    "transactional.id",
}


def to_guarantee(value: ProcessingGuarantee | str) -> ProcessingGuarantee:
    """Return a processing guarantee.

    Raises:
        ConfigurationError: the processing guarantee is unknown.
    """
    try:
        return ProcessingGuarantee(value)
    except ValueError:
        names = " or ".join(repr(one.value) for one in ProcessingGuarantee)
        raise ConfigurationError(f"processing_guarantee must be {names}, got {value!r}") from None


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """Settings of an application's query.

    Durations are numbers of milliseconds or ``timedelta`` objects, which are converted.

    Attributes:
        trigger_ms: interval between batch starts, in milliseconds.
        available_now: whether the application ends after processing the existing records.
        wall_clock_punctuation: whether ticks run the wall-clock punctuators of all tasks, even without records. If
            False, there are no batches without records, and the wall-clock time of a task is the planning time of its
            last batch with records.
        tick_interval_ms: resolution of the tasks' wall clock, in milliseconds.
        partitions: number of Spark partitions of the operator, fixed at the first start. None for the number of tasks,
            or twice the number of cores if that is lower.
        max_records_per_task: maximum number of new records per task in a batch, and maximum number of records that a
            task buffers while it waits for records of other partitions. If it is reduced, a batch that was planned
            before is processed in parts.
        max_bytes_per_task: maximum size of the new records per task in a batch, estimated by sampling the next records,
            and of the keys, values and headers of the records that a task buffers, in bytes. A task's records and
            output in a batch are kept in the memory of one worker.
        purge_interval_ms: minimum interval between two deletions of processed records from internal topics, in
            milliseconds.
        producer: librdkafka producer settings, without those that the application sets: ``acks``,
            ``bootstrap.servers``, ``default.topic.config``, ``delivery.report.only.error``,
            ``enable.gapless.guarantee``, ``enable.idempotence``, ``logger``, ``metadata.broker.list``,
            ``metadata.max.age.ms``, ``on_delivery``, ``partitioner``, ``request.required.acks``,
            ``topic.metadata.refresh.interval.ms`` and ``transactional.id``.
        processing_guarantee: ``at_least_once`` (default), or ``exactly_once_v2``, which requires Kafka 2.5 or later and
            deterministic processors.
        sequence_headers: whether records have a header that lets readers discard repeated records. None means True
            with ``at_least_once``, and False with ``exactly_once_v2``.
        fails_on_changed_output: whether to fail if the output of a repeated batch differs from the output that was
            committed with ``exactly_once_v2``. If False, the event ``output_changed`` is logged.

    Raises:
        ConfigurationError: a setting has the wrong type or is out of range, the processing guarantee is unknown, or
            ``producer`` contains a setting that users cannot change.
    """

    trigger_ms: Duration = default_ms(1_000)
    available_now: bool = False
    wall_clock_punctuation: bool = True
    tick_interval_ms: Duration = default_ms(1_000)
    partitions: int | None = None
    max_records_per_task: int = 200_000
    max_bytes_per_task: int = 64 << 20
    purge_interval_ms: Duration = default_ms(30_000)
    producer: Mapping[str, Any] = field(default_factory=dict)
    processing_guarantee: ProcessingGuarantee | str = ProcessingGuarantee.AT_LEAST_ONCE
    sequence_headers: bool | None = None
    fails_on_changed_output: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ConfigurationError)
        object.__setattr__(self, "processing_guarantee", to_guarantee(self.processing_guarantee))
        reserved = sorted(_RESERVED & self.producer.keys())
        if reserved:
            raise ConfigurationError(f"producer must not contain {', '.join(reserved)}, which the application sets")

    @property
    def guarantee(self) -> ProcessingGuarantee:
        """The processing guarantee."""
        return ProcessingGuarantee(self.processing_guarantee)

    @property
    def is_transactional(self) -> bool:
        """Whether the output is written in transactions."""
        return self.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    def commits_to_kafka(self, *, has_zookeeper: bool) -> bool:
        """Return whether offsets are committed to Kafka, which is the case with transactions or without ZooKeeper."""
        return self.is_transactional or not has_zookeeper
