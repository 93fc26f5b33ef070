"""Query metrics, computed from progress reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.health import HealthState
from zkconsumer.metrics import Kind, Metric, MetricName, declare
from zkconsumer.spark.driver.skipped import LOST, SKIPPED, latest_counts
from zkconsumer.spark.driver.source_reports import find_report, offset_object


def _declare(name: str, meaning: str, tags: str = "query") -> Metric:
    return declare("zkconsumer.spark", "StreamingQuery", name, Kind.GAUGE, tags, meaning)


_INPUT_RATE = _declare("InputRowsPerSecond", "Rows produced to the topics per second.")
_PROCESSING_RATE = _declare("ProcessedRowsPerSecond", "Rows processed per second.")
_BYTE_RATE = _declare("BytesPerSecond", "Bytes processed per second, estimated by sampling records.")
_LAG = _declare("Lag", "Total lag of all partitions, in offsets.")
_HEALTH = _declare("Health", "0 healthy, 1 rebalancing, 2 stalled, 3 disconnected, 4 failed.")
_MEAN_LAG = _declare("AvgOffsetsBehindLatest", "Average lag per partition, in offsets.")

#: By key of a source's report: the metric, and the function that combines the values of several
#: sources.
_BY_KEY: dict[str, tuple[Metric, Callable[[list[float]], float]]] = {
    "lag": (_LAG, sum),
    "maxOffsetsBehindLatest": (_declare("MaxOffsetsBehindLatest", "Highest lag of any partition, in offsets."), max),
    "minOffsetsBehindLatest": (_declare("MinOffsetsBehindLatest", "Lowest lag of any partition, in offsets."), min),
    "owned": (_declare("OwnedPartitions", "Number of owned partitions."), sum),
    "rebalances": (_declare("Rebalances", "Number of rebalances since the start."), sum),
    "rereadRecords": (_declare("RereadRecords", "Number of records that another member read again."), sum),
    "commits": (_declare("Commits", "Number of commits since the start."), sum),
    "commitsFailed": (_declare("CommitsFailed", "Number of failed commits since the start."), sum),
    "commitAgeSeconds": (_declare("CommitAgeSeconds", "Seconds since the last commit."), max),
}

#: Metrics for the keys of a source's report whose values are counts by partition. There is one metric for the query,
#: and one for each partition with a count.
_BY_PARTITION = {
    LOST: _declare("RecordsLost", "Number of offsets skipped because of deleted records.", "query, [topic, partition]"),
    SKIPPED: _declare(
        "RecordsSkipped",
        "Number of offsets skipped because of corrupt or undecodable records.",
        "query, [topic, partition]",
    ),
}


def query_metrics(query: str, progress: Mapping[str, Any] | None, health: HealthState) -> dict[MetricName, float]:
    """Return the metrics of a query.

    Args:
        query: name or id of the query.
        progress: the last progress report as a JSON object; None before the first one.
        health: current health of the query, which is more recent than that in the report.
    """
    of_health = {_HEALTH.named(query=query): float(health)}
    return of_health if progress is None else of_health | _progress_metrics(query, progress)


def _progress_metrics(query: str, progress: Mapping[str, Any]) -> dict[MetricName, float]:
    metrics = {
        _INPUT_RATE: float(progress.get("inputRowsPerSecond") or 0),
        _PROCESSING_RATE: float(progress.get("processedRowsPerSecond") or 0),
    }
    values: dict[str, list[float]] = {}
    partitions = 0
    for source in progress["sources"]:
        if not offset_object(source.get("endOffset")).get("group"):
            continue
        report = find_report(source)
        rows_per_second = float(source.get("processedRowsPerSecond") or 0)
        bytes_per_second = rows_per_second * float(report.get("bytesPerRecord") or 0)
        metrics[_BYTE_RATE] = metrics.get(_BYTE_RATE, 0.0) + bytes_per_second
        partitions += sum(map(len, report.get("latest", {}).values()))
        for key in _BY_KEY:
            if report.get(key) is not None:
                values.setdefault(key, []).append(float(report[key]))
    for key, of_sources in values.items():
        metric, combine = _BY_KEY[key]
        metrics[metric] = float(combine(of_sources))
    if _LAG in metrics:
        metrics[_MEAN_LAG] = metrics[_LAG] / max(1, partitions)
    named = {metric.named(query=query): value for metric, value in metrics.items()}
    return named | _metrics_by_partition(query, progress)


def _metrics_by_partition(query: str, progress: Mapping[str, Any]) -> dict[MetricName, float]:
    metrics: dict[MetricName, float] = {}
    for source in progress["sources"]:
        report = find_report(source)
        for key, metric in _BY_PARTITION.items():
            if key not in report:
                continue
            of_query = metric.named(query=query)
            metrics.setdefault(of_query, 0.0)
            for (topic, partition), count in latest_counts(report, key).items():
                metrics[of_query] += count
                of_partition = metric.named(query=query, topic=topic, partition=partition)
                metrics[of_partition] = metrics.get(of_partition, 0.0) + count
    return metrics
