"""The progress of an application, computed from the progress reports of its query."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zkconsumer.health import HealthReason, HealthState
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import Kind, MetricName, declare
from zkconsumer.spark.driver import sink_metrics
from zkconsumer.spark.driver.query_health import ReportedReasons
from zkconsumer.spark.driver.source_reports import find_report, offset_object
from zkconsumer.spark.offset import from_offset
from zkconsumer.spark.streams.dataframe import METRICS, METRICS_COLUMN, OFFSETS_COLUMN
from zkconsumer.spark.streams.markers import NO_OFFSET, decode_offsets
from zkconsumer.spark.streams.task_batch import LOOPED

#: Health reason code while the clock is behind the last tick.
CLOCK_WENT_BACK = "clock_went_back"

_COUNT = declare(
    "zkconsumer.streams",
    "StreamTask",
    "TaskMetric",
    Kind.GAUGE,
    "application, task, metric",
    "Value of a metric in ``StreamsApp.task_metrics`` since the start.",
)


@dataclass(frozen=True)
class Progress:
    """The progress of an application as of its last batch.

    Attributes:
        batch: number of the last batch.
        duration_ms: duration of the last batch, in milliseconds.
        processed: number of records that all tasks processed since the start.
        per_second: records per second in the last batch.
        lag: number of unread records in the source topics after the last batch.
        dropped: number of records that were dropped since the start.
        restored_ms: time taken to load the state of the tasks in the last batch, in milliseconds.
        health: name of the source's ``HealthState``, in lower case.
    """

    batch: int
    duration_ms: int
    processed: int
    per_second: float
    lag: int
    dropped: int
    restored_ms: int
    health: str

    def __str__(self) -> str:
        restored = f", {self.restored_ms / 1_000:.1f} s to load the state" if self.restored_ms else ""
        return (
            f"batch {self.batch} took {self.duration_ms / 1_000:.1f} s{restored}; {self.processed:,} records processed "
            f"({self.per_second:,.0f}/s in the last batch), {self.dropped:,} dropped, lag {self.lag:,}, {self.health}"
        )


class ProgressReports:
    """Collects a query's progress reports, and totals its metrics. One thread adds reports; any thread may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._last: Mapping[str, Any] | None = None
        self._last_processed = 0
        self._reasons = ReportedReasons()

    def add(self, report: Mapping[str, Any]) -> int:
        """Add the report of a batch.

        Returns:
            The number of records that the batch processed, or wrote to topics that the application reads.
        """
        texts = report.get("observedMetrics", {}).get(METRICS, {}).get(METRICS_COLUMN, ())
        changes = [item for text in texts for item in json.loads(text).items()]
        changes += sink_metrics.take(report["id"], report["batchId"]).items()
        processed, looped = (int(sum(one.get(name, 0) for _, one in changes)) for name in ("processed", LOOPED))
        with self._lock:
            self._last, self._last_processed = report, processed
            reported = _find_source(report).get("healthReasons", ())
            found = {code: f"the planning process reported {code}; see its log" for code in reported}
            if behind_ms := _find_behind(report):
                found[CLOCK_WENT_BACK] = (
                    f"the clock is {behind_ms / 1_000:.1f} s behind the last tick, so wall-clock punctuators are not "
                    "called until it has caught up; check the clock of the driver"
                )
            self._reasons.update({code: (HealthState.STALLED, message) for code, message in found.items()})
            for task, of_task in changes:
                self._totals[task].update(of_task)
        return processed + looped

    def task_metrics(self) -> dict[str, dict[str, int]]:
        """Return the metric totals by task id and metric name."""
        with self._lock:
            return {task: dict(values) for task, values in self._totals.items()}

    def gauges(self, application: str) -> Iterator[tuple[MetricName, dict[str, float]]]:
        """Yield the metric totals as gauges for a metrics registry."""
        for task, values in self.task_metrics().items():
            for name, value in values.items():
                yield _COUNT.named(application=application, task=task, metric=name), {"Value": float(value)}

    def progress(self) -> Progress | None:
        """Return the progress as of the last batch; None before the first batch."""
        totals = self.task_metrics()
        with self._lock:
            report, processed = self._last, self._last_processed
        if report is None:
            return None
        duration_ms = int(report.get("batchDuration", 0))
        source = _find_source(report)
        operators = report.get("stateOperators") or [{}]
        return Progress(
            batch=report["batchId"],
            duration_ms=duration_ms,
            processed=sum(values.get("processed", 0) for values in totals.values()),
            per_second=processed / max(1, duration_ms) * 1_000,
            lag=int(source.get("lag", 0)),
            dropped=sum(values.get("dropped", 0) for values in totals.values()),
            restored_ms=int(operators[0].get("customMetrics", {}).get("rocksdbLoadLatencyMs", 0)),
            health=str(source.get("health", "healthy")),
        )

    @property
    def lag(self) -> int:
        """Number of unread records in the source topics after the last batch; 0 before the first batch."""
        with self._lock:
            report = self._last
        return 0 if report is None else int(_find_source(report).get("lag", 0))

    def health_reasons(self) -> Iterator[HealthReason]:
        """Yield the reasons why the query's sources were not healthy in the last batch."""
        yield from self._reasons


def find_ends(report: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offset after the last record that a batch processed in each partition.

    Args:
        report: progress report of the batch.
    """
    found = (offset_object(source.get("endOffset")) for source in report.get("sources", ()))
    return {partition: until for one in found if "ranges" in one for partition, (_, until) in from_offset(one).items()}


def find_task_offsets(report: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the next offset to process in each partition from which its task has received a range.

    Args:
        report: progress report of a batch; see ``QueryPlan.commits_beside_batches``.
    """
    texts = report.get("observedMetrics", {}).get(METRICS, {}).get(OFFSETS_COLUMN, ())
    found = {partition: offset for text in texts for partition, offset in decode_offsets(text).items()}
    return {partition: offset for partition, offset in found.items() if offset != NO_OFFSET}


def _find_behind(report: Mapping[str, Any]) -> int:
    """Return how far the clock was behind the last tick, in milliseconds; see ``TickReader``."""
    ends = (offset_object(source.get("endOffset")) for source in report.get("sources", ()))
    return max((int(one.get("behind", 0)) for one in ends), default=0)


def _find_source(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last reported state of the record source, which contains its lag and health."""
    found = (find_report(source) for source in report.get("sources", ()))
    return next((one for one in found if "lag" in one), {})
