"""Builds the query of an application: record and tick sources, task operator, and sink."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from zkconsumer.spark.executor.row_schema import RowSchema
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning import splitting
from zkconsumer.spark.streams import packing, ticks
from zkconsumer.spark.streams.checkpoint_directory import CheckpointDirectory
from zkconsumer.spark.streams.cluster import ApplicationCluster, ClusterState
from zkconsumer.spark.streams.fetching import FETCHED, PARTITION, KafkaFetcher
from zkconsumer.spark.streams.markers import TASK_TIMEOUT_S
from zkconsumer.spark.streams.operator import TaskOperator
from zkconsumer.spark.streams.output import OUTPUT_COLUMNS, SinkSettings
from zkconsumer.spark.streams.plan import ApplicationPlan, GlobalPlan
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.subtopology import Subtopology

#: Name of the observed metrics in progress reports, and names of their columns.
METRICS, METRICS_COLUMN, OFFSETS_COLUMN = "zkconsumer_tasks", "metrics", "offsets"

#: Options of the source, and of the operator, which fetches the records.
_SOURCE_OPTIONS = {"clusterUnavailableTimeout": f"{TASK_TIMEOUT_S:g}s", "membership": "none"}

_DECODER = "zkconsumer.spark.streams.packing:RangePacker"


class QueryPlan(NamedTuple):
    """The plan and settings from which a query is started.

    Attributes:
        application: the tasks and the application settings.
        settings: query settings.
        cluster: the Kafka cluster.
    """

    application: ApplicationPlan
    settings: QuerySettings
    cluster: ApplicationCluster

    @property
    def commits_beside_batches(self) -> bool:
        """Whether the driver commits the offsets to Kafka after each batch; see ``offset_commits``."""
        commits = self.settings.commits_to_kafka(has_zookeeper=self.cluster.has_zookeeper)
        return commits and not self.settings.is_transactional


def start_query(session: Any, plan: QueryPlan, checkpoint: CheckpointDirectory) -> Any:
    """Start the query.

    Args:
        session: a Spark session in which the source and sink formats are registered.
        plan: plan of the query.
        checkpoint: checkpoint directory.
    """
    from pyspark.sql import functions

    observed = [METRICS_COLUMN, OFFSETS_COLUMN] if plan.commits_beside_batches else [METRICS_COLUMN]
    rows = load_records(session, plan).union(load_ticks(session, plan))
    output = (
        rows.groupBy("task")
        .transformWithState(
            TaskOperator(plan.application, checkpoint.find_local_file()), OUTPUT_COLUMNS, "append", "none"
        )
        .observe(METRICS, *(functions.collect_list(name).alias(name) for name in observed))
    )
    settings = plan.settings
    trigger: dict[str, Any] = {"processingTime": f"{settings.trigger_ms} milliseconds"}
    if settings.available_now:
        trigger = {"availableNow": True}
    return (
        output.writeStream.format(packing.SINK_FORMAT)
        .queryName(plan.application.config.application_id)
        .option("settings", _create_sink_settings(plan).encode())
        .option("serversFile", plan.cluster.open_servers_file())
        .option("checkpointLocation", checkpoint.path)
        .outputMode("append")
        .trigger(**trigger)
        .start()
    )


def create_fetcher(properties: Mapping[str, str], topics: Iterable[str], state: ClusterState) -> KafkaFetcher:
    """Return the fetcher of an application.

    Args:
        properties: consumer properties.
        topics: the source topics.
        state: topics and brokers of the cluster.
    """
    given = {**_SOURCE_OPTIONS, **properties, "subscribe": ",".join(sorted(topics)), "commitOffsets": "false"}
    options = SourceOptions.parse(given)
    row_schema = replace(RowSchema.from_columns((*PARTITION, *FETCHED)), policy=options.corrupt_record_policy)
    return KafkaFetcher(splitting.task(options, {}, {}, list(state.brokers), row_schema))


def plan_global_stores(
    subtopologies: Iterable[Subtopology], config: ApplicationConfig, properties: Mapping[str, str], state: ClusterState
) -> GlobalPlan | None:
    """Return the plan of the global stores; None if there are none.

    Args:
        subtopologies: all sub-topologies.
        config: application settings.
        properties: consumer properties.
        state: topics and brokers of the cluster.
    """
    found = tuple(one for one in subtopologies if one.is_global)
    if not found:
        return None
    topics = sorted({topic for one in found for topic in one.source_topics})
    options = {
        **properties,
        "subscribe": ",".join(topics),
        "membership": "none",
        "commitOffsets": "false",
        "includeHeaders": "true",
        "failOnDataLoss": "false",  # global store topics can be compacted
    }
    return GlobalPlan(config, found, splitting.task(SourceOptions.parse(options), {}, {}, list(state.brokers)))


def _create_sink_settings(plan: QueryPlan) -> SinkSettings:
    settings, config = plan.settings, plan.application.config
    has_headers = settings.sequence_headers
    return SinkSettings(
        application_id=config.application_id,
        guarantee=settings.guarantee,
        client=plan.cluster.client_settings(),
        producer=settings.producer,
        has_sequence_headers=not settings.is_transactional if has_headers is None else has_headers,
        partition_counts=plan.application.partition_counts,
        internal_topics=plan.application.internal_topics,
        fails_on_changed_output=settings.fails_on_changed_output,
        handler=config.production_handler,
        quarantine_topic=config.quarantine_topic,
    )


def load_records(session: Any, plan: QueryPlan) -> Any:
    """Return a DataFrame with the ranges of all source topics; see ``packing.COLUMNS``."""
    application, settings = plan.application, plan.settings
    topics = max(len(one.source_topics) for one in application.subtopologies.values())
    options = {
        **_SOURCE_OPTIONS,
        **plan.cluster.properties,
        "subscribe": ",".join(sorted(application.keys_by_topic)),
        "resumeFrom": "checkpoint",
        "commitOffsets": "true" if plan.cluster.has_zookeeper else "false",
        "startingOffsets": json.dumps(application.starting_offsets),
        "maxOffsetsPerTrigger": str(settings.max_records_per_task * len(application.tasks)),
        "maxOffsetsPerPartition": str(max(1, settings.max_records_per_task // topics)),
        "maxBytesPerPartition": str(max(1, settings.max_bytes_per_task // topics)),
        "plannedRanges": "only",
        "decoder": _DECODER,
        f"decoder.{packing.KEYS_OPTION}": packing.encode_keys(application.keys_by_topic),
    }
    return session.readStream.format("zkconsumer").options(**options).load()


def load_ticks(session: Any, plan: QueryPlan) -> Any:
    """Return a DataFrame with ticks; see ``packing.COLUMNS``."""
    options = {
        "keys": json.dumps(sorted(plan.application.tasks)),
        # Even without ticks, the source is part of the query, because the checkpoint has an offset for each source.
        "intervalMs": str(plan.settings.tick_interval_ms if plan.settings.wall_clock_punctuation else 0),
    }
    if plan.application.global_stores is not None:
        options["global"] = json.dumps(
            {
                "properties": plan.cluster.complete(plan.cluster.properties),
                "brokers": [[broker.host, broker.port] for broker in plan.cluster.brokers],
                "partitions": plan.application.global_stores.partitions,
            }
        )
    return session.readStream.format(ticks.FORMAT).options(**options).load()
