"""Task metrics of sinks, which report them to the driver listener when they commit a batch.

Spark's progress report of the batch does not contain them, because the sink runs after the metrics were observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.spark.driver.recent_values import RecentValues

#: Maximum number of batches whose metrics are kept.
_MAX_BATCHES = 1000

#: Changes of task metrics, by task id and metric name.
TaskMetrics = Mapping[str, Mapping[str, int]]

_metrics: RecentValues[tuple[str, int], TaskMetrics] = RecentValues(_MAX_BATCHES)


def to_message(query: str, batch: int, metrics: TaskMetrics) -> dict[str, Any]:
    """Return the message that reports the metrics of a batch; see ``add``."""
    return {"sink": {"query": query, "batch": batch, "metrics": metrics}}


def add(message: Mapping[str, Any]) -> None:
    """Store the metrics of a batch. They replace those of an earlier attempt.

    Args:
        message: value of the key ``sink`` in a message.
    """
    _metrics.put((message["query"], message["batch"]), message["metrics"])


def take(query: str, batch: int) -> TaskMetrics:
    """Remove and return the metrics of a finished batch; empty if there are none.

    Args:
        query: query id.
        batch: batch number.
    """
    return _metrics.pop((query, batch), {})
