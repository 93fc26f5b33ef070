"""Commits the offsets of finished batches and start positions for the group, in the planning process."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import Problem
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.starting_offsets import StartPosition
from zkconsumer.spark.planning.member import Member
from zkconsumer.spark.planning.partition_tracker import PartitionTracker


class PlannerCommits:
    """Commits start positions, and the offsets of finished batches that the tracker reports as uncommitted.

    Used by Spark's thread and the ``DriverLink`` thread. Only one of them commits finished batches at a time, without
    holding a lock. The committing thread counts these commits.

    Args:
        timeout_s: maximum seconds for one commit, including the remainder of a running rebalance.

    Attributes:
        problem: problem that made the last commit fail; None if it succeeded. Only the committing thread writes it;
            any thread may read it.
    """

    def __init__(self, group_member: Member, tracker: PartitionTracker, log: Logger, *, timeout_s: float) -> None:
        self._group_member = group_member
        self._tracker = tracker
        self._log = log
        self._timeout_s = timeout_s
        self.problem: Problem | None = None
        self._count = self._failed_count = 0
        self._committed_at: float | None = None  # ``time.monotonic`` of the last successful commit
        self._is_committing = False
        self._changed = threading.Condition()  # guards _is_committing

    @property
    def is_pending(self) -> bool:
        """Whether a commit may still be needed, because offsets are uncommitted or the last rebalance failed."""
        return bool(self._tracker.uncommitted()) or self._group_member.unbalanced_since is not None

    def state(self) -> dict[str, Any]:
        """Return the report entries: the numbers of commits and failed commits, and the age of the last commit."""
        age_s = None if self._committed_at is None else round(time.monotonic() - self._committed_at, 3)
        return {"commits": self._count, "commitsFailed": self._failed_count, "commitAgeSeconds": age_s}

    def commit(self, offset: Mapping[str, Any]) -> None:
        """Record that the batch of ``offset`` has finished, and try once to commit. Never raises.

        Returns immediately if the other thread is committing, because Spark's thread must not wait for it. If that
        commit does not include the batch, the next call commits it.
        """
        self._commit_after(offset, max_wait_s=0.0)

    def commit_reported(self, offset: Mapping[str, Any]) -> None:
        """Record a finished batch and commit, like ``commit``, but wait if the other thread is committing."""
        self._commit_after(offset, max_wait_s=self._timeout_s)

    def _commit_after(self, offset: Mapping[str, Any], *, max_wait_s: float) -> None:
        self._tracker.finish(offset)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_committing, max_wait_s):
                return
            self._is_committing = True
        try:
            if partitions := self._tracker.uncommitted():  # the other thread may have committed them
                self._commit(len(partitions))
            else:
                self.problem = None
        finally:
            with self._changed:
                self._is_committing = False
                self._changed.notify()

    def _commit(self, partitions: int) -> None:
        try:
            self._group_member.commit(
                self._tracker.uncommitted, timeout_s=self._timeout_s, on_committed=self._record_committed
            )
        except ZkConsumerError as error:
            self._failed_count += 1
            is_new = self.problem is None
            self.problem = Problem.again(self.problem, "commit_failed", error)
            if is_new:  # logged once, because Spark calls this about 90 times per second
                self._log.warning("offset_commit_failed", error=str(error), partition_count=partitions)
            return
        self.problem = None
        self._count += 1
        self._committed_at = time.monotonic()

    def commit_starts(
        self, starts: Mapping[TopicPartition, StartPosition], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit the offsets of start positions, except those that changed since ``starts`` was read.

        Called by Spark's thread, possibly while the other thread commits finished batches.

        Raises:
            ZkConsumerError: the commit failed.
        """
        if offsets:
            self._group_member.commit(
                lambda: {p: offsets[p] for p in offsets.keys() & self._tracker.still_pending(starts)},
                allow_lower=True,
                timeout_s=self._timeout_s,
            )

    def _record_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Record committed offsets; called by the member before a partition can be released and claimed again."""
        if self._tracker.record_commit(committed):
            self._group_member.wake()
