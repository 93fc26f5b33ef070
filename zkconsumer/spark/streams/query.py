"""The streaming query of an application: source, ticks, operator and sink."""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import Endpoint
from zkconsumer.spark import session as source
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.streams import packing, ticks
from zkconsumer.spark.streams.checkpoint import open_application
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.operator import TaskOperator
from zkconsumer.spark.streams.output import OUTPUT_COLUMNS, ProcessingGuarantee, SinkSettings
from zkconsumer.spark.streams.plan import ApplicationPlan, select_subtopologies
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig

#: Settings of the session of the query.
_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stopTimeout": "30s",
}
_DECODER = "zkconsumer.spark.streams.packing:RecordPacker"
_METRICS = "zkconsumer_tasks"
_POLL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """Settings of the query of an application.

    Attributes:
        trigger_ms: milliseconds between the starts of two batches.
        tick_interval_ms: resolution of the wall clock of the tasks, in milliseconds.
        partitions: number of Spark partitions of the operator. The first start decides; None for the smaller one of the
            number of tasks and twice the number of cores.
        max_records_per_task: maximum number of records of a task in a batch, and of records of a task that wait for
            those of other partitions.
        max_bytes_per_task: maximum size of the keys and values of the records of a task in a batch, estimated from the
            next records. The records and the output of a task in a batch are in the memory of one worker.
        producer: settings of librdkafka's producer.
        processing_guarantee: ``at_least_once``, the default, or ``exactly_once_v2``, which requires Kafka 2.5 and
            deterministic processors.
        sequence_headers: whether records have headers by which a reader can discard repeated ones. None for True with
            ``at_least_once``, and False with ``exactly_once_v2``.
        fails_on_changed_output: whether the query fails if a repeated batch has another output than before, which
            ``exactly_once_v2`` has already written; if not, the event ``output_changed`` is logged.

    Raises:
        ConfigurationError: a number is not positive, or the processing guarantee is unknown.
    """

    trigger_ms: int = 1_000
    tick_interval_ms: int = 1_000
    partitions: int | None = None
    max_records_per_task: int = 200_000
    max_bytes_per_task: int = 64 << 20
    producer: Mapping[str, Any] = field(default_factory=dict)
    processing_guarantee: ProcessingGuarantee | str = ProcessingGuarantee.AT_LEAST_ONCE
    sequence_headers: bool | None = None
    fails_on_changed_output: bool = False

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "processing_guarantee", ProcessingGuarantee(self.processing_guarantee))
        except ValueError:
            names = " or ".join(one.value for one in ProcessingGuarantee)
            raise ConfigurationError(
                f"processing_guarantee must be {names}, got {self.processing_guarantee!r}"
            ) from None
        for name in ("trigger_ms", "tick_interval_ms", "partitions", "max_records_per_task", "max_bytes_per_task"):
            value = getattr(self, name)
            is_default = value is None and name == "partitions"
            if not is_default and (not isinstance(value, int) or value < 1):
                raise ConfigurationError(f"{name} must be a positive integer, got {value!r}")


class TopologyQuery:
    """Starts and stops the query.

    Args:
        topology: the topology.
        config: settings of the application.
        spark: a Spark session; the query runs in a clone with settings of its own.
        checkpoint: directory of the checkpoint.
        properties: consumer properties.
        settings: settings of the query.
    """

    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig,
        spark: Any,
        checkpoint: str,
        properties: Mapping[str, str],
        settings: QuerySettings,
    ) -> None:
        self._topology, self._config, self._checkpoint = topology, config, checkpoint
        self._properties, self._settings = {**properties, "group.id": config.application_id}, settings
        self._spark = spark
        self._query: Any = None
        self._listener: QueryListener | None = None
        self._last_batch = -1
        self._waiting = threading.Event()  # never set: only its timeout is used

    def start(self) -> None:
        """Start the query from the checkpoint.

        Raises:
            StreamsError: the checkpoint belongs to another application or topology.
            ConfigurationError: a property is invalid, or ``zookeeper.connect`` and ``bootstrap.servers`` are missing.
            TopologyError: a topic does not exist.
        """
        _check_requirements()
        cluster = ApplicationCluster(self._properties)
        state = cluster.describe()
        counts = state.partition_counts
        subtopologies = select_subtopologies(self._topology.resolve(counts), self._config, counts)
        partitions = self._settings.partitions or 2 * int(self._spark.sparkContext.defaultParallelism)
        name = self._config.application_id
        application, is_new = open_application(self._spark, self._checkpoint, name, subtopologies, partitions)
        plan = ApplicationPlan.create(
            subtopologies,
            self._config,
            counts,
            application.tasks,
            application.partitions,
            self._settings.max_records_per_task,
        )
        is_transactional = self._settings.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        if is_transactional:
            cluster.check_transactions(state.brokers)
        if is_new and (is_transactional or not cluster.has_zookeeper):
            cluster.check_unused(plan.keys_by_topic.keys(), f"checkpoint {self._checkpoint}")
        session = self._create_session(plan.partitions)
        with _active(session):  # Spark looks up formats in it
            self._query = self._create_query(session, plan, cluster, state.brokers)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the query, and return whether it ended, even if it failed."""
        try:
            return bool(self._query.awaitTermination(timeout_s))
        except Exception:
            return True  # ``exception`` returns it

    def exception(self) -> BaseException | None:
        """Return the exception that ended the query."""
        return self._query.exception()  # type: ignore[no-any-return]

    def take_metrics(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield task ids with changes of metrics by name, of the batches since the last call."""
        # Only new reports are parsed: each contains the metrics of all tasks.
        reports = [report for report in self._query._jsq.recentProgress() if report.batchId() > self._last_batch]
        for progress in (json.loads(report.json()) for report in reports):
            self._last_batch = progress["batchId"]
            for text in progress.get("observedMetrics", {}).get(_METRICS, {}).get("metrics", ()):
                yield from json.loads(text).items()

    def stop(self, timeout_s: float) -> None:
        """Stop the query, if it runs, after the current batch. A batch that does not end in time is repeated later.

        Args:
            timeout_s: maximum seconds to wait for the end of a batch.
        """
        try:
            if self._query is not None:
                self._wait_for_end_of_batch(timeout_s)
                self._query.stop()
        finally:
            self._close_listener()

    def _wait_for_end_of_batch(self, timeout_s: float) -> None:
        end, batch = time.monotonic() + timeout_s, self._find_last_batch()
        while (
            time.monotonic() < end
            and self._query.isActive
            and self._query.status["isTriggerActive"]
            and self._find_last_batch() == batch
        ):
            self._waiting.wait(_POLL_S)

    def _find_last_batch(self) -> int | None:
        """Return the number of the last finished batch."""
        report = self._query._jsq.lastProgress()
        return None if report is None else int(report.batchId())

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _create_session(self, partitions: int) -> Any:
        from zkconsumer.spark.streams import sink  # it needs the extra

        session = type(self._spark)(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        conf = {**_CONF, "spark.sql.shuffle.partitions": str(partitions)}
        for name, value in conf.items():
            session.conf.set(name, value)
        self._close_listener()
        self._listener = source.register(session)
        session.dataSource.register(ticks.TickSource)
        session.dataSource.register(sink.TopicSink)
        return session

    def _create_query(
        self, session: Any, plan: ApplicationPlan, cluster: ApplicationCluster, brokers: Collection[Endpoint]
    ) -> Any:
        from pyspark.sql import functions

        rows = self._read_records(session, plan, cluster).union(self._read_ticks(session, plan))
        output = (
            rows.groupBy("task")
            .transformWithState(TaskOperator(plan), OUTPUT_COLUMNS, "append", "none")
            .observe(_METRICS, functions.collect_list("metrics").alias("metrics"))
        )
        return (
            output.writeStream.format(packing.SINK_FORMAT)
            .queryName(self._config.application_id)
            .option("settings", self._create_sink_settings(cluster, brokers).encode())
            .option("checkpointLocation", self._checkpoint)
            .outputMode("append")
            .trigger(processingTime=f"{self._settings.trigger_ms} milliseconds")
            .start()
        )

    def _create_sink_settings(self, cluster: ApplicationCluster, brokers: Collection[Endpoint]) -> SinkSettings:
        guarantee = ProcessingGuarantee(self._settings.processing_guarantee)
        is_transactional = guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        has_headers = self._settings.sequence_headers
        return SinkSettings(
            application_id=self._config.application_id,
            guarantee=guarantee,
            client=cluster.client_settings(brokers),
            producer=self._settings.producer,
            has_sequence_headers=not is_transactional if has_headers is None else has_headers,
            commits_to_kafka=is_transactional or not cluster.has_zookeeper,
            fails_on_changed_output=self._settings.fails_on_changed_output,
            handler=self._config.production_handler,
            quarantine_topic=self._config.quarantine_topic,
        )

    def _read_records(self, session: Any, plan: ApplicationPlan, cluster: ApplicationCluster) -> Any:
        limits, topics = self._settings, max(len(one.source_topics) for one in plan.subtopologies.values())
        options = {
            **self._properties,
            "subscribe": ",".join(sorted(plan.keys_by_topic)),
            "membership": "none",
            "resumeFrom": "checkpoint",
            "commitOffsets": "true" if cluster.has_zookeeper else "false",
            "startingOffsets": json.dumps(plan.starting_offsets),
            "maxOffsetsPerTrigger": str(limits.max_records_per_task * len(plan.tasks)),
            "maxOffsetsPerPartition": str(max(1, limits.max_records_per_task // topics)),
            "maxBytesPerPartition": str(max(1, limits.max_bytes_per_task // topics)),
            "plannedRanges": "true",
            "decoder": _DECODER,
            f"decoder.{packing.KEYS_OPTION}": packing.encode_keys(plan.keys_by_topic),
        }
        if self._settings.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
            options["isolation.level"] = "read_committed"
        return session.readStream.format("zkconsumer").options(**options).load()

    def _read_ticks(self, session: Any, plan: ApplicationPlan) -> Any:
        options = {
            "keys": json.dumps(sorted(plan.tasks)),
            "intervalMs": str(self._settings.tick_interval_ms),
        }
        return session.readStream.format(ticks.FORMAT).options(**options).load()


def _check_requirements() -> None:
    """Raise ConfigurationError if a package of the extra is missing."""
    for module, package in (("google.protobuf", "protobuf"), ("confluent_kafka", "confluent-kafka")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(
                f"StreamsApp needs {package} on the driver and the workers; run: pip install 'zkconsumer[topology]'"
            ) from error


@contextlib.contextmanager
def _active(session: Any) -> Iterator[None]:
    """Make a session the active one of this thread."""
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
