"""``zkconsumer.spark.lag(query)``: how far a query is behind, from its own progress reports; for notebooks.

Source: Spark 4.2 KafkaMicroBatchStream.metrics for the three numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class PartitionLag(NamedTuple):
    """One partition at the end of one batch."""

    time: str
    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets between where the query is and the end of the log as it was seen last."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class Lag:
    """The lag of a query over its last batches, as far as Spark remembers them.

    Attributes:
        rows: by time, topic and partition.
    """

    rows: tuple[PartitionLag, ...]

    @property
    def latest(self) -> tuple[PartitionLag, ...]:
        """The rows of the last report."""
        return tuple(row for row in self.rows if row.time == self.rows[-1].time)

    @property
    def total(self) -> int:
        """Offsets that wait, in all partitions together."""
        return sum(row.lag for row in self.latest)

    @property
    def by_time(self) -> dict[str, int]:
        """The total at the end of each batch."""
        totals: dict[str, int] = {}
        for row in self.rows:
            totals[row.time] = totals.get(row.time, 0) + row.lag
        return totals

    def __repr__(self) -> str:
        return f"Lag(total={self.total}, partitions={len(self.latest)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the last report."""
        cells = "".join(
            f"<tr><td>{row.topic}</td><td>{row.partition}</td><td>{row.offset}</td><td>{row.end}</td><td>{row.lag}</td></tr>"
            for row in self.latest
        )
        names = "".join(f"<th>{name}</th>" for name in ("topic", "partition", "offset", "log end", "lag"))
        return f"<table><tr>{names}</tr>{cells}</table><p>{self.total:,} offsets behind</p>"

    def plot(self) -> Any:
        """Return a matplotlib figure of the total lag over time.

        Raises:
            ImportError: matplotlib is not installed.
        """
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
    """Return the lag of a running query that reads with ``format("zkconsumer")``."""
    rows = [
        row
        for progress in query.recentProgress
        for source in progress["sources"]
        for row in _rows(
            progress["timestamp"], offset_object(source["endOffset"]), offset_object(source["latestOffset"])
        )
    ]
    return Lag(tuple(rows))


def _rows(time: str, end: Mapping[str, Any], latest: Mapping[str, Any]) -> Iterator[PartitionLag]:
    for topic, partitions in sorted(end.get("ranges", {}).items()):
        for number, (_, until) in sorted(partitions.items(), key=lambda item: int(item[0])):
            log_end = latest.get("latest", {}).get(topic, {}).get(number, until)
            yield PartitionLag(time, topic, int(number), until, log_end)


def offset_object(text: Any) -> dict[str, Any]:
    """Return an offset, which some releases of Spark hand out as text; nothing where it is that of another source."""
    found = json.loads(text) if isinstance(text, str) else text
    return dict(found) if isinstance(found, dict) else {}
