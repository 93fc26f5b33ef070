"""Counting and logging of the records that a task drops."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, Unpack

from zkconsumer.event_limits import log_limited
from zkconsumer.log import EventValues, Logger, get_logger
from zkconsumer.topology.loop.records import Record, SourceRecord

#: Maximum number of events per minute for records that an error handler drops, with the same reason and node.
_MAX_ERRORS = 10


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


class DroppedRecords:
    """Counts each dropped record once, in the metric ``dropped``, and logs the event ``record_dropped``.

    A process logs at most one event per minute with the same reason, and the same node or store. If an error handler
    dropped the records, it logs up to ten, because their errors can differ. Other events are logged when the task
    commits or is closed, so that an event contains all records of a batch.

    Source: Kafka 3.9 TaskMetrics.droppedRecordsSensor.

    Args:
        task_id: task id.
        metrics: task metrics; ``dropped`` and ``dropped/<reason>`` are incremented.
        application_id: application id. Several applications can use the same process and the same node names.
    """

    def __init__(self, task_id: str, metrics: dict[str, int], application_id: str) -> None:
        self._metrics, self._application_id = metrics, application_id
        self._log = get_logger("zkconsumer.topology", task=task_id)

    def add(self, source: SourceRecord | None, **values: Unpack[EventValues]) -> None:
        """Count a dropped record, and log it now or later; see ``event_limits.log_limited``.

        Args:
            source: source record that was being processed, or None.
            values: values of the event. ``reason`` is required; ``error`` is set if an error handler was called.
        """
        reason = values["reason"] = str(values["reason"])
        by_reason = f"dropped/{reason}"
        self._metrics["dropped"] = self._metrics.get("dropped", 0) + 1
        self._metrics[by_reason] = self._metrics.get(by_reason, 0) + 1
        cause = "record_dropped", self._application_id, reason, values.get("node"), values.get("store")
        # Keep only the place of the source record, because the event may be logged after the batch.
        place = (
            {} if source is None else {"topic": source.topic, "partition": source.partition, "offset": source.offset}
        )
        is_error = "error" in values
        log_limited(
            cause,
            partial(_log_event, self._log, place, values),
            max_events=_MAX_ERRORS if is_error else 1,
            is_deferred=not is_error,
        )


def _log_event(log: Logger, place: Mapping[str, Any], values: EventValues, records: int) -> None:
    values["records"] = records
    log.bind(**place).warning("record_dropped", **values)
