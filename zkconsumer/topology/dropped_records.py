"""Counting and logging of the records that a task drops."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Protocol, Unpack

from zkconsumer.log import EventValues, get_logger
from zkconsumer.topology.records import Record, SourceRecord

#: Minimum seconds between two events with the same cause.
_EVENT_INTERVAL_S = 60.0


class DropReason(StrEnum):
    """Why a task dropped a record without calling an error handler."""

    #: The record has no key.
    NULL_KEY = "null_key"
    #: The record has no value.
    NULL_VALUE = "null_value"
    #: The window or session of the record is closed.
    CLOSED_WINDOW = "closed_window"
    #: The record is a change to an older version of a versioned table.
    OLD_VERSION = "old_version"
    #: The timestamp of the record is negative.
    NEGATIVE_TIMESTAMP = "negative_timestamp"
    #: The partitioner returned no partition.
    NO_PARTITION = "no_partition"
    #: The entry of a window, session or versioned store has expired.
    EXPIRED = "expired"


class DropContext(Protocol):
    """The ``ProcessorContext`` method that counts dropped records."""

    def drop(self, reason: str) -> None:
        """Count and log the current record as dropped."""


def drop_incomplete(context: DropContext, record: Record) -> None:
    """Count and log a record as dropped because it has no key, or a key but no value."""
    context.drop(DropReason.NULL_KEY if record.key is None else DropReason.NULL_VALUE)


class EventLimiter:
    """Limits events that can be numerous to one per minute and cause."""

    def __init__(self) -> None:
        self._unlogged: dict[object, int] = {}
        self._next_s: dict[object, float] = {}

    def add(self, cause: object, amount: int = 1) -> int:
        """Return the number of occurrences to log now, which includes those that were not logged before; 0 for none."""
        count, now_s = self._unlogged.pop(cause, 0) + amount, time.monotonic()
        if now_s < self._next_s.get(cause, 0.0):
            self._unlogged[cause] = count
            return 0
        self._next_s[cause] = now_s + _EVENT_INTERVAL_S
        return count


class DroppedRecords:
    """Counts each dropped record once, in the metric ``dropped``, and logs the event ``record_dropped``.

    Records that an error handler drops are logged one by one. Other records, such as late ones, can be numerous, so
    events for them are limited to one per minute, reason, and node or store.

    Source: Kafka 3.9 TaskMetrics.droppedRecordsSensor.

    Args:
        task_id: task id.
        metrics: task metrics; ``dropped`` and ``dropped/<reason>`` are incremented.
    """

    def __init__(self, task_id: str, metrics: dict[str, int]) -> None:
        self._metrics = metrics
        self._log = get_logger("zkconsumer.topology", task=task_id)
        self._events = EventLimiter()

    def add(self, source: SourceRecord | None, **values: Unpack[EventValues]) -> None:
        """Count a dropped record, and log it unless the same cause was logged less than a minute ago.

        Args:
            source: source record that was being processed, or None.
            values: values of the event. ``reason`` is required; ``error`` is set if an error handler was called.
        """
        reason = values["reason"] = str(values["reason"])
        by_reason = f"dropped/{reason}"
        self._metrics["dropped"] = self._metrics.get("dropped", 0) + 1
        self._metrics[by_reason] = self._metrics.get(by_reason, 0) + 1
        if "error" not in values:
            values["records"] = self._events.add((reason, values.get("node"), values.get("store")))
            if not values["records"]:
                return
        log = self._log
        if source is not None:
            log = log.bind(topic=source.topic, partition=source.partition, offset=source.offset)
        log.warning("record_dropped", **values)
