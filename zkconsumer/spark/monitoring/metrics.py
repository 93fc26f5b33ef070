"""Metrics of queries, from their progress reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.spark.monitoring.lag import offset_object

#: Name of the metric by key of ``latestOffset`` in a progress report. The values of several sources are added.
_NAMES = {
    "lag": "Lag",
    "maxOffsetsBehindLatest": "MaxOffsetsBehindLatest",
    "minOffsetsBehindLatest": "MinOffsetsBehindLatest",
    "avgOffsetsBehindLatest": "AvgOffsetsBehindLatest",
    "owned": "OwnedPartitions",
    "rebalances": "Rebalances",
    "rereadRecords": "RereadRecords",
    "commits": "Commits",
    "commitsFailed": "CommitsFailed",
    "commitAgeSeconds": "CommitAgeSeconds",
}


def query_metrics(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a query by name.

    Args:
        progress: a progress report as a JSON object.
    """
    metrics = {
        "InputRowsPerSecond": float(progress.get("inputRowsPerSecond") or 0),
        "ProcessedRowsPerSecond": float(progress.get("processedRowsPerSecond") or 0),
    }
    for source in progress["sources"]:
        if not offset_object(source.get("endOffset")).get("group"):
            continue
        latest = offset_object(source.get("latestOffset"))
        rows_per_second = float(source.get("processedRowsPerSecond") or 0)
        bytes_per_second = rows_per_second * float(latest.get("bytesPerRecord") or 0)
        metrics["BytesPerSecond"] = metrics.get("BytesPerSecond", 0.0) + bytes_per_second
        for key, name in _NAMES.items():
            if latest.get(key) is not None:
                metrics[name] = metrics.get(name, 0.0) + float(latest[key])
    return metrics
