"""Divides a batch among the partitions: applies event-time alignment, then the batch limits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.planning.alignment import Alignment
from zkconsumer.spark.planning.batch_limiter import BatchLimiter
from zkconsumer.spark.planning.sampling import SIZE_RECORDS, RecordSizes, sample


class BatchShares:
    """Divides each batch among the partitions. Used by Spark's thread.

    Args:
        alignment: event-time alignment; None to disable it.
        logs: client for record samples, which the byte limits and the progress reports require.
    """

    def __init__(self, limits: Limits, alignment: Alignment | None, logs: LogOffsets) -> None:
        self._limiter = BatchLimiter(limits, time.monotonic)
        self._alignment = alignment
        self._logs = logs
        self._sizes = RecordSizes(logs)

    @property
    def idle(self) -> frozenset[TopicPartition]:
        """The partitions that were idle when the last batch was planned; empty without alignment."""
        return self._alignment.idle if self._alignment is not None else frozenset()

    def state(self) -> dict[str, Any]:
        """Return the progress report entries: the average record size, and the state of the alignment if enabled."""
        state = {"bytesPerRecord": round(self._sizes.bytes_per_record, 1)}
        return state if self._alignment is None else {**state, **self._alignment.state()}

    def find_available(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        aligns: bool,
        closed: bool,
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that may be read from each partition.

        Args:
            aligns: whether event-time alignment may hold back partitions.
            closed: whether the query reads no records after ``ends``.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond.
        """
        if self._alignment is not None and aligns:
            limits = self._alignment.limit_ends(positions, ends, closed=closed)
        else:
            limits = ends
        return {p: max(0, limits.get(p, position) - position) for p, position in positions.items()}

    def divide(
        self,
        available: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        max_offsets: int | None,
        *,
        at_once: bool,
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that the batch reads from each partition; empty if no batch is planned now.

        Args:
            available: number of offsets that may be read from each partition.
            max_offsets: maximum number of offsets in the batch; None for no limit.
            at_once: whether to skip the wait for ``minOffsetsPerTrigger``, because the query is about to end.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond.
        """

        def sample_sizes(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
            starts = {partition: positions[partition] for partition in partitions}
            samples = sample(self._logs, starts, min_records=SIZE_RECORDS)
            return {partition: sampled.bytes_per_offset for partition, sampled in samples.items()}

        shares = self._limiter.limit(
            available,
            max_offsets=max_offsets,
            backlog=sum(max(0, ends.get(p, position) - position) for p, position in positions.items()),
            at_once=at_once,
            sizes=sample_sizes,
        )
        self._sizes.sample({partition: positions[partition] for partition in shares})
        return shares
