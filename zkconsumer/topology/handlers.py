"""Error handlers for records that cannot be deserialized, processed or serialized.

Source: Kafka 3.9 DeserializationExceptionHandler, ProcessingExceptionHandler and ProductionExceptionHandler; quarantine
as the dead letter queue of KIP-1034.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from zkconsumer.topology.records import Header, Record, SinkRecord, SourceRecord


class ErrorResponse(enum.Enum):
    """Response of an error handler."""

    #: End the task. From ``production_handler``: pass the error to ``processing_handler``, as an error of the processor
    #: that forwarded the record.
    FAIL = "fail"
    #: Drop the record, count it, and continue.
    CONTINUE = "continue"
    #: Write the source record to the quarantine topic, drop the failed record, count it, and continue.
    QUARANTINE = "quarantine"


@dataclass(frozen=True)
class ErrorContext:
    """Where an error occurred.

    Attributes:
        phase: ``deserialization``, ``processing``, ``punctuation`` or ``production``. Handlers are not called for
            the phase ``timestamp_extraction``, which always ends the task.
        task_id: the task, such as ``0_3``.
        node: the node that failed.
        record: the source record that is processed; None in a punctuation. Key and value are None if it was held back
            by ``suppress`` or by a join with a grace period.
        timestamp: timestamp of the record or of the punctuation in milliseconds.
        failed: the record that the node received, which earlier nodes may have changed; None if a record could not be
            deserialized, and in a punctuation.
    """

    phase: str
    task_id: str
    node: str
    record: SourceRecord | None
    timestamp: int
    failed: Record | None = None

    def __str__(self) -> str:
        where = "" if self.record is None else f", {self.record.place}"
        return f"task {self.task_id}, node {self.node!r}{where}"


#: Decides what to do about an error. An error that it raises ends the task.
ErrorHandler = Callable[[ErrorContext, Exception], ErrorResponse]


def fail(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """End the task with a StreamsError that describes the error; the default. Source: LogAndFailExceptionHandler."""
    return ErrorResponse.FAIL


def log_and_continue(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """Drop the record, log ``record_dropped``, and continue. Source: LogAndContinueExceptionHandler."""
    return ErrorResponse.CONTINUE


def quarantine(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """Write the source record to the quarantine topic, drop the failed record, log ``record_dropped``, and continue."""
    return ErrorResponse.QUARANTINE


def quarantine_record(topic: str, context: ErrorContext, error: Exception) -> SinkRecord:
    """Return a record for the quarantine topic: the bytes that were read, and headers that describe the error."""
    record = context.record
    headers: list[Header] = list(record.headers) if record is not None else []
    described = {
        "phase": context.phase,
        "task": context.task_id,
        "node": context.node,
        "error": f"{type(error).__name__}: {error}",
    }
    if record is not None:
        described |= {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)}
    headers += [(f"zkconsumer.{name}", text.encode()) for name, text in described.items()]
    key, value = (record.key, record.value) if record is not None else (None, None)
    return SinkRecord(topic, None, max(context.timestamp, 0), key, value, tuple(headers))
