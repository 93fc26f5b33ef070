"""Passes a task's rejected records to the production handler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zkconsumer.errors import RecordRejectedError
from zkconsumer.log import get_logger
from zkconsumer.spark.streams.output import RecordFields, SinkSettings, TaskOutput, read_records
from zkconsumer.spark.streams.record_sender import RecordKey, Rejection, to_error
from zkconsumer.topology.handlers import ErrorContext, ErrorResponse, quarantine_record
from zkconsumer.topology.records import Record


class RejectedRecords:
    """Tracks the records in a task's output that the production handler drops or quarantines.

    Args:
        settings: sink settings.
        output: output of the task in a batch.

    Attributes:
        quarantined: records for the quarantine topic.
    """

    def __init__(self, settings: SinkSettings, output: TaskOutput) -> None:
        self._settings = settings
        self._output = output
        self._dropped: set[RecordKey] = set()
        self.quarantined: list[RecordFields] = []
        self._log = get_logger("zkconsumer.spark")

    def accepted(self) -> Iterator[RecordFields]:
        """Yield the records of the output that were neither dropped nor quarantined."""
        records = read_records(self._output, self._settings)
        return (one for one in records if _identify(one) not in self._dropped) if self._dropped else records

    def handle(self, rejections: Iterable[Rejection]) -> None:
        """Call the production handler for each rejected record.

        Raises:
            RecordRejectedError: the handler returned FAIL, or a record could not be quarantined.
            ProducerFencedError: another producer uses the transactional id.
            RetriableError: the brokers did not respond.
        """
        rejections = list(rejections)
        if not rejections:
            return
        self._check_topic(rejections)
        known = {_identify(one): one for one in read_records(self._output, self._settings)}
        for rejection in rejections:
            self._handle(rejection, known[rejection.record])
            self._dropped.add(rejection.record)

    def _check_topic(self, rejections: Iterable[Rejection]) -> None:
        """Raise the error if a record for the quarantine topic was rejected, because it cannot be quarantined."""
        for error, record in rejections:
            if record.topic == self._settings.quarantine_topic:
                raise to_error(error, f"task {self._output.task}, {_describe(record)}")

    def _handle(self, rejection: Rejection, record: RecordFields) -> None:
        error = to_error(rejection.error, f"task {self._output.task}, {_describe(rejection.record)}")
        if not isinstance(error, RecordRejectedError):
            raise error
        topic, value, key, _, _, _, timestamp, headers = record
        failed = Record(key, value, timestamp, tuple(headers or ()))
        context = ErrorContext("production", self._output.task, topic, None, timestamp, failed)
        response = self._settings.handler(context, error)
        quarantine = self._settings.quarantine_topic
        if response is ErrorResponse.FAIL or (response is ErrorResponse.QUARANTINE and quarantine is None):
            raise error
        if response is ErrorResponse.QUARANTINE:
            assert quarantine is not None
            described = quarantine_record(quarantine, context, error)
            self.quarantined.append((quarantine, value, key, -1, None, None, timestamp, list(described.headers)))
        self._log.warning("record_dropped", reason="production", node=topic, error=str(error))


def _identify(record: RecordFields) -> RecordKey:
    topic, value, key, *_ = record
    return RecordKey(topic, key, value)


def _describe(record: RecordKey) -> str:
    size = sum(len(part) for part in (record.key, record.value) if part is not None)
    return f"topic {record.topic!r}, record of {size} bytes"
