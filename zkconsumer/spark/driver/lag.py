"""``zkconsumer.spark.lag(query)``: computes a query's lag from its progress reports; notebooks show it as a table.

Source: Spark 4.2 KafkaMicroBatchStream.metrics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkconsumer.argument_checks import check_attribute
from zkconsumer.message import TopicPartition
from zkconsumer.optional_packages import check_package
from zkconsumer.spark.driver.skipped import LOST, SKIPPED, latest_counts
from zkconsumer.spark.driver.source_reports import find_report, offset_object


class PartitionLag(NamedTuple):
    """The lag of one partition at the end of a batch.

    Attributes:
        time: start time of the batch in ISO 8601 format, from the progress report.
        offset: next offset to read.
        end: log end offset when the batch was planned.
    """

    time: str
    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """Number of offsets between the next offset to read and the log end offset."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class Lag:
    """The lag of a query after each batch whose progress report Spark retains.

    Batches that were replayed after a restart are omitted, because their reports contain no log end offsets.

    Attributes:
        rows: lags ordered by time, topic and partition.
        records_lost: number of offsets deleted before they were read, by partition, since the query started.
        records_skipped: number of offsets skipped because a record batch was corrupt or the decoder rejected the
            record, by partition, since the query started.
    """

    rows: tuple[PartitionLag, ...]
    records_lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    records_skipped: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def latest(self) -> tuple[PartitionLag, ...]:
        """The lag of each partition after the last batch."""
        return tuple(row for row in self.rows if row.time == self.rows[-1].time)

    @property
    def total(self) -> int:
        """The total lag after the last batch, in offsets; 0 before the first batch."""
        return sum(row.lag for row in self.latest)

    @property
    def by_time(self) -> dict[str, int]:
        """The total lag after each batch, in offsets, by batch start time."""
        totals: dict[str, int] = {}
        for row in self.rows:
            totals[row.time] = totals.get(row.time, 0) + row.lag
        return totals

    def __repr__(self) -> str:
        return f"Lag(total={self.total}, partitions={len(self.latest)}{self._skipped()})"

    def _skipped(self) -> str:
        """Return the numbers of lost and skipped records as text, or an empty string if there are none."""
        totals = {"records_lost": self.records_lost, "records_skipped": self.records_skipped}
        return "".join(f", {name}={sum(counts.values())}" for name, counts in totals.items() if counts)

    def _repr_html_(self) -> str:
        """Return the lag after the last batch as an HTML table, for notebooks."""
        cells = "".join(
            f"<tr><td>{row.topic}</td><td>{row.partition}</td><td>{row.offset}</td><td>{row.end}</td><td>{row.lag}</td></tr>"
            for row in self.latest
        )
        names = "".join(f"<th>{name}</th>" for name in ("topic", "partition", "offset", "log end", "lag"))
        return f"<table><tr>{names}</tr>{cells}</table><p>{self.total:,} offsets behind{self._skipped()}</p>"

    def plot(self) -> Any:
        """Return a matplotlib figure of the total lag over time.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        check_package("notebook", "matplotlib", "Lag.plot()")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3))
        axes = figure.subplots()
        times = list(self.by_time)
        axes.plot(range(len(times)), list(self.by_time.values()), marker=".")
        axes.set_xticks([0, max(0, len(times) - 1)], [times[0], times[-1]] if times else ["", ""])
        axes.set_ylabel("offsets behind")
        axes.set_ylim(bottom=0)
        return figure


def lag(query: Any) -> Lag:
    """Return the lag of a query that reads with ``format("zkconsumer")``, and its lost and skipped records."""
    check_attribute("query", query, "recentProgress", "a StreamingQuery")
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    rows = [
        row
        for progress in reports
        for source in progress["sources"]
        for row in _rows(progress["timestamp"], offset_object(source["endOffset"]), find_report(source))
    ]
    lost: Counter[TopicPartition] = Counter()
    skipped: Counter[TopicPartition] = Counter()
    for source in reports[-1]["sources"] if reports else ():
        report = find_report(source)
        lost.update(latest_counts(report, LOST))
        skipped.update(latest_counts(report, SKIPPED))
    return Lag(tuple(rows), lost, skipped)


def _rows(time: str, end: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[PartitionLag]:
    for topic, partitions in sorted(end.get("ranges", {}).items()):
        for number, (_, until) in sorted(partitions.items(), key=lambda item: int(item[0])):
            log_end = report.get("latest", {}).get(topic, {}).get(number)
            if log_end is not None:  # unknown in the report of a replayed batch
                yield PartitionLag(time, topic, int(number), until, log_end)
