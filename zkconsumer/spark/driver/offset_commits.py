"""Commits the group's offsets of finished batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import ZkConsumerError
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.spark.driver.partition_tracker import PartitionTracker
from zkconsumer.spark.driver.progress import Progress
from zkconsumer.spark.driver.standalone_reader import StandaloneReader


class OffsetCommits:
    """Commits the offsets of finished batches that the tracker reports as uncommitted.

    Used by Spark's thread, and by the thread of the ``DriverLink``; a lock lets one of them commit at a time.

    Args:
        timeout_s: maximum seconds for one commit, including the rest of a running rebalance.
    """

    def __init__(
        self,
        member: GroupMember | StandaloneReader,
        tracker: PartitionTracker,
        progress: Progress,
        log: Any,
        *,
        timeout_s: float,
    ) -> None:
        self._member = member
        self._tracker = tracker
        self._progress = progress
        self._log = log
        self._timeout_s = timeout_s
        self._has_failed = False
        self._lock = threading.Lock()

    @property
    def is_pending(self) -> bool:
        """Whether a commit is still needed: offsets are uncommitted, or the last rebalance has failed."""
        return bool(self._tracker.uncommitted()) or self._member.unbalanced_since is not None

    def commit(self, offset: Mapping[str, Any]) -> None:
        """Record that the batch of ``offset`` has finished, and try once to commit. Never raises."""
        with self._lock:
            self._commit(offset)

    def _commit(self, offset: Mapping[str, Any]) -> None:
        partitions = self._tracker.finish(offset)
        if not partitions:
            return
        try:
            committed = self._member.commit(self._tracker.uncommitted, timeout=self._timeout_s)
        except ZkConsumerError as error:
            self._progress.record_failed_commit()
            if not self._has_failed:  # logged once, because Spark calls this about 90 times per second
                self._has_failed = True
                self._log.warning("offset_commit_failed", error=str(error), partitions=partitions)
            return
        self._has_failed = False
        self._progress.record_commit()
        if self._tracker.record_commit(committed):
            self._member.wake()
