"""The streaming query of an application: source, ticks, operator and sink."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from zkconsumer.errors import ConfigurationError, RetriableError, TopologyError, ZkConsumerError
from zkconsumer.health import HealthReason
from zkconsumer.log import get_logger
from zkconsumer.metrics import MetricName
from zkconsumer.retry import retrying
from zkconsumer.spark.driver.activity import QueryStatus, describe_running_tasks, read_status
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.spark.streams.checkpoint import StoredApplication, open_application
from zkconsumer.spark.streams.checkpoint_directory import CheckpointDirectory
from zkconsumer.spark.streams.clean_up import clean_up
from zkconsumer.spark.streams.cluster import ApplicationCluster, ClusterState
from zkconsumer.spark.streams.dataframe import QueryPlan, create_fetcher, plan_global_stores, start_query
from zkconsumer.spark.streams.group import ApplicationGroup
from zkconsumer.spark.streams.internal_topics import InternalTopics
from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.offset_commits import OffsetCommits
from zkconsumer.spark.streams.owner import ApplicationOwner
from zkconsumer.spark.streams.pickling import check_picklable
from zkconsumer.spark.streams.plan import ApplicationPlan, find_missing_topics, select_subtopologies
from zkconsumer.spark.streams.progress import find_ends, find_task_offsets
from zkconsumer.spark.streams.query_session import activated, create_session, translating_errors
from zkconsumer.spark.streams.requirements import CONFLUENT_KAFKA, PROTOBUF, check_modules
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.resolved import ResolvedTopology
from zkconsumer.topology.subtopology import name_internal_topic

_POLL_S = 0.02
#: Maximum seconds to wait until the offsets of the last batch are committed to Kafka.
_COMMIT_TIMEOUT_S = 10.0
#: Maximum seconds to wait until new internal topics are in the metadata, and seconds between two lookups.
_TOPICS_TIMEOUT_S, _TOPICS_POLL_S = 30.0, 0.2
#: Seconds after which a failed check for new partitions is repeated.
_RECHECK_S = 5.0


class TopologyQuery:
    """Starts and stops the query of an application.

    Args:
        topology: the topology.
        config: application settings.
        spark: a Spark session; the query runs in a clone of the session with its own settings.
        checkpoint: checkpoint directory.
        properties: consumer properties.
        settings: query settings.
        allow: allowed topology changes.
    """

    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig,
        spark: Any,
        checkpoint: str,
        properties: Mapping[str, str],
        settings: QuerySettings,
        allow: Collection[AllowedChange] = (),
    ) -> None:
        self._topology, self._config, self._checkpoint = topology, config, checkpoint
        self._properties, self._settings = {**properties, "group.id": config.application_id}, settings
        if settings.is_transactional:
            self._properties["isolation.level"] = "read_committed"
        self._spark, self._allow = spark, frozenset(allow)
        self._query: Any = None
        self._listener: QueryListener | None = None
        self._last_batch = -1
        #: Partition counts of the topics that the query reads and writes.
        self._watched_counts: Mapping[str, int] = {}
        self._tasks_by_partition: Mapping[int, Sequence[str]] = {}
        self._next_check = 0.0
        self._new_topics: list[str] = []
        self._cluster: ApplicationCluster | None = None  # kept across restarts of the query
        self._owner: ApplicationOwner | None = None
        self._commits: OffsetCommits | None = None
        self._internal_topics: InternalTopics | None = None
        self._log = get_logger("zkconsumer.spark")
        self._waiting = threading.Event()  # never set: only its timeout is used

    def start(self) -> None:
        """Start the query from the checkpoint.

        Raises:
            StreamsError: another instance of the application is running, the checkpoint belongs to another application
                or topology or is used by an active query, or an internal topic cannot be used.
            ConfigurationError: a property or setting is invalid, ``zookeeper.connect`` and ``bootstrap.servers`` are
                missing, or a required package is not installed.
            TopologyError: a source topic does not exist, co-partitioned topics have different partition counts, or a
                part of the topology cannot be pickled.
            UnsupportedBrokerError: a broker does not support ``exactly_once_v2``.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        check_modules(PROTOBUF, CONFLUENT_KAFKA)
        self._new_topics = []
        cluster = self._open_cluster()
        self._acquire(cluster)
        directory = CheckpointDirectory(self._spark, self._checkpoint)
        settings, state = self._settings, self._create_internal_topics(cluster, directory)
        counts = state.partition_counts
        resolved = self._topology.resolve(counts)
        self._watched_counts = {topic: counts.get(topic, 0) for topic in _list_topics(resolved)}
        self._next_check = time.monotonic() + cluster.config.metadata_max_age_s
        subtopologies = select_subtopologies(resolved, self._config, counts)
        global_stores = plan_global_stores(resolved.subtopologies.values(), self._config, self._properties, state)
        if global_stores is not None and not settings.wall_clock_punctuation:
            raise ConfigurationError("wall_clock_punctuation must be True with global stores, got False")
        check_picklable(resolved.subtopologies, self._config)
        partitions = settings.partitions or 2 * int(self._spark.sparkContext.defaultParallelism)
        if settings.is_transactional:
            cluster.check_transactions(state.brokers)
        name = self._config.application_id
        stored = open_application(directory, name, subtopologies, partitions, self._allow)
        topics = {topic for one in subtopologies.values() for topic in one.source_topics}
        fetcher = create_fetcher(cluster.properties, topics, state)
        plan = ApplicationPlan.create(subtopologies, self._config, counts, stored.tasks, stored.partitions, fetcher)
        plan = replace(
            plan,
            max_records=settings.max_records_per_task,
            max_bytes=settings.max_bytes_per_task,
            has_ticks=settings.wall_clock_punctuation,
            global_stores=global_stores,
            stores=stored.number_stores(subtopologies),
            earlier={int(number): frozenset(hashes) for number, hashes in stored.earlier.items()},
        )
        self._tasks_by_partition = plan.tasks_by_partition
        self._check_markers(cluster, directory, stored, plan)
        self._close_listener()
        session, self._listener = create_session(self._spark, plan.partitions)
        query = QueryPlan(plan, settings, cluster)
        with translating_errors(name, self._checkpoint), activated(session):
            self._query = start_query(session, query, directory)
        if query.commits_beside_batches and self._commits is None:
            self._commits = OffsetCommits(cluster)
            self._commits.start()

    def _open_cluster(self) -> ApplicationCluster:
        if self._cluster is None:
            self._cluster = ApplicationCluster(self._properties)
        return self._cluster

    def _create_internal_topics(self, cluster: ApplicationCluster, directory: CheckpointDirectory) -> ClusterState:
        """Check the group, create the missing internal topics, and return the cluster state that includes them.

        Raises:
            StreamsError: another application or consumer uses the group, an internal topic has records although the
                checkpoint has no batches, or a topic could not be created.
            TopologyError: a source topic does not exist, co-partitioned topics have different partition counts, or a
                part of the topology cannot be pickled.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        state, config = cluster.describe(), self._config
        resolved = self._topology.resolve(state.partition_counts)
        self._internal_topics = None
        self._check_group(cluster, directory, self._name_internal_topics(resolved) & state.partition_counts.keys())
        if not resolved.internal_topics:
            return state
        # Check before creating topics, because their partition counts cannot be corrected later.
        resolved.check_partition_counts(state.partition_counts)
        check_picklable(resolved.subtopologies, config)
        topics = self._internal_topics = self._open_internal_topics(cluster, resolved)
        # The brokers reject the creation of a topic whose deletion has not finished, so it is repeated (KAFKA-6928).
        deadline = time.monotonic() + _TOPICS_TIMEOUT_S
        while (
            missing := find_missing_topics(resolved, config, state.partition_counts)
        ) and time.monotonic() < deadline:
            topics.create(missing)
            self._waiting.wait(_TOPICS_POLL_S)
            state = cluster.describe()
        return state  # ``select_subtopologies`` reports topics that are still missing

    def _open_internal_topics(self, cluster: ApplicationCluster, resolved: ResolvedTopology) -> InternalTopics:
        names, interval_ms = self._name_internal_topics(resolved), self._settings.purge_interval_ms
        return InternalTopics(cluster.client_settings, self._config.application_id, names, interval_ms)

    def _name_internal_topics(self, resolved: ResolvedTopology) -> frozenset[str]:
        return frozenset(name_internal_topic(self._config.application_id, topic) for topic in resolved.internal_topics)

    def _check_group(self, cluster: ApplicationCluster, directory: CheckpointDirectory, internal: Set[str]) -> None:
        """Check that only this application uses its group and its internal topics."""
        commits_to_kafka = self._settings.commits_to_kafka(has_zookeeper=cluster.has_zookeeper)
        with cluster.open() as access:
            group = ApplicationGroup(cluster, access, commits_to_kafka=commits_to_kafka)
            group.check_members()
            if not directory.is_used():
                group.check_unused(str(directory))
                group.check_empty(internal, str(directory))
            elif commits_to_kafka:
                group.check_query(directory.read_progress())

    def _check_markers(
        self,
        cluster: ApplicationCluster,
        directory: CheckpointDirectory,
        stored: StoredApplication,
        plan: ApplicationPlan,
    ) -> None:
        """With transactions, ensure that each task has a marked offset; see ``group``."""
        marked = 0
        if self._settings.is_transactional:
            with cluster.open() as access:
                ApplicationGroup(cluster, access, commits_to_kafka=True).check_markers(
                    str(directory),
                    directory.read_progress(),
                    plan,
                    stored.marked,
                    allows_lost=AllowedChange.MARKERS_LOST in self._allow,
                )
            marked = len(stored.tasks)
        if marked != stored.marked:
            directory.write(replace(stored, marked=marked).to_json())

    def finish_batch(self, report: Mapping[str, Any]) -> None:
        """Delete processed records from internal topics, and commit offsets, after a batch.

        Args:
            report: progress report of the batch, which Spark sends after committing the batch.
        """
        if self._internal_topics is not None:
            self._internal_topics.purge(find_ends(report))
        if self._commits is not None and (offsets := find_task_offsets(report)):
            self._commits.add(offsets, Marker(report["id"], report["batchId"]))

    def _acquire(self, cluster: ApplicationCluster) -> None:
        """Ensure that no other application with the same id is running, if ``zookeeper.connect`` is set."""
        if cluster.has_zookeeper and self._owner is None:
            owner = ApplicationOwner(cluster.config)
            try:
                owner.acquire()
            except BaseException:
                owner.close()
                raise
            self._owner = owner

    def wait(self, timeout_s: float) -> bool:
        """Wait for the query to end; return whether it ended, successfully or not."""
        try:
            return bool(self._query.awaitTermination(timeout_s)) or self._find_loss() is not None
        except Exception:
            return True  # ``exception`` returns the error

    def exception(self) -> BaseException | None:
        """Return the exception that ended the query, or None if it ended without an error.

        If the ZooKeeper session's lease expired, or another query uses the group, stop the query and return the error
        once. The next start acquires the znode and commits offsets again.
        """
        loss = self._find_loss()
        if loss is not None:
            self._query.stop()
            self._release()
            if self._commits is not None and self._commits.failure is not None:
                self.close()
        return loss or self._query.exception()

    def _find_loss(self) -> ZkConsumerError | None:
        lease = None if self._owner is None else self._owner.find_loss()
        return lease or (None if self._commits is None else self._commits.failure)

    def _release(self) -> None:
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def find_new_topics(self, *, is_due: bool = False) -> list[str]:
        """Return the topics that, at the last check, had new partitions that the query does not read or write.

        Args:
            is_due: whether to check immediately, and repeat a failed check; otherwise, topics are checked every
                ``metadata.max.age.ms``, and sooner after a failed check.
        """
        cluster = self._cluster
        if cluster is None:
            return []
        if not is_due and time.monotonic() < self._next_check:
            return self._new_topics
        self._next_check = time.monotonic() + min(_RECHECK_S, cluster.config.metadata_max_age_s)
        try:
            state = retrying(_TOPICS_TIMEOUT_S)(cluster.describe) if is_due else cluster.describe()
            counts = state.partition_counts
            topics = _list_topics(self._topology.resolve(counts))
        except (RetriableError, TopologyError) as error:
            self._log.warning("streams_topics_not_checked", group=self._config.application_id, error=str(error))
            return self._new_topics
        self._next_check = time.monotonic() + cluster.config.metadata_max_age_s
        self._new_topics = sorted(
            topic for topic in topics if counts.get(topic, 0) > self._watched_counts.get(topic, 0)
        )
        return self._new_topics

    def health_reasons(self) -> list[HealthReason]:
        """Return the reason if the last commit failed; see ``offset_commits``."""
        commits = self._commits
        return [] if commits is None else commits.health_reasons()

    @property
    def status(self) -> QueryStatus:
        """The current state of the query."""
        if self._query is None:
            return QueryStatus()
        return read_status(self._spark, self._query, self._last_batch)

    def describe_running_tasks(self) -> str:
        """Describe the running Spark tasks; see ``activity.describe_running_tasks``."""
        if self._query is None:
            return ""
        return describe_running_tasks(self._spark, self._query.runId, self._tasks_by_partition)

    @property
    def listener_metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """Metrics of the query; see ``QueryListener.metrics``."""
        listener = self._listener
        return {} if listener is None else listener.metrics

    def take_reports(self) -> Iterator[Mapping[str, Any]]:
        """Yield the progress reports of batches that finished since the last call."""
        if self._query is None:
            return
        # Parse only new reports, because each report contains the metrics of all tasks.
        reports = [report for report in self._query._jsq.recentProgress() if report.batchId() > self._last_batch]
        for progress in (json.loads(report.json()) for report in reports):
            self._last_batch = progress["batchId"]
            yield progress

    def clean_up(self) -> list[str]:
        """Delete the data of a query that is not running; see ``clean_up.clean_up``."""
        cluster = self._open_cluster()
        state = cluster.describe()
        internal = self._open_internal_topics(cluster, self._topology.resolve(state.partition_counts))
        return clean_up(CheckpointDirectory(self._spark, self._checkpoint), cluster, internal)

    def stop(self, timeout_s: float, *, keeps_owner: bool = False) -> None:
        """Stop a running query after its current batch. A batch that does not finish in time is repeated later.

        If the query cannot be stopped, the application's znode is kept until this process ends: the batch may still be
        running, so another instance must not start.

        Args:
            timeout_s: maximum seconds to wait for the batch to finish.
            keeps_owner: whether to keep the application's znode, because the query is about to restart.
        """
        try:
            if self._query is not None:
                self._wait_for_end_of_batch(timeout_s)
                self._query.stop()
        finally:
            self._internal_topics = None  # closes its connections
            self._close_listener()
        if not keeps_owner:
            self._release()

    def close(self) -> None:
        """Commit the offsets of the last batch, and close the connections of the commits."""
        commits, self._commits = self._commits, None
        if commits is not None:
            commits.close(_COMMIT_TIMEOUT_S)
        if self._cluster is not None:
            self._cluster.close()

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


def _list_topics(topology: ResolvedTopology) -> frozenset[str]:
    """Return the source topics, and the sink topics, whose partition counts partitioners use."""
    return topology.source_topics.union(*(one.sink_topics for one in topology.subtopologies.values()))
