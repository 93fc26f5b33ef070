"""Plans batches: determines the ranges of a batch from the positions and the log end offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.planning.batch_offset_factory import BatchOffsetFactory
from zkconsumer.spark.planning.batch_shares import BatchShares
from zkconsumer.spark.planning.end_offsets import EndOffsets
from zkconsumer.spark.planning.query_member import QueryMember
from zkconsumer.spark.planning.query_topics import QueryTopics
from zkconsumer.spark.planning.starting_positions import StartingPositions


@dataclass(frozen=True, slots=True)
class Batch:
    """A planned batch.

    Attributes:
        end: the batch's offset for Spark's offset log.
    """

    end: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NothingToRead:
    """No batch: there are no records to read, or a limit such as ``minOffsetsPerTrigger`` delays them.

    If the query is bounded, it has read all of its records.

    Attributes:
        is_delayed: whether there are unread records, which a limit delays.
    """

    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """No batch yet: a limit delays the records, partitions were revoked, or it is unknown whether there are records."""


class TriggerKind(Enum):
    """What is known about the trigger of a query when a batch is planned."""

    #: Further batches follow, so a batch need not contain all unread offsets.
    REPEATED = auto()
    #: The batch is the only one (Trigger.Once), so it must contain all unread offsets.
    ONCE = auto()
    #: The batch may be the only one. It waits for all partitions, and the limits that the user set apply.
    UNKNOWN = auto()


class BatchPlanner:
    """Plans batches for the partitions that the query owns. Used by Spark's thread."""

    def __init__(
        self,
        member: QueryMember,
        topics: QueryTopics,
        starting_positions: StartingPositions,
        ends: EndOffsets,
        shares: BatchShares,
        offsets: BatchOffsetFactory,
    ) -> None:
        self._member = member
        self._topics = topics
        self._starting_positions = starting_positions
        self._ends = ends
        self._shares = shares
        self._offsets = offsets

    @property
    def is_bounded(self) -> bool:
        """Whether the query ends at the end offsets that the first plan after ``fix_target`` finds."""
        return self._ends.has_target

    def fix_target(self) -> None:
        """End the query at the end offsets that the next plan finds."""
        self._ends.fix_target()

    def start(self, batch: BatchOffset) -> Ranges:
        """Return the ranges of a batch that is about to run; see ``QueryTopics.start_batch``."""
        return self._topics.start_batch(batch)

    def plan(
        self, start: Mapping[str, Any], max_offsets: int | None, trigger: TriggerKind
    ) -> Batch | NothingToRead | PlanAgain:
        """Plan the batch after ``start``.

        Args:
            max_offsets: maximum number of offsets in the batch; None for no limit.

        Raises:
            DataLossError: records were deleted, and ``failOnDataLoss`` is set.
            ZkConsumerError: planning failed, for example because ZooKeeper or the brokers did not respond.
        """
        is_ending = self._ends.has_target or trigger is not TriggerKind.REPEATED
        self._topics.check()
        if is_ending and self._topics.is_uncertain:
            return PlanAgain()
        positions = self._starting_positions.resolve(is_ending=is_ending)
        if not positions:
            return self._plan_without_positions() if is_ending else NothingToRead()
        ends = self._ends.look_up(positions, is_ending=is_ending)
        if self._ends.detect_decrease(positions, ends) and is_ending:
            self._ends.reset_target()
            return PlanAgain()
        aligns = trigger is not TriggerKind.ONCE
        available = self._shares.find_available(positions, ends, aligns=aligns, closed=self._ends.has_target)
        shares = self._shares.divide(available, positions, ends, max_offsets, at_once=is_ending)
        self._ends.is_idle = not shares
        if not shares:
            is_delayed = any(ends.get(p, at) > at for p, at in positions.items())
            # maxBytesPerSecond may allow a batch later. maxAlignmentLag allows one when the other partitions are idle.
            if (self._ends.has_target and any(available.values())) or (trigger is TriggerKind.UNKNOWN and is_delayed):
                return PlanAgain()
            return NothingToRead(is_delayed)
        ranges = {p: (at, at + shares.get(p, 0)) for p, at in positions.items()}
        end = self._offsets.create(start, ranges, ends)
        return PlanAgain() if end is None else Batch(end)

    def _plan_without_positions(self) -> NothingToRead | PlanAgain:
        """Determine whether an ending query that has no positions has read everything.

        Raises:
            ZooKeeperUnavailableError: the query may own partitions again after the next rebalance.
        """
        is_unbalanced = self._ends.target is None and self._member.group_member.unbalanced_since is not None
        if self._member.is_reassigning() or is_unbalanced:
            raise ZooKeeperUnavailableError("the group is rebalancing, and no partition is assigned to the query yet")
        self._topics.check()  # a topic may have been deleted since the last check
        if self._topics.is_uncertain:
            return PlanAgain()
        self._member.warn_if_unassigned()
        return NothingToRead()
