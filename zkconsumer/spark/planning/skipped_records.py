"""Counts the records that a query skips, during planning and in its tasks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.spark.data_loss import DataLossError, raise_or_log
from zkconsumer.spark.executor.task_reports import SkippedRange
from zkconsumer.spark.offset import Ranges


class SkippedRecords:
    """Counts lost and skipped offsets by partition, since the query started.

    Spark's thread reports records that planning skips, and ``ReportListener`` threads report records that tasks skip.
    Tasks can run several times; only the last report for each range of the current batch counts.

    Args:
        fails_on_data_loss: whether to raise an error for lost records instead of logging and counting them.
    """

    def __init__(self, log: Logger, *, fails_on_data_loss: bool) -> None:
        self._log = log
        self._fails = fails_on_data_loss
        self._lock = threading.Lock()
        self._lost: Counter[TopicPartition] = Counter()
        self._skipped: Counter[TopicPartition] = Counter()
        self._ranges: Ranges = {}
        self._of_batch: dict[tuple[TopicPartition, int], SkippedRange] = {}

    def lose(self, loss: DataLossError) -> None:
        """Log and count records that planning skips.

        Raises:
            DataLossError: ``failOnDataLoss`` is set.
        """
        raise_or_log(loss, self._fails, self._log)
        with self._lock:
            self._lost.update(loss.lost)

    def start_batch(self, ranges: Ranges) -> None:
        """Start counting skipped records of a batch with these ranges; no effect if Spark repeats the last batch."""
        with self._lock:
            if ranges == self._ranges:
                return
            self._lost, self._skipped = self._totals()
            self._ranges, self._of_batch = dict(ranges), {}

    def record(self, ranges: Iterable[SkippedRange]) -> None:
        """Log and count the records that were lost or skipped in ranges of the current batch."""
        lost: dict[str, int] = {}
        skipped: dict[str, int] = {}
        with self._lock:
            for one in ranges:
                partition = one.topic_partition
                start, until = self._ranges.get(partition, (0, 0))
                if not start <= one.start < until:
                    continue  # a late report from an earlier batch
                self._of_batch[partition, one.start] = one
                for counts, count in ((lost, one.lost), (skipped, one.skipped)):
                    if count:
                        counts[str(partition)] = counts.get(str(partition), 0) + count
        if lost:
            self._log.warning(
                "records_lost",
                records_by_partition=lost,
                records=sum(lost.values()),
                reason="deleted before they were read",
            )
        if skipped:
            self._log.warning("records_skipped", records_by_partition=skipped, records=sum(skipped.values()))

    @property
    def counts(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """The numbers of lost and skipped offsets by partition; partitions without any are omitted."""
        with self._lock:
            return self._totals()

    def _totals(self) -> tuple[Counter[TopicPartition], Counter[TopicPartition]]:
        lost, skipped = self._lost.copy(), self._skipped.copy()
        for (partition, _), one in self._of_batch.items():
            lost[partition] += one.lost
            skipped[partition] += one.skipped
        return +lost, +skipped
