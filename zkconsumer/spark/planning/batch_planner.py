"""Plans batches: computes the offset for Spark's offset log from the positions and the log end offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.alignment import Alignment
from zkconsumer.spark.planning.batch_limiter import BatchLimiter
from zkconsumer.spark.planning.end_offsets import IDLE_INTERVAL, EndOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.progress import Progress
from zkconsumer.spark.planning.sampling import sample
from zkconsumer.spark.planning.standalone_member import StandaloneReader
from zkconsumer.spark.planning.starting_positions import StartingPositions
from zkconsumer.spark.planning.topic_ids import TopicIds


class BatchPlanner:
    """Plans batches of the partitions that the query owns. Used by Spark's thread.

    Args:
        is_reassigning: returns whether partitions are moving between members; the query may then own none.
        idle: partitions that were idle before a restart.
    """

    def __init__(
        self,
        options: SourceOptions,
        member: GroupMember | StandaloneReader,
        logs: LogOffsets,
        topic_ids: TopicIds,
        tracker: PartitionTracker,
        ends: EndOffsets,
        starting_positions: StartingPositions,
        progress: Progress,
        is_reassigning: Callable[[], bool],
        idle: Iterable[TopicPartition],
    ) -> None:
        self.alignment = Alignment.from_options(options, logs, idle)
        self._group_id = options.consumer.group_id
        self._member = member
        self._logs = logs
        self._topic_ids = topic_ids
        self._tracker = tracker
        self._ends = ends
        self._starting_positions = starting_positions
        self._progress = progress
        self._is_reassigning = is_reassigning
        self._limiter = BatchLimiter(options.limits, time.monotonic)

    def plan(self, start: dict[str, Any], max_offsets: int | None, *, is_last: bool) -> dict[str, Any] | None:
        """Return the end of the next batch, or ``start`` if there is nothing to read, or None to plan again.

        Returns None if all partitions were revoked meanwhile, or if ``start`` would end a query with
        Trigger.AvailableNow or Trigger.Once although there may be more to read.

        Args:
            max_offsets: maximum number of offsets of the batch; None for no limit.
            is_last: the query runs only this batch (Trigger.Once), so the batch must contain all unread offsets.

        Raises:
            DataLossError: records were deleted, and ``failOnDataLoss`` is set.
            ZkConsumerError: ZooKeeper or the brokers do not answer.
        """
        is_ending = self._ends.is_bounded or is_last
        self._starting_positions.check_topics()
        if is_ending and self._topic_ids.is_uncertain:
            _back_off()
            return None
        self._starting_positions.resolve(is_ending=is_ending)
        positions = self._tracker.positions()
        if not positions:
            return self._plan_without_positions(start) if is_ending else start
        ends = self._ends.look_up(positions, is_ending=is_ending)
        if self._ends.are_behind(positions, ends) and is_ending:
            self._ends.forget_target()
            _back_off()
            return None
        available = self._available(positions, ends, is_last=is_last)
        shares = self._admit(available, positions, ends, max_offsets, at_once=is_ending)
        self._ends.is_idle = not shares
        self._progress.sample_sizes({partition: positions[partition] for partition in shares})
        if not shares:
            if not (self._ends.is_bounded and any(available.values())):
                return start
            _back_off()  # until maxBytesPerSecond allows more
            return None
        ranges = {p: (position, position + shares.get(p, 0)) for p, position in positions.items()}
        return self._offset(start, ranges)

    def _plan_without_positions(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return ``start`` if a query that ends has read everything, or None to plan again.

        Raises:
            ZooKeeperUnavailableError: the query may own partitions again after the next rebalance.
        """
        is_unbalanced = self._ends.target is None and self._member.unbalanced_since is not None
        if self._is_reassigning() or is_unbalanced:
            raise ZooKeeperUnavailableError("the group is rebalancing, and no partition is assigned to the query yet")
        self._starting_positions.check_topics()  # a topic may have been deleted since the last check
        return None if self._topic_ids.is_uncertain else start

    def _available(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, is_last: bool
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that each partition may read; event-time alignment may hold some back."""
        bounds = ends
        if self.alignment is not None and not is_last:
            bounds = self.alignment.limit_ends(positions, ends, closed=self._ends.is_bounded)
        return {p: max(0, bounds.get(p, position) - position) for p, position in positions.items()}

    def _admit(
        self,
        available: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        max_offsets: int | None,
        *,
        at_once: bool,
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that the batch reads of each partition."""

        def sizes(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
            samples = sample(self._logs, {partition: positions[partition] for partition in partitions})
            return {partition: sampled.bytes_per_offset for partition, sampled in samples.items()}

        return self._limiter.limit(
            available,
            max_offsets=max_offsets,
            backlog=sum(max(0, ends.get(p, position) - position) for p, position in positions.items()),
            at_once=at_once,
            sizes=sizes,
        )

    def _offset(self, start: dict[str, Any], ranges: Ranges) -> dict[str, Any] | None:
        """Return the offset of a batch with the ranges, or None if all of its partitions were revoked meanwhile."""
        if not self._member.holds_lease:  # another member may own them; the member's thread may be blocked
            raise ZooKeeperUnavailableError("ZooKeeper has not confirmed the session in time; no batch is planned")
        ranges, existing, earlier_ends = self._tracker.plan(ranges)
        if not ranges:
            return None
        offset = BatchOffset(
            ranges=ranges,
            generation=self._member.rebalances,
            group=self._group_id,
            known=frozenset(existing),
            topic_ids=self._topic_ids.ids,
            deleted_topics=tuple(self._topic_ids.deleted),
            earlier_ends=earlier_ends,
            idle=self.alignment.idle if self.alignment is not None else frozenset(),
            sequence=BatchOffset.from_json(start).sequence + 1,
        )
        return offset.to_json()


def _back_off() -> None:
    """Wait before planning again."""
    time.sleep(IDLE_INTERVAL)
