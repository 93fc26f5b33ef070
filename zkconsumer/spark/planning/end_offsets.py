"""Looks up log end offsets, which limit the next batches."""

from __future__ import annotations

import time
from collections.abc import Mapping

from zkconsumer.log import Logger
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import end_offset_decreased
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.skipped_records import SkippedRecords

#: Minimum seconds to reuse end offsets while there are no new records, and seconds between retries of planning,
#: topic checks and commits. Spark requests an offset about 90 times per second.
IDLE_INTERVAL_S = 0.05

#: Maximum share of one core to use for lookups while there are no new records. With many partitions, end offsets are
#: reused for longer, up to ``_MAX_IDLE_INTERVAL_S``.
_IDLE_CPU_SHARE = 0.05
_MAX_IDLE_INTERVAL_S = 1.0


class EndOffsets:
    """Looks up end offsets, and stores the target of a bounded query (Trigger.AvailableNow). Used by Spark's thread.

    Args:
        unavailable_timeout_s: seconds after which records are considered lost if the log end offset decreased.

    Attributes:
        latest: last known end offsets of the partitions in the last lookup.
        has_target: whether the query is bounded, so that it ends at ``target``.
        target: end offsets at which a bounded query ends; None until they are looked up.
        is_idle: whether the last plan found no records to read.
    """

    def __init__(
        self,
        logs: AvailableOffsets,
        tracker: PartitionTracker,
        skipped: SkippedRecords,
        log: Logger,
        *,
        unavailable_timeout_s: float,
    ) -> None:
        self.latest: dict[TopicPartition, int] = {}
        self.target: dict[TopicPartition, int] | None = None
        self.has_target = False
        self.is_idle = False
        self._unavailable_timeout_s = unavailable_timeout_s
        self._logs = logs
        self._tracker = tracker
        self._skipped = skipped
        self._log = log
        self._available: dict[TopicPartition, int] = {}
        self._looked_up: set[TopicPartition] = set()
        self._valid_until = 0.0
        self._behind_since: float | None = None

    def fix_target(self) -> None:
        """End the query at the end offsets that the next lookup returns."""
        self.has_target, self.target = True, None

    def reset_target(self) -> None:
        """Discard a bounded query's target, because a log end offset decreased; the next lookup sets a new target."""
        self.target = None

    def lags(self) -> list[int]:
        """Return the number of unread offsets in each partition of ``latest`` after its last planned batch."""
        planned_until = self._tracker.planned_until()
        return [max(0, end - planned_until.get(partition, end)) for partition, end in self.latest.items()]

    def look_up(self, positions: Mapping[TopicPartition, int], *, is_ending: bool) -> Mapping[TopicPartition, int]:
        """Return the end offsets for the next batch; they can include partitions that are not in ``positions``.

        Unavailable partitions are omitted, unless the query is ending and must read all partitions.

        Raises:
            RetriableError: no partition is available, or the query is ending and a partition is unavailable.
        """
        if self.target is not None:
            return self.target
        now = time.monotonic()
        is_recent = self.is_idle and positions.keys() <= self._looked_up and now < self._valid_until
        if not is_recent:
            started = time.thread_time()
            self._available = self._logs.find(positions, LATEST, all_=is_ending)
            self.latest = {p: end for p, end in self.latest.items() if p in positions} | self._available
            interval_s = (time.thread_time() - started) / _IDLE_CPU_SHARE
            self._looked_up = set(positions)
            self._valid_until = now + max(IDLE_INTERVAL_S, min(interval_s, _MAX_IDLE_INTERVAL_S))
        if self.has_target:
            self.target = dict(self._available)
        return self._available

    def detect_decrease(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether a log end offset is below a position, which a leader change can cause temporarily.

        If this lasts longer than ``clusterUnavailableTimeout``, the partitions restart at their log start offsets.

        Raises:
            DataLossError: the timeout expired, and ``failOnDataLoss`` is set.
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
        if now - self._behind_since > self._unavailable_timeout_s:
            self._skipped.lose(loss)
            self._tracker.reset_partitions(behind)
            self._behind_since = None
        if self._behind_since == now:
            self._log.warning("end_offset_decreased", error=loss.text)
        return True
