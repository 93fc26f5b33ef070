"""Passes a task's rejected records to the production handler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaError

from zkconsumer.errors import RecordRejectedError
from zkconsumer.spark.streams.output import RecordFields, SinkSettings, TaskOutput
from zkconsumer.spark.streams.producer_errors import to_error
from zkconsumer.topology.dropped_records import DroppedRecords
from zkconsumer.topology.handlers import ErrorContext, ErrorResponse, call_handler, quarantine_record
from zkconsumer.topology.loop.records import Record


class RejectedRecords:
    """Tracks the records in a task's output that the production handler drops or quarantines.

    Records are identified by their position in the output, because several can have the same topic, key and value.

    Args:
        settings: sink settings.
        output: output of the task in a batch.
    """

    def __init__(self, settings: SinkSettings, output: TaskOutput) -> None:
        self._settings = settings
        self._output = output
        self._positions: set[int] = set()
        self._metrics: dict[str, int] = {}
        self._dropped = DroppedRecords(output.task, self._metrics, settings.application_id)

    @property
    def metrics(self) -> Mapping[str, int]:
        """Changes of the task metrics; see ``DroppedRecords``."""
        return self._metrics

    @property
    def count(self) -> int:
        """Number of rejected records."""
        return len(self._positions)

    def accepted(self, count: int) -> Iterator[int]:
        """Yield the positions of the first ``count`` records that were not rejected."""
        return (position for position in range(count) if position not in self._positions)

    def is_rejected(self, position: int) -> bool:
        """Return whether the record at a position was rejected."""
        return position in self._positions

    def handle(self, position: int, cause: KafkaError, record: RecordFields) -> RecordFields | None:
        """Call the production handler for a rejected record; return the record for the quarantine topic, if any.

        Raises:
            RecordRejectedError: the handler returned FAIL, or the record could not be quarantined.
            ZkConsumerError: the error does not concern a single record; see ``to_error``.
        """
        topic, value, key, _, _, _, timestamp, headers = record
        error = to_error(cause, f"task {self._output.task}, {_describe(self._output.sequence + position, record)}")
        quarantine = self._settings.quarantine_topic
        if not isinstance(error, RecordRejectedError) or topic == quarantine:
            raise error
        failed = Record(key, value, timestamp, tuple(headers or ()))
        context = ErrorContext("production", self._output.task, topic, None, timestamp, failed)
        response = call_handler(self._settings.handler, context, error)
        if response is ErrorResponse.FAIL or (response is ErrorResponse.QUARANTINE and quarantine is None):
            raise error
        self._positions.add(position)
        self._dropped.add(None, reason=context.phase, node=topic, error=str(error))
        if response is not ErrorResponse.QUARANTINE:
            return None
        assert quarantine is not None
        described = quarantine_record(quarantine, context, error)
        return quarantine, value, key, -1, record[4], None, timestamp, list(described.headers)


def _describe(number: int, record: RecordFields) -> str:
    topic, value, key, *_ = record
    size = sum(len(part) for part in (key, value) if part is not None)
    return f"topic {topic!r}, record of {size} bytes (sequence number {number})"
