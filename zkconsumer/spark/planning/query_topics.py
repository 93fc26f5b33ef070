"""Handles deleted and re-created topics of a query."""

from __future__ import annotations

from collections.abc import Mapping, Set

from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.data_loss import topic_recreated, topics_deleted
from zkconsumer.spark.executor.task_reports import SkippedRange
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.planning.end_offsets import IDLE_INTERVAL_S, EndOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.query_member import QueryMember
from zkconsumer.spark.planning.skipped_records import SkippedRecords
from zkconsumer.spark.planning.topic_ids import TopicIds

#: Maximum number of deleted topics to remember. If one of them is re-created, it is read from the beginning, regardless
#: of the offsets that were committed for the deleted topic.
_MAX_DELETED_TOPICS = 20


class QueryTopics:
    """Detects deleted and re-created topics, and resets the positions of re-created topics. Used by Spark's thread.

    Args:
        unavailable_timeout_s: maximum time that ZooKeeper or the brokers may be unreachable, in seconds.
    """

    def __init__(
        self,
        member: QueryMember,
        tracker: PartitionTracker,
        topic_ids: TopicIds,
        ends: EndOffsets,
        skipped: SkippedRecords,
        *,
        unavailable_timeout_s: float,
    ) -> None:
        self._member = member
        self._tracker = tracker
        self._topic_ids = topic_ids
        self._states = topic_ids.states
        self._ends = ends
        self._skipped = skipped
        self._unavailable_timeout_s = unavailable_timeout_s
        self._tracker.set_deleted_topics(self._states.deleted)

    @property
    def ids(self) -> dict[str, str]:
        """The topic ids by topic name; topics without an id are omitted."""
        return self._states.ids

    @property
    def deleted(self) -> list[str]:
        """The most recently deleted topics, in order of deletion."""
        return self._states.deleted

    @property
    def is_uncertain(self) -> bool:
        """Whether a topic is missing, but not considered deleted yet."""
        return self._topic_ids.is_uncertain

    def check(self) -> None:
        """Detect deleted and re-created topics. Re-created topics are read from their log start offsets.

        Raises:
            DataLossError: a topic was deleted or re-created, and ``failOnDataLoss`` is set.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        changes = self._topic_ids.check(filter(self._member.wants, self._tracker.topics()))
        self._forget_deleted_topics()
        self._tracker.set_deleted_topics(self._states.deleted)
        if changes.deleted:
            self._skipped.lose(topics_deleted(changes.deleted, self._count_unread(changes.deleted)))
        for topic, ids in sorted(changes.recreated.items()):
            if topic not in changes.reported:
                self._skipped.lose(topic_recreated(topic, *ids, self._count_unread({topic})))
        if changes.recreated:
            self._ends.reset_target()
            self._tracker.reset_topics(changes.recreated)

    def _forget_deleted_topics(self) -> None:
        """Forget all but the most recently deleted topics, so that batch offsets do not grow with each deletion."""
        excess = len(self._states.deleted) - _MAX_DELETED_TOPICS
        if excess > 0:
            for topic in self._tracker.forget_topics(self._states.deleted[:excess]):
                self._states.forget(topic)

    def _count_unread(self, topics: Set[str]) -> dict[TopicPartition, int]:
        """Return the number of unread offsets in each partition of ``topics``, based on the last known end offsets."""
        planned_until, ends = self._tracker.planned_until(), self._ends.latest
        return {p: ends[p] - planned_until[p] for p in planned_until.keys() & ends.keys() if p.topic in topics}

    def start_batch(self, batch: BatchOffset) -> Ranges:
        """Return the ranges of a batch that is about to run, without deleted or re-created topics.

        The records of these topics are counted as lost. Blocks until the topics are checked. If ZooKeeper or the
        brokers do not respond, the check is retried for up to ``clusterUnavailableTimeout``.

        Raises:
            DataLossError: see ``check``.
            RetriableError: ZooKeeper or the brokers did not respond within ``clusterUnavailableTimeout``.
            ClosedError: the query is being stopped.
        """
        replaced = self._find_replaced(batch.topic_ids)
        ranges = {partition: span for partition, span in batch.ranges.items() if partition.topic not in replaced}
        self._skipped.start_batch(batch.ranges)
        self._skipped.record(
            SkippedRange(*partition, start, lost=until - start)
            for partition, (start, until) in batch.ranges.items()
            if partition not in ranges
        )
        return ranges

    def _find_replaced(self, ids: Mapping[str, str]) -> set[str]:
        """Return the deleted topics, and the topics that no longer have the given ids because they were re-created."""
        if ids and not self._topic_ids.is_checked:  # a batch is replayed after a restart
            check = retrying(self._unavailable_timeout_s, stop=self._member.stopping)
            check(self.check)
            while self.is_uncertain:
                self._member.wait(IDLE_INTERVAL_S)
                check(self.check)
        return self._states.find_replaced(ids)
