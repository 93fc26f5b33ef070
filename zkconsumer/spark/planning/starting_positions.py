"""Start positions of acquired partitions, and the checks for records that were deleted before the query read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set

from zkconsumer.broker import protocol
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import RetriableError
from zkconsumer.fetcher.partition import RESET_TIMESTAMPS
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.retry import retrying
from zkconsumer.spark.data_loss import new_partition_truncated, start_offset_deleted, topic_recreated, topics_deleted
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.starting_offsets import StartPosition, StartSource, resolve
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.end_offsets import IDLE_INTERVAL, EndOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.skipped_records import SkippedRecords
from zkconsumer.spark.planning.standalone_member import StandaloneReader
from zkconsumer.spark.planning.topic_ids import TopicIds
from zkconsumer.zookeeper.registry import GroupPaths

#: Number of deleted topics that are remembered. If one of them is created again, its records are read from the
#: beginning, whatever offsets were committed for the deleted topic.
_MAX_DELETED_TOPICS = 20


class StartingPositions:
    """Resolves start positions, and resets the positions of re-created topics. Used by Spark's thread."""

    def __init__(
        self,
        options: SourceOptions,
        subscription: Subscription,
        member: GroupMember | StandaloneReader,
        logs: LogOffsets,
        available: AvailableOffsets,
        topic_ids: TopicIds,
        tracker: PartitionTracker,
        ends: EndOffsets,
        skipped: SkippedRecords,
        log: Logger,
    ) -> None:
        self._options = options
        self._config = options.consumer
        self._subscription = subscription
        self._member = member
        self._logs = logs
        self._available_offsets = available
        self._topic_ids = topic_ids
        self._tracker = tracker
        self._ends = ends
        self._skipped = skipped
        self._log = log

    # ---- topics ----

    def check_topics(self) -> None:
        """Detect deleted and re-created topics. The latter are read again from their log start offsets.

        Raises:
            DataLossError: a topic was deleted or re-created, and ``failOnDataLoss`` is set.
            RetriableError: ZooKeeper or the brokers do not answer.
        """
        exclude_internal = self._config.exclude_internal_topics
        topics = [t for t in self._tracker.topics() if self._subscription.wants(t, exclude_internal)]
        changes = self._topic_ids.check(topics)
        self._forget_deleted_topics()
        self._tracker.set_deleted_topics(self._topic_ids.deleted)
        if changes.deleted:
            self._skipped.lose(topics_deleted(changes.deleted, self._unread(changes.deleted)))
        for topic, ids in sorted(changes.recreated.items()):
            if topic not in changes.reported:
                self._skipped.lose(topic_recreated(topic, *ids, self._unread({topic})))
        if changes.recreated:
            self._ends.forget_target()
            self._tracker.reset_topics(changes.recreated)

    def _forget_deleted_topics(self) -> None:
        """Forget all but the last deleted topics, so that the offset does not grow with the number of deletions."""
        excess = len(self._topic_ids.deleted) - _MAX_DELETED_TOPICS
        if excess > 0:
            oldest = list(self._topic_ids.deleted)[:excess]
            for topic in self._tracker.forget_topics(oldest):
                self._topic_ids.forget(topic)

    def _unread(self, topics: Set[str]) -> dict[TopicPartition, int]:
        """Return the number of unread offsets of each partition of topics, according to the last known end offsets."""
        reached, ends = self._tracker.planned_until(), self._ends.latest
        return {p: ends[p] - reached[p] for p in reached.keys() & ends.keys() if p.topic in topics}

    def replaced_topics(self, ids: Mapping[str, str]) -> set[str]:
        """Return the topics that were deleted, or re-created since they had these ids.

        Blocks until the topics have been checked, for up to ``clusterUnavailableTimeout`` if ZooKeeper or the brokers
        do not answer.

        Raises:
            DataLossError: see ``check_topics``.
        """
        if ids and not self._topic_ids.is_checked:  # a batch is replayed after a restart
            check = retrying(self._options.unavailable_timeout)
            check(self.check_topics)
            while self._topic_ids.is_uncertain:
                time.sleep(IDLE_INTERVAL)
                check(self.check_topics)
        return self._topic_ids.replaced(ids)

    # ---- start positions ----

    def resolve(self, *, is_ending: bool) -> None:
        """Look up the offsets of pending start positions, and check that the logs contain them.

        A start position that comes neither from the checkpoint nor from the group is committed at once. If the
        partition moves to another member before its first batch has finished, that member must find this offset: its
        own ``auto.offset.reset`` could skip the records of this batch.

        Partitions whose leaders do not respond remain pending while others can be read, unless the query is ending.

        Raises:
            DataLossError: a log starts after a start position, and ``failOnDataLoss`` is set. It is raised before the
                range is written to Spark's offset log, because each restart would fail with a range from that log.
            ZkConsumerError: an offset could not be looked up or committed.
        """
        pending = self._tracker.pending_starts()
        self._available_offsets.retain({*pending, *self._tracker.positions()})
        if not pending:
            return
        log_starts = self._log_starts(pending, is_ending=is_ending)
        starts = {partition: start for partition, start in pending.items() if partition in log_starts}
        if not starts:
            return
        wanted = resolve(starts, self._logs, RESET_TIMESTAMPS[self._config.auto_offset_reset])
        offsets = {p: self._available(p, offset, log_starts[p]) for p, offset in wanted.items()}
        for partition, start in starts.items():
            if start.source is StartSource.NEW_PARTITION and offsets[partition] > 0:
                self._skipped.lose(new_partition_truncated(partition, offsets[partition]))
        if self._options.commits:
            unknown = {
                p for p, start in starts.items() if start.source not in (StartSource.CHECKPOINT, StartSource.GROUP)
            }
            self._commit(starts, offsets, unknown | {p for p, offset in offsets.items() if offset != wanted[p]})
        self._tracker.set_positions(starts, offsets)
        self._log.info(
            "start_positions_resolved",
            offsets={str(p): f"{offset} ({starts[p].source.value})" for p, offset in sorted(offsets.items())},
        )

    def _log_starts(self, partitions: Iterable[TopicPartition], *, is_ending: bool) -> dict[TopicPartition, int]:
        """Return the log start offsets of available partitions; empty if there are none but other ones can be read."""
        try:
            return self._available_offsets.find(partitions, protocol.EARLIEST, all_=is_ending)
        except RetriableError:
            if is_ending or not self._tracker.positions():
                raise
            return {}

    def _commit(
        self,
        starts: Mapping[TopicPartition, StartPosition],
        offsets: Mapping[TopicPartition, int],
        partitions: Set[TopicPartition],
    ) -> None:
        """Commit the offsets of partitions, except those that have been revoked since ``starts`` was taken."""
        if partitions:
            self._member.commit(
                lambda: {p: offsets[p] for p in partitions & self._tracker.still_pending(starts)},
                allow_lower=True,
                timeout_s=self._config.zookeeper_connection_timeout_s,
            )

    def _available(self, partition: TopicPartition, offset: int, log_start: int) -> int:
        """Return the offset, or the log start offset if that is higher and records may be skipped."""
        if offset >= log_start:
            return offset
        path = GroupPaths(self._config.group_id).offset(partition)
        remedy = f"To start at the log start offset, set {path} in ZooKeeper to {log_start} and restart the query."
        self._skipped.lose(start_offset_deleted(partition, offset, log_start, remedy))
        return log_start
