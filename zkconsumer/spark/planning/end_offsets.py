"""Log end offsets, up to which the next batches may read."""

from __future__ import annotations

import time
from collections.abc import Mapping

from zkconsumer.broker import protocol
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import end_offset_decreased
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.skipped_records import SkippedRecords

#: Minimum seconds for which end offsets are reused while there are no new records. Spark requests an offset about 90
#: times per second.
IDLE_INTERVAL = 0.05

#: Maximum share of a core that look-ups use while there are no new records. With many partitions, end offsets are
#: reused for longer, up to ``_MAX_IDLE_INTERVAL_S``.
_IDLE_CPU_SHARE = 0.05
_MAX_IDLE_INTERVAL_S = 1.0


class EndOffsets:
    """Looks up end offsets, and stores the target of a bounded query (Trigger.AvailableNow). Used by Spark's thread.

    Attributes:
        latest: last known end offsets of the partitions of the last look-up.
        target: end offsets at which a bounded query ends; None until they have been looked up.
        is_bounded: whether the query ends at the end offsets of its first look-up.
        is_idle: whether the last plan found no records to read.
    """

    def __init__(
        self,
        options: SourceOptions,
        logs: AvailableOffsets,
        tracker: PartitionTracker,
        skipped: SkippedRecords,
        log: Logger,
    ) -> None:
        self.latest: dict[TopicPartition, int] = {}
        self.target: dict[TopicPartition, int] | None = None
        self.is_bounded = False
        self.is_idle = False
        self._options = options
        self._logs = logs
        self._tracker = tracker
        self._skipped = skipped
        self._log = log
        self._available: dict[TopicPartition, int] = {}
        self._looked_up: set[TopicPartition] = set()
        self._valid_until = 0.0
        self._behind_since: float | None = None

    def bound(self) -> None:
        """End the query at the end offsets that the next look-up returns."""
        self.is_bounded, self.target = True, None

    def forget_target(self) -> None:
        """Look up the target of a bounded query again, because a log that it refers to was replaced."""
        self.target = None

    def look_up(self, positions: Mapping[TopicPartition, int], *, is_ending: bool) -> Mapping[TopicPartition, int]:
        """Return the end offsets for the next batch, for the partitions of ``positions`` and possibly others.

        Partitions whose leaders do not respond are absent, unless the query is ending and must read them.

        Raises:
            RetriableError: no leader responds, or the query is ending and not all of them do.
        """
        if self.target is not None:
            return self.target
        now = time.monotonic()
        is_recent = self.is_idle and positions.keys() <= self._looked_up and now < self._valid_until
        if not is_recent:
            started = time.thread_time()
            self._available = self._logs.find(positions, protocol.LATEST, all_=is_ending)
            self.latest = {p: end for p, end in self.latest.items() if p in positions} | self._available
            interval_s = (time.thread_time() - started) / _IDLE_CPU_SHARE
            self._looked_up = set(positions)
            self._valid_until = now + max(IDLE_INTERVAL, min(interval_s, _MAX_IDLE_INTERVAL_S))
        if self.is_bounded:
            self.target = dict(self._available)
        return self._available

    def are_behind(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a log ends before its position, which a leader change can cause for a short time.

        If this lasts longer than ``clusterUnavailableTimeout``, the partitions start again at their log start offsets.

        Raises:
            DataLossError: the timeout has expired, and ``failOnDataLoss`` is set.
        """
        behind = sorted(p for p, position in positions.items() if ends.get(p, position) < position)
        if not behind:
            self._behind_since = None
            return False
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        partition = behind[0]
        loss = end_offset_decreased(partition, positions[partition], ends[partition])
        if now - self._behind_since > self._options.unavailable_timeout:
            self._skipped.lose(loss)
            self._tracker.reset_partitions(behind)
            self._behind_since = None
        if self._behind_since == now:
            self._log.warning("end_offset_decreased", error=loss.text)
        return True
