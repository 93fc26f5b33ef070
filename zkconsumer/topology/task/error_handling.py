"""Handling of node errors: handler responses, dropped records, and the error that ends a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.topology import handlers
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.dropped_records import DroppedRecords
from zkconsumer.topology.errors import FatalError
from zkconsumer.topology.handlers import ErrorContext, ErrorHandler, ErrorResponse
from zkconsumer.topology.loop.records import Record, SinkRecord, SourceRecord

#: Prefix of the error message by phase. Other phases have no prefix: it is sufficient that the error context names the
#: node.
_FAILURES = {
    "deserialization": "the record cannot be deserialized: ",
    "timestamp_extraction": "timestamp extractor failed: ",
    "punctuation": "punctuator failed: ",
}


class FailedNodeError(FatalError):
    """A node error that ends the task. No other error handler is called."""

    def __init__(self, context: ErrorContext, error: Exception) -> None:
        super().__init__(context, error)
        self.context, self.error = context, error


class ErrorHandling:
    """Calls the error handlers of a task, and drops or quarantines records.

    Args:
        task_id: task id.
        config: application settings, which contain the handlers.
        dropped: counts and logs the dropped records.
        send: function that sends a record to the quarantine topic.

    Attributes:
        dropped: see above.
    """

    def __init__(
        self,
        task_id: str,
        config: ApplicationConfig,
        dropped: DroppedRecords,
        send: Callable[[SinkRecord], object],
    ) -> None:
        self._task_id, self._config, self.dropped, self._send = task_id, config, dropped, send

    def on_deserialization_error(self, node: str, source: SourceRecord, error: Exception) -> None:
        """Call the deserialization handler, and drop or quarantine the record unless the handler returns FAIL.

        Raises:
            FailedNodeError: the handler failed or returned FAIL.
        """
        context = ErrorContext("deserialization", self._task_id, node, source, source.timestamp)
        self._drop_or_fail(self._config.deserialization_handler, context, error)

    def on_timestamp_error(self, node: str, source: SourceRecord, error: Exception) -> NoReturn:
        """Raise FailedNodeError for a failed timestamp extractor. As in Kafka Streams, no handler is called."""
        context = ErrorContext("timestamp_extraction", self._task_id, node, source, source.timestamp)
        raise FailedNodeError(context, error) from error

    def on_processing_error(self, node: str, source: SourceRecord | None, record: Record, error: Exception) -> None:
        """Call the processing handler for a processor error; see ``on_deserialization_error``."""
        context = ErrorContext("processing", self._task_id, node, source, record.timestamp, record)
        self._drop_or_fail(self._config.processing_handler, context, error)

    def on_punctuation_error(self, node: str, now_ms: int, error: Exception) -> None:
        """Call the processing handler for a punctuator error; see ``on_deserialization_error``."""
        context = ErrorContext("punctuation", self._task_id, node, None, now_ms)
        self._drop_or_fail(self._config.processing_handler, context, error)

    def on_production_error(
        self, node: str, source: SourceRecord | None, topic: str, what: str, record: Record, error: Exception
    ) -> None:
        """Call the production handler, and drop or quarantine the record unless the handler returns FAIL.

        Args:
            node: name of the sink.
            source: source record, or None.
            topic: topic of the sink.
            what: part that could not be serialized: ``key`` or ``value``.
            record: record that could not be serialized.
            error: error raised by the serializer.

        Raises:
            StreamsError: the handler returned FAIL. As in Kafka Streams, the parent processor then fails.
            FailedNodeError: the handler failed.
        """
        context = ErrorContext("production", self._task_id, node, source, record.timestamp, record)
        if not self._handler_drops(self._config.production_handler, context, error):
            raise StreamsError(
                f"sink {node!r}: the {what} of a record for topic {topic!r} cannot be serialized: "
                f"{describe_error(error)}; check the {what} serializer of the sink, or the default serde"
            ) from error

    def _drop_or_fail(self, handler: ErrorHandler, context: ErrorContext, error: Exception) -> None:
        if not self._handler_drops(handler, context, error):
            raise FailedNodeError(context, error) from error

    def _handler_drops(self, handler: ErrorHandler, context: ErrorContext, error: Exception) -> bool:
        try:
            response = handlers.call_handler(handler, context, error)
            if response is ErrorResponse.QUARANTINE:
                self._quarantine(context, error)
        except Exception as second:
            raise FailedNodeError(context, second) from error
        if response is ErrorResponse.FAIL:
            return False
        self.dropped.add(context.record, reason=context.phase, node=context.node, error=describe_error(error))
        return True

    def _quarantine(self, context: ErrorContext, error: Exception) -> None:
        topic = self._config.quarantine_topic
        if topic is None:
            raise StreamsError(
                "the error handler returned QUARANTINE, but ApplicationConfig.quarantine_topic is not set"
            )
        self._send(handlers.quarantine_record(topic, context, error))


def fatal_error(task_id: str, source: SourceRecord | None, error: Exception, what: str = "") -> StreamsError:
    """Return the error that ends a task. Its ``__cause__`` is the original error.

    Args:
        task_id: task id.
        source: source record that was being processed, or None.
        error: original error, or a FailedNodeError that contains it.
        what: message prefix for an error that did not occur in a node.
    """
    if isinstance(error, FailedNodeError):
        phase, remedy = error.context.phase, ""
        # Suggest checking the deserializers only if one of them failed. StreamsErrors contain their own remedies.
        if phase == "deserialization" and error.error is error.__cause__ and not isinstance(error.error, StreamsError):
            remedy = "; check the key and value deserializers of the source, or the default serdes"
        what = _FAILURES.get(phase, "")
        failure = StreamsError(f"{error.context}: {what}{describe_error(error.error)}{remedy}")
        failure.__cause__ = error.error
    else:
        where = "" if source is None else f", {source.place}"
        failure = StreamsError(f"task {task_id}{where}: {what}{describe_error(error)}")
        failure.__cause__ = error
    return failure


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error; for a StreamsError, only the message."""
    return str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
