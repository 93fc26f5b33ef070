"""Writes task output to Kafka: at least once, or in one transaction per task and batch."""

from __future__ import annotations

import functools
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
from confluent_kafka import KafkaException

from zkconsumer.errors import ProducerFencedError
from zkconsumer.spark.streams.delivery import OutputDelivery
from zkconsumer.spark.streams.markers import (
    NO_OUTPUT,
    MarkedOffsets,
    Marker,
    decode_offsets,
    report_changed_output,
    to_commits,
)
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.packing import from_blob
from zkconsumer.spark.streams.producer_errors import DIFFERENT_RECORD, REJECTED, SKIPPED_SEQUENCE, UNSENT, to_error
from zkconsumer.spark.streams.record_sender import Failure, RecordSender

#: Maximum seconds to initialize a transactional producer, and to end a transaction.
_TRANSACTION_TIMEOUT_S = 60.0
#: Maximum number of rejected batches of a producer of segments, which increases its epoch after each of them. The last
#: epoch is 32,767.
_MAX_REJECTIONS = 20_000
#: Seconds after which a worker process closes an unused writer: another process writes the task's output, or there is
#: none. Source: Kafka 3.9 ``connections.max.idle.ms`` of brokers.
_MAX_IDLE_S = 600.0


class TaskWriter(Protocol):
    """Writes the output of one or more tasks.

    Attributes:
        settings: sink settings. If the brokers change, they are replaced, and used for new connections.
    """

    settings: SinkSettings

    def write(self, output: TaskOutput, marker: Marker) -> Mapping[str, int]:
        """Write a task's output in a batch. With transactions, also commit its offsets.

        Args:
            output: output of the task.
            marker: marker of the batch.

        Returns:
            Changes of the task metrics by name: the numbers of records that the production handler dropped.

        Raises:
            RecordRejectedError: a record was rejected, and the production handler returned FAIL.
            ProducerFailedError: the producer failed for a reason other than a rejected record.
            AuthorizationError: the application is not authorized to write to a topic or use the transactional id.
            StreamsError: the output was not written, or another application uses the same application id.
            RetriableError: the brokers did not respond.
        """

    def close(self) -> None:
        """Close the connections."""


class PlainWriter:
    """Writes task output at least once, without transactions.

    Args:
        settings: sink settings.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self._batch_bytes: int | None = None
        self._sender = RecordSender(settings)

    def write(self, output: TaskOutput, marker: Marker) -> Mapping[str, int]:
        """See ``TaskWriter.write``."""
        delivery = OutputDelivery(self.settings, output, marker.query, self._batch_bytes)
        try:
            failures = self._sender.send(delivery.read_all(self._sender.on_failure))
            if failures:
                self._write_segments(delivery, failures)
        except KafkaException as error:
            raise to_error(error.args[0], f"task {output.task}") from error
        return delivery.metrics

    def _write_segments(self, delivery: OutputDelivery, failures: list[Failure]) -> None:
        """Write the records that the first attempt did not write, except the rejected ones."""
        delivery.resolve(failures, are_others_written=True)
        if delivery.has_pending:
            self._replace_sender(sends_segments=True)
            while segment := delivery.take_segment(self._sender.on_failure):
                delivery.resolve(self._sender.send(segment), are_others_written=True)
                if self._sender.rejections > _MAX_REJECTIONS:
                    self._replace_sender(sends_segments=True)
                    delivery.note_new_producer()
            self._batch_bytes = delivery.batch_bytes
        elif not self._sender.is_stopped:
            return
        self._replace_sender(sends_segments=False)

    def _replace_sender(self, *, sends_segments: bool) -> None:
        old = self._sender
        self._sender = RecordSender(self.settings, batch_bytes=self._batch_bytes, sends_segments=sends_segments)
        old.close()

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()


class TransactionalWriter:
    """Writes the output of a task in transactions, which also commit the offsets and the marker of the batch.

    Initializing the producer fences other producers with the same transactional id, and aborts their transactions.

    Args:
        settings: sink settings.
        task: task id.
        offsets: committed offsets of the application; the caller closes them.
    """

    def __init__(self, settings: SinkSettings, task: str, offsets: MarkedOffsets) -> None:
        self.settings = settings
        self._transactional_id = f"{settings.application_id}-{task}"
        self._offsets = offsets
        self._sender = RecordSender(settings, self._transactional_id)
        self._is_started = False
        self._last: Marker | None = None
        self._metrics: Mapping[str, int] = {}  # of the last batch, if this writer wrote it

    def write(self, output: TaskOutput, marker: Marker) -> Mapping[str, int]:
        """See ``TaskWriter.write``."""
        try:
            marker = marker._replace(digest=compute_digest(output))
            self._start(output, marker)
            if marker.is_same_batch(self._last):
                if marker.has_other_output(self._last):
                    fails = self.settings.fails_on_changed_output
                    report_changed_output(f"task {output.task}", marker.batch, fails=fails)
            else:
                self._metrics = self._write(output, marker)
                self._last = marker
        except KafkaException as error:
            raise to_error(error.args[0], f"transactional id {self._transactional_id!r}") from error
        return self._metrics

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def _start(self, output: TaskOutput, marker: Marker) -> None:
        """Initialize the producer, and find the marker of the last committed batch."""
        if not self._is_started:
            self._sender.producer.init_transactions(_TRANSACTION_TIMEOUT_S)
            last = self._offsets.find_marker(decode_offsets(output.offsets), marker)
            if last is None or not last.is_same_batch(self._last):
                self._metrics = {}
            self._last = last
            self._is_started = True

    def _write(self, output: TaskOutput, marker: Marker) -> Mapping[str, int]:
        """Write a batch. If records are rejected, find all of them in aborted transactions, and write the others."""
        offsets = self._offsets.complete(decode_offsets(output.offsets))
        delivery = OutputDelivery(self.settings, output, marker.query)
        producer = self._sender.producer
        producer.begin_transaction()
        failures = self._sender.send(delivery.read_all(self._sender.on_failure))
        is_complete = not failures
        self._abort_after(failures, delivery)
        while not is_complete:
            delivery.restart()
            is_complete = True
            while segment := delivery.take_segment(self._sender.on_failure):
                failures = self._sender.send(segment)
                is_complete = is_complete and not failures
                self._abort_after(failures, delivery)
            if not is_complete:
                self._restart_transaction()
        commits = to_commits(offsets, marker)
        producer.send_offsets_to_transaction(commits, self._offsets.group_metadata, _TRANSACTION_TIMEOUT_S)
        producer.commit_transaction(_TRANSACTION_TIMEOUT_S)
        if delivery.batch_bytes is not None:
            self._limit_batches(delivery.batch_bytes)
        return delivery.metrics

    def _abort_after(self, failures: list[Failure], delivery: OutputDelivery) -> None:
        """Handle the failures of a segment, if any, and continue in a new transaction.

        Raises:
            ZkConsumerError: a record was rejected and must not be skipped, or the transaction failed for a reason other
                than a rejected record, for example because the application is not authorized to write to a topic.
        """
        if failures:
            if all(failure.error.code() in UNSENT for failure in failures):
                self._check_failed_transaction(failures, delivery)
            self._sender.producer.abort_transaction(_TRANSACTION_TIMEOUT_S)
            delivery.resolve(failures, are_others_written=False)
            self._sender.producer.begin_transaction()

    def _check_failed_transaction(self, failures: list[Failure], delivery: OutputDelivery) -> None:
        """Raise the error that caused the producer to discard records, unless the records can be sent again."""
        try:
            self._sender.producer.begin_transaction()  # raises the error of the failed transaction
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() not in SKIPPED_SEQUENCE | REJECTED | {DIFFERENT_RECORD}:
                raise to_error(error, delivery.describe(failures)) from raised

    def _restart_transaction(self) -> None:
        self._sender.producer.abort_transaction(_TRANSACTION_TIMEOUT_S)
        self._sender.producer.begin_transaction()

    def _limit_batches(self, batch_bytes: int) -> None:
        """Replace the producer, so that later batches are not too large for the topic."""
        self._sender.close()
        self._sender = RecordSender(self.settings, self._transactional_id, batch_bytes=batch_bytes)
        self._is_started = False


def compute_digest(output: TaskOutput) -> int:
    """Return a checksum of the records in a task's output, which is neither 0 nor ``NO_OUTPUT``.

    If the checksum of the same output changes, ``offsets.metadata._DIGEST_VERSION`` must change, too.
    """
    digest = 0
    if output.blob is not None:
        table = from_blob(output.blob)
        # The numbers of topics in the dictionary depend on their order.
        table = table.set_column(
            table.schema.get_field_index("topic"), "topic", table.column("topic").cast(pa.string())
        )
        for column in table.combine_chunks().columns:
            for chunk in column.chunks:
                for buffer in chunk.buffers():
                    digest = zlib.crc32(b"-" if buffer is None else buffer, digest)
    return digest if digest > NO_OUTPUT else NO_OUTPUT + 1


class TaskWriters:
    """The writers of a worker process. Later batches reuse them. Used by one thread.

    If another worker process has used a task's transactional id since the last batch, this process's writer is fenced
    and is replaced once. If the new writer is also fenced, another application uses the same application id.

    Args:
        clock: function that returns the time in seconds. Writers that are not used for ``_MAX_IDLE_S`` are closed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The settings are the same in all batches of a query. They contain the production handler, which user code may
        # have written for one thread.
        self._decode = functools.lru_cache(maxsize=16)(SinkSettings.decode)
        self._offsets: dict[str, MarkedOffsets] = {}  # by encoded settings
        #: Writer and time of its last use, by encoded settings and task; the most recently used writer is last.
        self._writers: OrderedDict[tuple[str, str], tuple[TaskWriter, float]] = OrderedDict()

    def write(self, encoded: str, output: TaskOutput, marker: Marker, servers: str | None) -> Mapping[str, int]:
        """Write the output of a task; see ``TaskWriter.write``.

        Args:
            encoded: encoded sink settings; see ``SinkSettings.encode``.
            output: output of the task.
            marker: marker of the batch.
            servers: current brokers; see ``SinkSettings.with_servers``.
        """
        settings = self._decode(encoded).with_servers(servers)
        is_transactional = settings.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        key = encoded, output.task if is_transactional else ""
        if encoded in self._offsets:
            self._offsets[encoded].client = settings.client
        writer, _ = self._writers.pop(key, (None, 0.0))
        if writer is not None:
            writer.settings = settings
            try:
                return self._use(key, writer, output, marker)
            except ProducerFencedError:
                if not is_transactional:
                    raise
        return self._use(key, self._create(key, settings), output, marker)

    def close(self) -> None:
        """Close all writers."""
        while self._writers:
            _, (writer, _) = self._writers.popitem()
            writer.close()
        while self._offsets:
            _, offsets = self._offsets.popitem()
            offsets.close()

    def _create(self, key: tuple[str, str], settings: SinkSettings) -> TaskWriter:
        encoded, task = key
        if not task:
            return PlainWriter(settings)
        if encoded not in self._offsets:
            self._offsets[encoded] = MarkedOffsets(settings.client, settings.application_id)
        return TransactionalWriter(settings, task, self._offsets[encoded])

    def _use(self, key: tuple[str, str], writer: TaskWriter, output: TaskOutput, marker: Marker) -> Mapping[str, int]:
        """Write with ``writer``, and keep it for later batches unless it fails."""
        try:
            metrics = writer.write(output, marker)
        except BaseException as error:
            writer.close()
            if key[0] in self._offsets and not isinstance(error, ProducerFencedError):
                self._offsets[key[0]].close()
            raise
        self._writers[key] = writer, self._clock()
        self._close_unused()
        return metrics

    def _close_unused(self) -> None:
        while (oldest := next(iter(self._writers.items())))[1][1] < self._clock() - _MAX_IDLE_S:
            del self._writers[oldest[0]]
            oldest[1][0].close()
