"""Counts of lost and skipped records that planning processes reported to the driver listener.

They are more recent than the counts in a progress report, which were read before the reported batch ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver.recent_values import RecentValues

#: Keys in the reports of sources, and in messages from planning processes.
LOST, SKIPPED = "recordsLost", "recordsSkipped"

#: Maximum number of planning processes whose last message is kept.
_MAX_PROCESSES = 1000

_messages: RecentValues[str, Mapping[str, Any]] = RecentValues(_MAX_PROCESSES)


def update(consumer_id: str, message: Mapping[str, Any]) -> None:
    """Store the last message from a planning process."""
    _messages.put(consumer_id, message)


def latest_counts(report: Mapping[str, Any], key: str) -> dict[TopicPartition, int]:
    """Return a source's counts by partition: the higher of the counts in its report and its last message.

    Args:
        report: the source's report about a batch; see ``find_report``.
        key: ``LOST`` or ``SKIPPED``.
    """
    message = _messages.get(str(report.get("consumer")), {})
    counts: dict[TopicPartition, int] = {}
    for source in (report, message):
        for topic, numbers in source.get(key, {}).items():
            for number, count in numbers.items():
                partition = TopicPartition(topic, int(number))
                counts[partition] = max(int(count), counts.get(partition, 0))
    return counts
