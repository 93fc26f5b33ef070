"""Tracks the partitions of a query: ownership, positions, and in-flight batches.

Spark's thread plans batches with it, and the member thread acquires and releases partitions. Each method runs
atomically under one lock and does no I/O.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.spark.offset import BatchOffset, Ranges, from_offset, total
from zkconsumer.spark.options.starting_offsets import StartingOffsets, StartPosition, StartSource
from zkconsumer.spark.planning.partition_state import AT_LOG_START, PartitionRecord, PartitionState


class PartitionTracker:
    """Holds a ``PartitionRecord`` for each known partition, owned or not.

    See ``partition_state`` for the states and transitions.

    An acquired partition needs a position before a batch can contain it. The planner takes ``pending_starts``, looks up
    the offsets without holding the lock, and passes them to ``set_positions``. No batches are planned for partitions
    that another member is waiting for; they are released once their last batch is finished and committed. No batches
    are planned for partitions of deleted topics.

    The class has many methods, because every operation on the partitions needs its lock.

    Args:
        commits: whether offsets of finished batches are committed.
    """

    def __init__(self, starts: StartingOffsets, *, commits: bool) -> None:
        self._starts = starts
        self._commits = commits
        self._lock = threading.Lock()
        self._records: defaultdict[TopicPartition, PartitionRecord] = defaultdict(PartitionRecord)
        #: Whether the query has no checkpoint and has never acquired partitions.
        self._is_new = True
        self._deleted: frozenset[str] = frozenset()

    # ---- state ----

    def states(self) -> dict[TopicPartition, PartitionState]:
        """Return the state of each owned partition."""
        with self._lock:
            return {partition: record.state for partition, record in self._records.items() if record.is_owned}

    def planned_until(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition's last batch."""
        with self._lock:
            return {p: record.planned_until for p, record in self._records.items() if record.planned_until is not None}

    def topics(self) -> set[str]:
        """Return the topics that batches have read, or will read once start positions are resolved."""
        with self._lock:
            return {
                partition.topic
                for partition, record in self._records.items()
                if record.planned_until is not None or record.start is not None
            }

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next batch's start offset for each partition that the batch may contain."""
        with self._lock:
            return {
                partition: record.position
                for partition, record in self._records.items()
                if record.state is PartitionState.READY
                and record.position is not None
                and partition.topic not in self._deleted
            }

    def is_moving(self) -> bool:
        """Return whether a partition is being released, or was acquired and has no position yet."""
        with self._lock:
            return any(
                record.state is PartitionState.REVOKING
                or (record.state is PartitionState.CLAIMED and partition.topic not in self._deleted)
                for partition, record in self._records.items()
            )

    def lost_records(self) -> int:
        """Return the number of batch records that the next owners read again, because the session ended."""
        with self._lock:
            return sum(
                record.lost_range[1] - record.lost_range[0]
                for record in self._records.values()
                if record.lost_range is not None
            )

    # ---- batches ----

    def record_offset(self, offset: Mapping[str, Any]) -> None:
        """Record an offset from Spark's offset log; its batch may or may not have finished."""
        batch = BatchOffset.from_json(offset)
        with self._lock:
            for partition in batch.partitions:
                self._records[partition].exists = True
                self._is_new = False
            for partition, until in batch.ends.items():
                self._records[partition].advance(until)

    def plan(self, ranges: Ranges) -> tuple[Ranges, set[TopicPartition], dict[TopicPartition, int]]:
        """Plan a batch. Partitions revoked since ``positions`` was called are omitted.

        Returns:
            The ranges of the batch, empty if they contain no offsets; all existing partitions; and the end offsets of
            earlier batches for partitions that this batch does not contain.
        """
        with self._lock:
            ranges = {
                partition: span
                for partition, span in ranges.items()
                if self._records[partition].state is PartitionState.READY and partition.topic not in self._deleted
            }
            if not total(ranges):
                return {}, set(), {}
            for partition, (start, until) in ranges.items():
                self._records[partition].plan(start, until)
            existing, before = set(), {}
            for partition, record in self._records.items():
                if record.exists:
                    existing.add(partition)
                if record.planned_until is not None and partition not in ranges:
                    before[partition] = record.planned_until
            return ranges, existing, before

    def mark_in_flight(self, ranges: Ranges) -> None:
        """Record a batch that is about to run; see ``PartitionRecord.mark_in_flight``."""
        with self._lock:
            for partition, (start, until) in ranges.items():
                self._records[partition].mark_in_flight(start, until)

    def finish(self, offset: Mapping[str, Any]) -> None:
        """Record a finished batch."""
        with self._lock:
            for partition, (start, until) in from_offset(offset).items():
                record = self._records[partition]
                record.finish(start, until, commits=self._commits, restart=self._starts.restart)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Return the offsets to commit: the end offsets of finished batches, for partitions that are still owned."""
        with self._lock:
            return {
                p: record.uncommitted_until
                for p, record in self._records.items()
                if record.uncommitted_until is not None
            }

    def record_commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Record committed offsets; return whether another member is waiting for a partition."""
        with self._lock:
            for partition, offset in offsets.items():
                self._records[partition].record_commit(offset)
            return any(record.state is PartitionState.REVOKING for record in self._records.values())

    # ---- start positions ----

    def pending_starts(self) -> dict[TopicPartition, StartPosition]:
        """Return the start positions to resolve."""
        with self._lock:
            return {
                partition: record.start
                for partition, record in self._records.items()
                if record.state is PartitionState.CLAIMED
                and record.start is not None
                and partition.topic not in self._deleted
            }

    def still_pending(self, starts: Mapping[TopicPartition, StartPosition]) -> set[TopicPartition]:
        """Return the partitions whose start positions are still those in ``starts``."""
        with self._lock:
            return {partition for partition, start in starts.items() if self._records[partition].start is start}

    def set_positions(
        self, starts: Mapping[TopicPartition, StartPosition], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Set the positions of partitions whose start positions were resolved."""
        with self._lock:
            for partition, start in starts.items():
                if self._records[partition].start is start:
                    self._records[partition].resolve(offsets[partition])

    def set_deleted_topics(self, topics: Iterable[str]) -> None:
        """Replace the set of deleted topics."""
        with self._lock:
            self._deleted = frozenset(topics)

    def reset_topics(self, topics: Collection[str]) -> None:
        """Restart re-created topics at their log start offsets, and forget where earlier batches ended."""
        with self._lock:
            for partition, record in self._records.items():
                if partition.topic in topics:
                    record.forget_batches()
                    if record.is_owned:
                        record.reset()

    def forget_topics(self, topics: Collection[str]) -> set[str]:
        """Forget the deleted topics that have no owned partition, and return them."""
        with self._lock:
            owned = {partition.topic for partition, record in self._records.items() if record.is_owned}
            forgotten = {*topics} - owned
            for partition in [p for p in self._records if p.topic in forgotten]:
                del self._records[partition]
            return forgotten

    def reset_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Restart partitions at their log start offsets, because their logs end before their positions."""
        with self._lock:
            for partition in partitions:
                record = self._records[partition]
                if record.state is PartitionState.READY:
                    record.reset()
                    record.planned_until = None

    # ---- assignment ----

    def acquire(self, claims: Mapping[TopicPartition, AssignedPartition], existing: Set[TopicPartition]) -> int:
        """Mark partitions as owned, and set their start positions.

        Args:
            existing: all existing partitions to which the query subscribes.

        Returns:
            Number of records in this query's batches that other members have also read since the session ended.
        """
        reread = 0
        with self._lock:
            for partition, claim in claims.items():
                record = self._records[partition]
                if record.stale_planned_until is not None and claim.offset <= record.stale_planned_until:
                    start = AT_LOG_START
                elif record.was_assigned and record.planned_until is not None:  # another member may have read further
                    start = StartPosition(StartSource.CHECKPOINT, max(record.planned_until, claim.offset))
                else:
                    start = self._starts.start_position(
                        partition,
                        claim.offset,
                        checkpoint_offset=record.planned_until,
                        is_first_assignment=self._is_new,
                        is_new=claim.is_new or not (self._is_new or record.exists),
                    )
                reread += record.assign(start, claim.offset)
            for partition in existing:
                self._records[partition].exists = True
            self._is_new = False
        return reread

    def release(
        self, partitions: Set[TopicPartition], *, final: bool
    ) -> tuple[dict[TopicPartition, int], Ranges] | None:
        """Release partitions, unless one of them has a batch that is in flight or not committed.

        Args:
            final: whether to release them even if a batch is in flight or not committed.

        Returns:
            None if they were not released; otherwise the offsets to commit, and the in-flight ranges.
        """
        with self._lock:
            records = {partition: self._records[partition] for partition in partitions}
            for record in records.values():
                record.revoke()
            if not final and any(
                record.in_flight or record.uncommitted_until is not None for record in records.values()
            ):
                return None
            offsets: dict[TopicPartition, int] = {}
            in_flight: Ranges = {}
            for partition, record in records.items():
                uncommitted_until, span = record.release()
                if uncommitted_until is not None:
                    offsets[partition] = uncommitted_until
                if span is not None:
                    in_flight[partition] = span
            return offsets, in_flight

    def lose(self) -> None:
        """Mark all partitions as not owned, because the ZooKeeper session ended."""
        with self._lock:
            for record in self._records.values():
                record.lose()
