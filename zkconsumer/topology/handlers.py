"""Error handlers for records that cannot be deserialized, processed or serialized.

Source: Kafka 3.9 DeserializationExceptionHandler, ProcessingExceptionHandler and ProductionExceptionHandler. The
quarantine topic corresponds to the dead letter queue of KIP-1034.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from zkconsumer.errors import StreamsError
from zkconsumer.topology.loop.records import Header, Record, SinkRecord, SourceRecord

#: Names of the headers that describe the error of a quarantined record.
_QUARANTINE_HEADERS = {
    f"zkconsumer.{name}" for name in ("phase", "task", "node", "error", "topic", "partition", "offset")
}


class ErrorResponse(enum.Enum):
    """Response of an error handler."""

    #: End the task. If ``production_handler`` returns FAIL, the processor that forwarded the record fails, and
    #: ``processing_handler`` determines whether the task ends.
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
            ``timestamp_extraction`` errors, which always end the task.
        task_id: task id, such as ``0_3``.
        node: name of the node that failed.
        record: source record that was being processed; None during punctuation. Its key and value are None if
            ``suppress`` or a join with a grace period held the record back.
        timestamp: timestamp of the record or punctuation, in milliseconds.
        failed: record that the node received, possibly modified by upstream nodes; None for deserialization and
            punctuation errors.
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


#: Function that decides how to handle an error. If the handler itself raises an error, the task ends.
ErrorHandler = Callable[[ErrorContext, Exception], ErrorResponse]


def call_handler(handler: ErrorHandler, context: ErrorContext, error: Exception) -> ErrorResponse:
    """Return the response of an error handler.

    Raises:
        StreamsError: the handler returned something else.
    """
    response = handler(context, error)
    if not isinstance(response, ErrorResponse):
        raise StreamsError(f"the error handler must return an ErrorResponse, got {response!r}")
    return response


def fail(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """End the task with a StreamsError (default); see ``ErrorResponse.FAIL``. Source: LogAndFailExceptionHandler."""
    return ErrorResponse.FAIL


def log_and_continue(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """Drop the record, log ``record_dropped``, and continue. Source: LogAndContinueExceptionHandler."""
    return ErrorResponse.CONTINUE


def quarantine(_context: ErrorContext, _error: Exception) -> ErrorResponse:
    """Write the source record to the quarantine topic, drop the failed record, log ``record_dropped``, and continue."""
    return ErrorResponse.QUARANTINE


def quarantine_record(topic: str, context: ErrorContext, error: Exception) -> SinkRecord:
    """Return the record for the quarantine topic: the source record, if any, with headers that describe the error."""
    record = context.record
    described = {
        "phase": context.phase,
        "task": context.task_id,
        "node": context.node,
        "error": f"{type(error).__name__}: {error}",
    }
    if record is not None:
        described |= {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)}
    found = record.headers if record is not None else ()
    # A record that comes from a quarantine topic already has these headers.
    headers: list[Header] = [header for header in found if header[0] not in _QUARANTINE_HEADERS]
    headers += [(f"zkconsumer.{name}", text.encode()) for name, text in described.items()]
    key, value = (record.key, record.value) if record is not None else (None, None)
    return SinkRecord(topic, None, max(context.timestamp, 0), key, value, tuple(headers))
