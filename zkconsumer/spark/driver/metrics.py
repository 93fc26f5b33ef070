"""Metrics of queries, from their progress reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.health import HealthState
from zkconsumer.metrics import MetricName
from zkconsumer.spark.driver.lag import offset_object
from zkconsumer.spark.driver.skipped import LOST, SKIPPED, latest_counts

#: By key of ``latestOffset`` in a progress report: the name of the metric, and how the values of several sources make
#: that of their query.
_NAMES: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "lag": ("Lag", sum),
    "maxOffsetsBehindLatest": ("MaxOffsetsBehindLatest", max),
    "minOffsetsBehindLatest": ("MinOffsetsBehindLatest", min),
    "owned": ("OwnedPartitions", sum),
    "rebalances": ("Rebalances", sum),
    "rereadRecords": ("RereadRecords", sum),
    "commits": ("Commits", sum),
    "commitsFailed": ("CommitsFailed", sum),
    "commitAgeSeconds": ("CommitAgeSeconds", max),
    "health": ("Health", max),
}

#: Name of the metric by key of ``latestOffset`` whose values are numbers by partition. There is one metric for the
#: query, and one for each partition with a number.
_NAMES_BY_PARTITION = {LOST: "RecordsLost", SKIPPED: "RecordsSkipped"}


def query_metrics(query: str, progress: Mapping[str, Any]) -> dict[MetricName, float]:
    """Return the metrics of a query.

    Args:
        query: name or id of the query.
        progress: a progress report as a JSON object.
    """
    metrics = {
        "InputRowsPerSecond": float(progress.get("inputRowsPerSecond") or 0),
        "ProcessedRowsPerSecond": float(progress.get("processedRowsPerSecond") or 0),
    }
    values: dict[str, list[float]] = {}
    partitions = 0
    for source in progress["sources"]:
        if not offset_object(source.get("endOffset")).get("group"):
            continue
        latest = offset_object(source.get("latestOffset"))
        rows_per_second = float(source.get("processedRowsPerSecond") or 0)
        bytes_per_second = rows_per_second * float(latest.get("bytesPerRecord") or 0)
        metrics["BytesPerSecond"] = metrics.get("BytesPerSecond", 0.0) + bytes_per_second
        partitions += sum(map(len, latest.get("latest", {}).values()))
        if "health" in latest:
            latest = {**latest, "health": HealthState[latest["health"].upper()]}
        for key in _NAMES:
            if latest.get(key) is not None:
                values.setdefault(key, []).append(float(latest[key]))
    for key, of_sources in values.items():
        name, combine = _NAMES[key]
        metrics[name] = float(combine(of_sources))
    if "Lag" in metrics:
        metrics["AvgOffsetsBehindLatest"] = metrics["Lag"] / max(1, partitions)
    named = {_name(name, query=query): value for name, value in metrics.items()}
    return named | _metrics_by_partition(query, progress)


def _metrics_by_partition(query: str, progress: Mapping[str, Any]) -> dict[MetricName, float]:
    metrics: dict[MetricName, float] = {}
    for source in progress["sources"]:
        latest = offset_object(source.get("latestOffset"))
        for key, name in _NAMES_BY_PARTITION.items():
            if key not in latest:
                continue
            of_query = _name(name, query=query)
            metrics.setdefault(of_query, 0.0)
            for (topic, partition), count in latest_counts(latest, key).items():
                metrics[of_query] += count
                of_partition = _name(name, query=query, topic=topic, partition=partition)
                metrics[of_partition] = metrics.get(of_partition, 0.0) + count
    return metrics


def _name(name: str, **tags: object) -> MetricName:
    return MetricName.of("zkconsumer.spark", "StreamingQuery", name, **tags)
