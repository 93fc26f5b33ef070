"""Progress of a query: the planner's counters, and the report that Spark adds to its progress events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import RetriableError
from zkconsumer.health import Health
from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import group_by_topic
from zkconsumer.spark.planning.sampling import sample
from zkconsumer.spark.planning.skipped_records import SkippedRecords

#: Minimum seconds between two samples of record sizes.
_SAMPLE_INTERVAL_S = 10.0

#: Maximum number of partitions in a sample.
_SAMPLED_PARTITIONS = 4


class Progress:
    """Counts commits, and samples record sizes. Only Spark's thread samples; the committing thread counts."""

    def __init__(self, logs: LogOffsets) -> None:
        self._logs = logs
        self._commits = self._commits_failed = 0
        self._committed_at: float | None = None
        self._sampled_at = -_SAMPLE_INTERVAL_S
        self._bytes_per_record = 0.0

    def record_commit(self) -> None:
        """Count a successful commit."""
        self._commits += 1
        self._committed_at = time.monotonic()

    def record_failed_commit(self) -> None:
        """Count a failed commit."""
        self._commits_failed += 1

    def sample_sizes(self, positions: Mapping[TopicPartition, int]) -> None:
        """Sample the sizes of the next records, unless the last sample is recent."""
        now = time.monotonic()
        if positions and now > self._sampled_at + _SAMPLE_INTERVAL_S:
            self._sampled_at = now
            with contextlib.suppress(RetriableError):  # the size is informational
                samples = sample(self._logs, dict(list(positions.items())[:_SAMPLED_PARTITIONS])).values()
                offsets = sum(one.until - one.start for one in samples)
                size = sum(one.bytes_per_offset * (one.until - one.start) for one in samples)
                self._bytes_per_record = size / max(1, offsets)

    def report(
        self,
        ends: Mapping[TopicPartition, int],
        planned_until: Mapping[TopicPartition, int],
        *,
        consumer_id: str,
        owned: int,
        rebalances: int,
        health: Health,
        reread_records: int,
        skipped: SkippedRecords,
    ) -> dict[str, Any]:
        """Return the report for Spark's progress events.

        Args:
            ends: log end offsets from the last lookup.
            planned_until: end offset of each partition's last batch.
            owned: number of owned partitions.
            rebalances: number of successful rebalances of the member.
            health: health of the query.
            reread_records: number of records in this query's batches that other members read again.
            skipped: counters of lost and skipped records.
        """
        lags = [max(0, end - planned_until.get(partition, end)) for partition, end in ends.items()] or [0]
        records_lost, records_skipped = skipped.counts
        age = None if self._committed_at is None else round(time.monotonic() - self._committed_at, 3)
        return {
            "latest": group_by_topic(ends),
            "lag": sum(lags),
            "maxOffsetsBehindLatest": max(lags),
            "minOffsetsBehindLatest": min(lags),
            "avgOffsetsBehindLatest": sum(lags) / len(lags),
            "health": health.state.name.lower(),
            "healthReasons": [reason.code for reason in health.reasons],
            "consumer": consumer_id,
            "owned": owned,
            "bytesPerRecord": round(self._bytes_per_record, 1),
            "rebalances": rebalances,
            "rereadRecords": reread_records,
            "recordsLost": group_by_topic(records_lost),
            "recordsSkipped": group_by_topic(records_skipped),
            "commits": self._commits,
            "commitsFailed": self._commits_failed,
            "commitAgeSeconds": age,
        }
