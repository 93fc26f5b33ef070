"""Resolves the start positions of acquired partitions, and detects records that were deleted before they were read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import RetriableError
from zkconsumer.fetcher.partition import RESET_TIMESTAMPS
from zkconsumer.log import Logger
from zkconsumer.log_ends import EARLIEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import new_partition_truncated, start_offset_deleted
from zkconsumer.spark.options.starting_offsets import StartSource, resolve
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.planner_commits import PlannerCommits
from zkconsumer.spark.planning.skipped_records import SkippedRecords
from zkconsumer.zookeeper.registry import GroupPaths


class StartingPositions:
    """Resolves start positions. Used by Spark's thread.

    Args:
        available: lookup of log start offsets that omits unavailable partitions.
        commits: commits start positions for the group; None if offsets are not committed.
    """

    def __init__(
        self,
        tracker: PartitionTracker,
        available: AvailableOffsets,
        skipped: SkippedRecords,
        commits: PlannerCommits | None,
        config: ConsumerConfig,
        log: Logger,
    ) -> None:
        self._tracker = tracker
        self._available_offsets = available
        self._skipped = skipped
        self._commits = commits
        self._config = config
        self._log = log

    def resolve(self, *, is_ending: bool) -> dict[TopicPartition, int]:
        """Resolve pending start positions, and return the next batch's start offset for each partition with a position.

        The offsets of pending start positions are looked up, and the logs must contain them.

        With ``commitOffsets``, a start position that comes neither from the checkpoint nor from the group is committed
        immediately. If the partition moves to another member before its first batch has finished, that member must find
        this offset: its own ``auto.offset.reset`` could skip the batch's records.

        Unavailable partitions remain pending while other partitions can be read, unless the query is ending.

        Raises:
            DataLossError: records were deleted before they were read, and ``failOnDataLoss`` is set. It is raised
                before a range with these records is written to Spark's offset log, because otherwise every restart
                would fail.
            ZkConsumerError: an offset could not be looked up or committed.
        """
        self._resolve_pending(is_ending=is_ending)
        return self._tracker.positions()

    def _resolve_pending(self, *, is_ending: bool) -> None:
        pending = self._tracker.pending_starts()
        self._available_offsets.retain({*pending, *self._tracker.positions()})
        if not pending:
            return
        log_starts = self._find_log_starts(pending, is_ending=is_ending)
        starts = {partition: start for partition, start in pending.items() if partition in log_starts}
        if not starts:
            return
        find_offsets = partial(self._available_offsets.find, all_=True)
        wanted = resolve(starts, find_offsets, RESET_TIMESTAMPS[self._config.auto_offset_reset])
        offsets = {p: self._limit_to_log(p, offset, log_starts[p]) for p, offset in wanted.items()}
        for partition, start in starts.items():
            if start.source is StartSource.NEW_PARTITION and offsets[partition] > 0:
                self._skipped.lose(new_partition_truncated(partition, offsets[partition]))
        if self._commits is not None:
            new = {
                p: offset
                for p, offset in offsets.items()
                if starts[p].source not in (StartSource.CHECKPOINT, StartSource.GROUP) or offset != wanted[p]
            }
            self._commits.commit_starts(starts, new)
        self._tracker.set_positions(starts, offsets)
        self._log.info(
            "start_positions_resolved",
            offsets={str(p): f"{offset} ({starts[p].source.value})" for p, offset in sorted(offsets.items())},
        )

    def _find_log_starts(self, partitions: Iterable[TopicPartition], *, is_ending: bool) -> dict[TopicPartition, int]:
        """Return the log start offsets of available partitions.

        Empty if none of ``partitions`` is available, but other partitions can be read.
        """
        try:
            return self._available_offsets.find(partitions, EARLIEST, all_=is_ending)
        except RetriableError:
            if is_ending or not self._tracker.positions():
                raise
            return {}

    def _limit_to_log(self, partition: TopicPartition, offset: int, log_start: int) -> int:
        """Return ``offset``, or ``log_start`` if it is higher; the records in between are counted as lost.

        Raises:
            DataLossError: ``log_start`` is higher, and ``failOnDataLoss`` is set.
        """
        if offset >= log_start:
            return offset
        path = GroupPaths(self._config.group_id).offset(partition)
        remedy = f"To start at the log start offset, set {path} in ZooKeeper to {log_start} and restart the query."
        self._skipped.lose(start_offset_deleted(partition, offset, log_start, remedy))
        return log_start
