"""Divides a task's output until each rejected record is alone in its batch.

A broker accepts or rejects whole batches. If it names the rejected records in its response (KIP-467), the others are
sent again. Otherwise, half of the records are sent again, and so on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from zkconsumer.event_limits import log_limited
from zkconsumer.log import Logger, get_logger
from zkconsumer.spark.streams.output import (
    OnFailure,
    RecordFields,
    SinkSettings,
    TaskOutput,
    count_replaced_timestamps,
    read_records,
    with_callback,
)
from zkconsumer.spark.streams.producer_errors import DIFFERENT_RECORD, REJECTED, TOO_LARGE, UNKNOWN_TOPIC, UNSENT
from zkconsumer.spark.streams.record_sender import Failure, find_segment_bytes
from zkconsumer.spark.streams.rejected_records import RejectedRecords

#: Maximum number of records in a segment.
_SEGMENT_RECORDS = 10_000
#: Upper bounds for the bytes of a record in addition to its key, value and headers, and for those of a header in
#: addition to its name and value.
_OVERHEAD_BYTES, _HEADER_BYTES = 40, 10


class OutputDelivery:
    """The records of a task's output that have not been written yet.

    At first, all records are sent at once (``read_all``). If one is rejected, the remaining records are sent in
    segments of at most one batch (``take_segment``), in the order of the output. A record whose topic is new to the
    producer is sent alone, so that the producer cannot divide a later segment while it waits for the topic's leaders.

    Args:
        settings: sink settings.
        output: output of the task in a batch.
        query: query id.
        batch_bytes: ``batch_bytes`` of the last output.

    Attributes:
        batch_bytes: maximum size of a batch, in bytes, that the brokers accept; None if they rejected no batch of
            several records for its size.
    """

    def __init__(self, settings: SinkSettings, output: TaskOutput, query: str, batch_bytes: int | None = None) -> None:
        self._settings, self._output, self._query = settings, output, query
        self._rejected = RejectedRecords(settings, output)
        self._log = get_logger("zkconsumer.spark")
        self._records: list[RecordFields] = []
        self._pending: deque[int] = deque()
        self._segment: Sequence[int] = ()
        self._suspects_before = 0
        self._suspects = 0  # number of pending records, from the first one, that include a rejected record
        self._progress: tuple[int, int] | None = None
        self._topics: set[str] = set()
        self.batch_bytes = batch_bytes
        self._max_records, self._max_bytes = _SEGMENT_RECORDS, find_segment_bytes(settings)
        if batch_bytes is not None:
            self._max_bytes = min(self._max_bytes, batch_bytes)

    def read_all(self, on_failure: OnFailure) -> Iterator[RecordFields]:
        """Yield all records of the output, for the first attempt."""
        for topic, count in count_replaced_timestamps(self._output, self._settings).items():
            cause = "timestamp_replaced", self._settings.application_id, topic
            log_limited(cause, partial(_log_replaced, self._log, topic, self._output.task), count)
        return read_records(self._output, self._settings, self._query, on_failure)

    def restart(self) -> None:
        """Mark all records except the rejected ones as not written, because the transaction was aborted."""
        self._load()
        self._pending = deque(self._rejected.accepted(len(self._records)))
        self._suspects = 0
        progress = self._rejected.count, self._max_bytes
        if progress == self._progress:  # records that were rejected together were accepted in other batches
            self._max_records = max(1, self._max_records // 2)
        self._progress = progress

    @property
    def metrics(self) -> Mapping[str, int]:
        """Changes of the task metrics that result from rejected records."""
        return self._rejected.metrics

    @property
    def has_pending(self) -> bool:
        """Whether records must be sent again."""
        return bool(self._pending)

    def note_new_producer(self) -> None:
        """Note that later segments are sent by a new producer, to which all topics are new."""
        self._topics.clear()

    def take_segment(self, on_failure: OnFailure) -> list[RecordFields]:
        """Return the next records to send; empty if all records have been written."""
        limit = max(1, self._suspects // 2) if self._suspects else self._max_records
        segment: list[int] = []
        size = 0
        while self._pending and len(segment) < limit:
            record = self._records[self._pending[0]]
            size += _measure(record)
            is_new = record[0] not in self._topics
            if segment and (size > self._max_bytes or is_new):
                break
            segment.append(self._pending.popleft())
            if is_new:
                self._topics.add(record[0])
                break
        self._segment, self._suspects_before = segment, self._suspects
        self._suspects = max(0, self._suspects - len(segment))
        return [with_callback(self._records[position], position, on_failure) for position in segment]

    def resolve(self, failures: Sequence[Failure], *, are_others_written: bool) -> None:
        """Pass the rejected records to the production handler, and send the others again.

        Args:
            failures: records of the last segment, or of the first attempt, that were not written.
            are_others_written: whether the other records of the segment were written. After a transaction was aborted,
                they must be sent again.

        Raises:
            RecordRejectedError: the handler returned FAIL, or a record could not be quarantined.
            ZkConsumerError: an error does not concern a single record.
        """
        if not failures:
            return
        if not self._records:
            self._load()
            self._segment = range(len(self._records))
        culprits, suspects = self._classify(failures)
        again = sorted({failure.position for failure in failures}) if are_others_written else list(self._segment)
        for failure in sorted(culprits):
            quarantined = self._rejected.handle(failure.position, failure.error, self._records[failure.position])
            if quarantined is not None:
                self._pending.append(len(self._records))
                self._records.append(quarantined)
        again = [position for position in again if not self._rejected.is_rejected(position)]
        self._pending.extendleft(reversed(again))
        if culprits or suspects:
            last = max((failure.position for failure in suspects), default=-1)
            self._suspects = sum(position <= last for position in again)
        else:  # a transaction failed because of a batch that was rejected in the previous one
            self._suspects = self._suspects_before

    def describe(self, failures: Sequence[Failure]) -> str:
        """Return the task id and the topics of records, for error messages."""
        self._load()
        topics = sorted({self._records[failure.position][0] for failure in failures})
        return f"task {self._output.task}, topic {' or '.join(map(repr, topics))}"

    def _classify(self, failures: Sequence[Failure]) -> tuple[list[Failure], list[Failure]]:
        """Return the rejected records, and all records of batches whose rejected record the broker did not name."""
        culprits, groups = [], defaultdict(list)
        for failure in failures:
            code = failure.error.code()
            if code in UNSENT:
                continue
            if failure.partition is None or code in UNKNOWN_TOPIC or code not in REJECTED | {DIFFERENT_RECORD}:
                culprits.append(failure)
            else:
                groups[failure.partition].append(failure)
        suspects = []
        for group in groups.values():
            named = [failure for failure in group if failure.error.code() != DIFFERENT_RECORD]
            if len(group) == 1 or len(named) < len(group):
                culprits += named
            else:
                suspects += group
                self._learn_limit(group)
        return culprits, suspects

    def _learn_limit(self, group: Sequence[Failure]) -> None:
        if any(failure.error.code() in TOO_LARGE for failure in group):
            size = sum(_measure(self._records[failure.position]) for failure in group)
            self._max_bytes = self.batch_bytes = max(1, min(self._max_bytes, size // 2))

    def _load(self) -> None:
        if not self._records:
            self._records = list(read_records(self._output, self._settings, self._query, _ignore))


def _log_replaced(log: Logger, topic: str, task: str, records: int) -> None:
    log.warning("timestamp_replaced", topic=topic, task=task, records=records, timestamp=1)


def _ignore(*_: object) -> None:
    """Replaced before the record is sent; see ``with_callback``."""


def _measure(record: RecordFields) -> int:
    _, value, key, *_, headers = record
    size = _OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    return size + sum(_HEADER_BYTES + len(name.encode()) + len(text or b"") for name, text in headers or ())
