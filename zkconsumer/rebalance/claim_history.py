"""ClaimHistory: determines where to start reading claimed partitions, based on earlier claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from zkconsumer.config import ConsumerConfig
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.topic_id import is_same_topic
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.membership import Membership


@dataclass(frozen=True, slots=True)
class ClaimStarts:
    """Start offsets of claimed partitions.

    Attributes:
        partitions: claimed partitions, with their thread ids and start offsets.
        recreated: claimed partitions whose topic was re-created.
        topic_ids: topic ids by partition, read before the offsets.
    """

    partitions: dict[TopicPartition, AssignedPartition]
    recreated: Set[TopicPartition]
    topic_ids: Mapping[TopicPartition, str]


class ClaimHistory:
    """Records earlier claims, to decide whether a claimed partition is read from the beginning.

    A partition is read from the beginning, regardless of ``auto.offset.reset``, if its topic was re-created, or if it
    is new and ``auto.offset.reset.new.partitions`` is ``smallest``. Used by the member thread.

    Args:
        config: consumer configuration.
        cluster: cluster metadata, which contains the topic ids.
        membership: membership, which contains the assignments of the member and the group.
        committer: offset committer, used to fetch committed offsets.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, membership: Membership, committer: OffsetCommitter
    ) -> None:
        self._finds_new_partitions = config.auto_offset_reset_new_partitions == "smallest"
        self._cluster = cluster
        self._membership = membership
        self._committer = committer
        #: Topic ids at the time of the last claim, by currently or previously owned partition.
        self._topic_ids: dict[TopicPartition, str] = {}
        #: The group's partitions as of the last completed rebalance; None before the first.
        self._known: Set[TopicPartition] | None = None
        #: Released partitions whose topic was re-created while they were owned.
        self._recreated: set[TopicPartition] = set()
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def find_recreated(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions whose topic was re-created after they were claimed."""
        topic_ids = self._cluster.topic_ids
        return {p for p in partitions if not is_same_topic(self._topic_ids[p], topic_ids.get(p.topic, ""))}

    def find_deleted(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions whose topic does not exist."""
        topic_ids = self._cluster.topic_ids
        return {partition for partition in partitions if partition.topic not in topic_ids}

    def find_starts(self, claimed: Assignment) -> ClaimStarts:
        """Fetch the committed offsets of claimed partitions, and return where to start reading."""
        topic_ids = self._cluster.topic_ids
        offsets = self._committer.fetch(claimed)
        recreated = {p for p, offset in offsets.items() if offset == OF_DELETED_TOPIC or p in self._recreated}
        # Brokers delete a topic's committed offsets with the topic, so a re-created topic may have none in Kafka.
        recreated |= self.find_recreated(p for p, offset in offsets.items() if offset < 0 and p in self._topic_ids)
        new = recreated | self._find_new_partitions(offsets) if self._finds_new_partitions else recreated
        offsets.update(dict.fromkeys(recreated, -1))
        return ClaimStarts(
            {p: AssignedPartition(thread, offsets[p], p in new) for p, thread in claimed.items()},
            recreated,
            {p: topic_ids.get(p.topic, "") for p in claimed},
        )

    def _find_new_partitions(self, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions that are new and have no committed offset.

        A partition is new if it did not exist at the time of the last completed rebalance, or if other partitions of
        its topic have committed offsets.
        """
        without = {partition for partition, offset in offsets.items() if offset < 0}
        created = set() if self._known is None else without - self._known
        topics = {partition.topic for partition in without}
        others = {p for p in self._membership.group_assignment if p.topic in topics and p not in without}
        known = {partition.topic for partition, offset in self._committer.fetch(others).items() if offset >= 0}
        self._committer.forget(others - offsets.keys() - self._membership.assignment.keys())
        return created | {partition for partition in without if partition.topic in known}

    def record_claims(self, starts: ClaimStarts) -> None:
        """Record that the member owns the claimed partitions."""
        self._topic_ids.update(starts.topic_ids)
        if starts.recreated:
            self._log.warning("topic_recreated", partitions=[str(partition) for partition in sorted(starts.recreated)])
            for partition in starts.recreated:
                self._committer.allow_lower_once(partition)

    def record_release(self, recreated: Set[TopicPartition]) -> None:
        """Record released partitions whose topic was re-created while they were owned."""
        self._recreated |= recreated

    def forget_unassigned(self, target: Set[TopicPartition]) -> None:
        """Forget released partitions that are not in ``target``, because other members now read them."""
        self._recreated &= target

    def record_rebalance(self, assignment: Assignment) -> None:
        """Record that the rebalance to the group assignment ``assignment`` is complete."""
        self._known = assignment.keys()
        self._recreated.clear()
