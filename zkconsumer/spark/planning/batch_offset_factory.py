"""Creates the offsets of planned batches for Spark's offset log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.planning.batch_shares import BatchShares
from zkconsumer.spark.planning.member import Member
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.query_topics import QueryTopics


class BatchOffsetFactory:
    """Creates the Spark offset of each planned batch, and records the batch in the tracker. Used by Spark's thread.

    Args:
        group_id: consumer group of the query.
        stores_lags: whether offsets contain the lags after the batch, and the time when it was planned.
    """

    def __init__(
        self,
        group_member: Member,
        tracker: PartitionTracker,
        topics: QueryTopics,
        shares: BatchShares,
        *,
        group_id: str,
        stores_lags: bool,
    ) -> None:
        self._group_member = group_member
        self._tracker = tracker
        self._topics = topics
        self._shares = shares
        self._group_id = group_id
        self._stores_lags = stores_lags

    def create(
        self, start: Mapping[str, Any], ranges: Ranges, ends: Mapping[TopicPartition, int]
    ) -> dict[str, Any] | None:
        """Return the offset of a batch of ``ranges``; None if all of its partitions have been revoked.

        Args:
            start: offset of the previous batch.
            ends: log end offsets, from which the lags are computed.

        Raises:
            ZooKeeperUnavailableError: ZooKeeper did not confirm the session in time, so another member may own the
                partitions.
        """
        # The member thread may be blocked, and may not have reported lost partitions yet.
        if not self._group_member.holds_lease:
            raise ZooKeeperUnavailableError("ZooKeeper did not confirm the session in time; no batch was planned")
        ranges, existing, earlier_ends = self._tracker.plan(ranges)
        if not ranges:
            return None
        ends = ends if self._stores_lags else {}
        offset = BatchOffset(
            ranges=ranges,
            generation=self._group_member.rebalances,
            group=self._group_id,
            known=frozenset(existing),
            topic_ids=self._topics.ids,
            deleted_topics=tuple(self._topics.deleted),
            earlier_ends=earlier_ends,
            planned_ms=time.time_ns() // 1_000_000 if ends else 0,
            lags={p: max(0, ends[p] - until) for p, (_, until) in ranges.items() if p in ends},
            idle=self._shares.idle,
            sequence=BatchOffset.from_json(start).sequence + 1,
        )
        return offset.to_json()
