"""Determines how many offsets a batch reads from each partition: limits, fair shares, and the minimum batch size.

Source: Spark 4.2 KafkaMicroBatchStream for the options. The shares differ on purpose: Spark divides a batch in
proportion to the unread offsets, so a partition with few unread offsets takes as long to catch up as the one with the
most. Here, all partitions get equal shares, and unused shares are divided among the other partitions (max-min
fairness).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits

#: Maximum number of partitions whose records are sampled for one batch.
_SAMPLED = 64


class BatchLimiter:
    """Applies the limits to each batch of a query. Used by Spark's thread.

    Args:
        clock: function that returns the current time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._planned_at = self._updated_at = clock()
        #: Exponential moving average of bytes per offset.
        self._sizes: dict[TopicPartition, float] = {}
        #: Number of the batch for which each partition was last sampled.
        self._sampled_at: dict[TopicPartition, int] = {}
        self._batch = 0
        #: Unused shares that were too small for one record, in bytes; added to the partition's next share.
        self._saved: dict[TopicPartition, float] = {}
        #: Number of bytes that ``maxBytesPerSecond`` currently allows; negative after a batch that was larger than
        #: estimated.
        self._credit = float(limits.bytes_per_second or 0)

    def limit(
        self,
        available: Mapping[TopicPartition, int],
        *,
        max_offsets: int | None,
        at_once: bool,
        backlog: int,
        sizes: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, float]],
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets that the next batch reads from each partition; empty if no batch is planned now.

        Args:
            available: number of offsets that may be read from each partition.
            max_offsets: maximum number of offsets in the batch; None to apply neither offset limits nor byte limits.
            at_once: whether to skip the wait for ``minOffsetsPerTrigger``, because the query is about to end.
            backlog: number of unread offsets, including offsets that event-time alignment holds back.
            sizes: function that estimates the bytes per offset of the given partitions by sampling; called only if a
                byte limit is set, with at most 64 partitions.
        """
        now = self._clock()
        self._credit += (now - self._updated_at) * (self.limits.bytes_per_second or 0)
        self._updated_at = now
        total = sum(available.values())
        if not total:
            # Idle time adds credit for one second at most.
            self._credit = min(self._credit, float(self.limits.bytes_per_second or 0))
            return {}
        is_enough = max(total, backlog) >= self.limits.min_offsets
        if not is_enough and not at_once and now - self._planned_at < self.limits.max_delay_s:
            return {}
        if self.limits.partition_offsets is not None and max_offsets is not None:
            cap = self.limits.partition_offsets
            available = {partition: min(count, cap) for partition, count in available.items()}
        if self.limits.counts_bytes and max_offsets is not None:
            if self.limits.bytes_per_second is not None and self._credit < 1:
                return {}
            self._average(sizes(self._to_sample([partition for partition, count in available.items() if count])))
            available = self._within_bytes(available)
        self._planned_at = now
        shares = dict(available) if max_offsets is None else fair_shares(available, max_offsets)
        if self._sizes:
            size_of = self._size_of(shares)
            self._credit -= sum(share * size_of[partition] for partition, share in shares.items())
        return shares

    def _to_sample(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions to sample: the least recently sampled ones."""
        oldest = sorted(partitions, key=lambda partition: (self._sampled_at.get(partition, -1), partition))[:_SAMPLED]
        self._batch += 1
        self._sampled_at.update(dict.fromkeys(oldest, self._batch))
        return oldest

    def _size_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """Return the estimated bytes per offset of each partition; the overall average if it was never sampled."""
        average = sum(self._sizes.values()) / len(self._sizes) if self._sizes else 1.0
        return {partition: max(1.0, self._sizes.get(partition, average)) for partition in partitions}

    def _average(self, sizes: Mapping[TopicPartition, float]) -> None:
        for partition, size in sizes.items():
            self._sizes[partition] = (size + self._sizes.get(partition, size)) / 2

    def _within_bytes(self, available: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the number of offsets that the byte limits allow per partition; at least one in total."""
        limits = self.limits
        size_of = self._size_of(available)
        if limits.partition_bytes is not None:
            caps = {partition: max(1, int(limits.partition_bytes / size)) for partition, size in size_of.items()}
            available = {partition: min(count, caps[partition]) for partition, count in available.items()}
        allowed = [float(limits.max_bytes)] if limits.max_bytes is not None else []
        if limits.bytes_per_second is not None:
            allowed.append(self._credit)
        if not allowed:
            return dict(available)
        wanted = {partition: int(count * size_of[partition]) for partition, count in available.items()}
        shares = fair_shares(wanted, max(1, int(min(allowed))))
        # Partitions with large records are read in turn: a share that is too small for one record is saved.
        budgets = {partition: share + self._saved.get(partition, 0.0) for partition, share in shares.items()}
        counts = {p: min(available[p], int(budget / size_of[p])) for p, budget in budgets.items()}
        self._saved = {partition: budgets[partition] for partition, count in counts.items() if not count}
        counts = {partition: count for partition, count in counts.items() if count}
        if not counts:  # each record is larger than the limit
            smallest = min((p for p in available if available[p]), key=lambda p: (size_of[p], p))
            counts[smallest] = 1
        return counts


def fair_shares(available: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Return max-min fair shares of ``limit``. No partition gets more than it has available."""
    shares, rest = {}, limit
    by_size = sorted((p for p, count in available.items() if count > 0), key=lambda p: (available[p], p))
    for index, partition in enumerate(by_size):
        share = min(available[partition], rest // (len(by_size) - index))
        shares[partition] = share
        rest -= share
    return {partition: share for partition, share in shares.items() if share}
