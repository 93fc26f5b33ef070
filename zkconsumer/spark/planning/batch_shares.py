"""How many offsets of each partition a batch reads: event-time alignment, then the limits of the options."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.planning.alignment import Alignment
from zkconsumer.spark.planning.batch_limiter import BatchLimiter
from zkconsumer.spark.planning.progress import Progress
from zkconsumer.spark.planning.sampling import sample

#: Offsets by partition: positions, end offsets, or numbers of offsets.
Offsets = Mapping[TopicPartition, int]


class BatchShares:
    """Divides each batch among the partitions. Used by Spark's thread.

    Args:
        alignment: None without event-time alignment.
        logs: samples the sizes of records.
        progress: reports the sizes of the records that are read.
    """

    def __init__(self, limits: Limits, alignment: Alignment | None, logs: LogOffsets, progress: Progress) -> None:
        self._limiter = BatchLimiter(limits, time.monotonic)
        self._alignment = alignment
        self._logs = logs
        self._progress = progress

    @property
    def idle(self) -> frozenset[TopicPartition]:
        """The partitions that were idle when the last batch was planned; empty without alignment."""
        return self._alignment.idle if self._alignment is not None else frozenset()

    def find_available(
        self, positions: Offsets, ends: Offsets, *, aligns: bool, closed: bool
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that each partition may read.

        Args:
            aligns: whether event-time alignment may hold partitions back.
            closed: the query reads no records after ``ends``.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """
        if self._alignment is not None and aligns:
            limits = self._alignment.limit_ends(positions, ends, closed=closed)
        else:
            limits = ends
        return {p: max(0, limits.get(p, position) - position) for p, position in positions.items()}

    def divide(
        self, available: Offsets, positions: Offsets, ends: Offsets, max_offsets: int | None, *, at_once: bool
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that the batch reads of each partition; empty to wait for more.

        Args:
            available: number of offsets that each partition may read.
            max_offsets: maximum number of offsets of the batch; None for no limit.
            at_once: do not wait for ``minOffsetsPerTrigger``, because the query is about to end.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """

        def sample_sizes(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
            samples = sample(self._logs, {partition: positions[partition] for partition in partitions})
            return {partition: sampled.bytes_per_offset for partition, sampled in samples.items()}

        shares = self._limiter.limit(
            available,
            max_offsets=max_offsets,
            backlog=sum(max(0, ends.get(p, position) - position) for p, position in positions.items()),
            at_once=at_once,
            sizes=sample_sizes,
        )
        self._progress.sample_sizes({partition: positions[partition] for partition in shares})
        return shares
