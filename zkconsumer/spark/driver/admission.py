"""How much a batch takes: limits on it, shared fairly among partitions, and waiting for a worthwhile batch.

Source: Spark 4.2 KafkaMicroBatchStream for the options; shares differ on purpose. Spark gives each partition a share in
proportion to what waits in it, so that a partition with little waits as long as the one with most. Here each may have
the same, and what some do not need is for the others (max-min fairness).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits


class Admission:
    """Applies limits to one batch after the other.

    Args:
        clock: seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._planned_at = self._looked_at = clock()
        self._sizes: dict[TopicPartition, float] = {}
        self._kept: dict[TopicPartition, float] = {}
        self._credit = float(limits.bytes_per_second or 0)  # bytes that may be read now; negative while in debt

    def admit(
        self,
        waiting: Mapping[TopicPartition, int],
        *,
        most: int | None,
        at_once: bool = False,
        backlog: int | None = None,
        sizes: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]] = lambda _: {},
    ) -> dict[TopicPartition, int]:
        """Return how many offsets of each partition the next batch takes; nothing where it is to wait.

        Args:
            waiting: the offsets that each partition has.
            most: of all together; None for no limit, of bytes neither.
            backlog: the offsets that there are besides those that have to wait for others; by default none.
            at_once: do not wait for more, since none may come.
            sizes: returns bytes per offset of what comes next in some partitions; asked where bytes are limited.
        """
        now = self._clock()
        self._earn(now)
        total = sum(waiting.values())
        if not total:
            self._credit = min(self._credit, float(self.limits.bytes_per_second or 0))  # idle time is not saved up
            return {}
        enough = max(total, backlog or 0) >= self.limits.least
        if not enough and not at_once and now - self._planned_at < self.limits.patience:
            return {}
        if self.limits.counts_bytes and most is not None:
            if self.limits.bytes_per_second is not None and self._credit < 1:
                return {}
            self._learn(sizes({partition: count for partition, count in waiting.items() if count}))
            waiting = self._within_bytes(waiting)
        self._planned_at = now
        shares = dict(waiting) if most is None else fair_shares(waiting, most)
        self._credit -= sum(share * self._sizes.get(partition, 0.0) for partition, share in shares.items())
        return shares

    def _earn(self, now: float) -> None:
        self._credit += (now - self._looked_at) * (self.limits.bytes_per_second or 0)
        self._looked_at = now

    def _learn(self, sizes: Mapping[TopicPartition, float]) -> None:
        for partition, size in sizes.items():
            self._sizes[partition] = (size + self._sizes.get(partition, size)) / 2  # the running average

    def _within_bytes(self, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets that the limits on bytes allow, at least one."""
        limits = self.limits
        allowed = [float(limits.most_bytes)] if limits.most_bytes is not None else []
        if limits.bytes_per_second is not None:
            allowed.append(self._credit)
        size_of = {partition: max(1.0, self._sizes.get(partition, 1.0)) for partition in waiting}
        wanted = {partition: int(count * size_of[partition]) for partition, count in waiting.items()}
        shares = fair_shares(wanted, max(1, int(min(allowed))))
        # What is too little for one record is kept for the next batch, so that large ones get their turn.
        credits = {partition: share + self._kept.get(partition, 0.0) for partition, share in shares.items()}
        found = {p: min(waiting[p], int(credit / size_of[p])) for p, credit in credits.items()}
        self._kept = {partition: credits[partition] for partition, count in found.items() if not count}
        found = {partition: count for partition, count in found.items() if count}
        if not found:  # one record that is larger than the limit
            smallest = min((p for p in waiting if waiting[p]), key=lambda p: (size_of[p], p))
            found[smallest] = 1
        return found


def fair_shares(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return shares of ``most`` that are as equal as can be; none is larger than what waits."""
    shares, left = {}, most
    by_size = sorted((partition for partition, count in waiting.items() if count > 0), key=lambda p: (waiting[p], p))
    for index, partition in enumerate(by_size):
        share = min(waiting[partition], left // (len(by_size) - index))
        shares[partition] = share
        left -= share
    return {partition: share for partition, share in shares.items() if share}
