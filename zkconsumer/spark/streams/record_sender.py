"""Sends records with librdkafka's producer, and returns the records that were not written.

See docs/decisions/30-librdkafka-producer.rst.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.streams.first_records import FirstRecords
from zkconsumer.spark.streams.markers import TASK_TIMEOUT_S
from zkconsumer.spark.streams.output import RecordFields, SinkSettings
from zkconsumer.spark.streams.producer_errors import UNKNOWN_TOPIC, UNSENT

#: Milliseconds to wait for further records before a batch is sent. ``flush`` does not wait.
_LINGER_MS = 50
#: Properties of the producer of segments, which sends a segment when it calls ``flush``. Its other limits, among them
#: ``linger.ms``, are the maximum, so that they do not divide a segment.
_SEGMENT_PROPERTIES = {
    "batch.num.messages": 1_000_000,
    "batch.size": (1 << 31) - 1,
    "queue.buffering.max.kbytes": (1 << 31) - 1,
    "queue.buffering.max.messages": 0,
}
_MAX_LINGER_MS = 900_000
#: Upper bound for the bytes of a produce request in addition to its client id and records.
_REQUEST_BYTES = 400
#: Default ``message.max.bytes``, with which librdkafka accepts records of the same size as the Java producer with its
#: default ``max.request.size`` of 1 MiB. librdkafka adds 36 bytes to key, value and headers, and the Java producer 87.
_MAX_RECORD_BYTES = (1 << 20) - 87 + 36
#: The names that are used here for librdkafka properties with two names.
_PREFERRED_NAMES = {"queue.buffering.max.ms": "linger.ms", "message.timeout.ms": "delivery.timeout.ms"}
#: Properties that are read here.
_NUMBERS = {"batch.size", "delivery.timeout.ms", "message.max.bytes"}
#: Seconds between two checks for delivery errors in ``flush``. From 0.2 seconds on, ``flush`` would not end after an
#: error in a callback.
_FLUSH_INTERVAL_S = 0.19
#: Number of records between two checks for delivery errors.
_POLL_RECORDS = 1_000

#: Errors after which the producer accepts no more records.
_STOPPED = {KafkaError._STATE, KafkaError._FATAL, KafkaError._FENCED}


_log = logging.getLogger("zkconsumer.librdkafka")
# librdkafka warns about ``enable.gapless.guarantee``, and logs each rejected batch as a fatal error.
_log.addFilter(lambda record: "gap-less" not in record.getMessage() and "gapless" not in record.getMessage())


class Failure(NamedTuple):
    """A record that was not written.

    Attributes:
        position: position of the record in the task's output.
        error: the error.
        partition: topic and partition number; None if the producer itself rejected the record.
    """

    position: int
    error: KafkaError
    partition: tuple[str, int] | None


class RecordSender:
    """Sends records with its own producer. Used by one thread.

    After a broker rejects a batch, a non-transactional producer sends no more records, because records after those of
    the batch must not be written before them (``enable.gapless.guarantee``). Because a broker accepts any sequence
    number in the first batch of a producer, the first record of each partition is sent alone.

    The producer of segments can continue: after a rejection, it increases its epoch, and numbers the records that it
    sends later from 0. So each ``send`` call must be one batch for each partition; see ``find_segment_bytes``.

    Args:
        settings: sink settings.
        transactional_id: transactional id; None for a non-transactional producer.
        batch_bytes: maximum batch size in bytes; None for the size in the settings.
        sends_segments: whether the caller passes a segment to each ``send`` call.

    Attributes:
        is_stopped: whether the last ``send`` call ended because a record was not written. The caller must then replace
            a non-transactional sender. Always False for segments.
        rejections: number of rejected batches of segments so far.
    """

    def __init__(
        self,
        settings: SinkSettings,
        transactional_id: str | None = None,
        *,
        batch_bytes: int | None = None,
        sends_segments: bool = False,
    ) -> None:
        self._failures: dict[int, Failure] = {}
        self._fatal: BaseException | None = None
        self._is_transactional = transactional_id is not None
        self._sends_segments = sends_segments
        self._first_records: FirstRecords | None = None
        self.is_stopped = False
        self.rejections = 0
        config = _configure(settings)
        if batch_bytes is not None:
            config["batch.size"] = batch_bytes
        if transactional_id is not None:  # ``delivery.timeout.ms`` defaults to the transaction timeout
            config["transactional.id"] = transactional_id
        else:
            timeout_ms = config.setdefault("delivery.timeout.ms", int(TASK_TIMEOUT_S * 1_000))
            self._timeout_s = timeout_ms / 1_000 or TASK_TIMEOUT_S  # 0 means no limit
            if sends_segments:
                config |= _SEGMENT_PROPERTIES
                config["linger.ms"] = min(self._timeout_s * 1_000 - 1, _MAX_LINGER_MS)  # must be less than the timeout
            else:
                self._first_records = FirstRecords(self._count_partitions)
                config |= {"enable.gapless.guarantee": True, "logger": _log}
        try:
            self.producer = confluent_kafka.Producer(config)
        except KafkaException as error:
            raise ConfigurationError(f"invalid producer settings: {error.args[0].str()}") from error

    def send(self, records: Iterable[RecordFields]) -> list[Failure]:
        """Send records, wait until the brokers acknowledge them, and return the records that were not written.

        In a transaction, the first failure that the producer reports ends the call, and the result is incomplete.

        Args:
            records: the records, with the callback ``on_failure``; see ``read_records``.

        Raises:
            KafkaException: the producer failed and cannot be used again; see ``to_error``.
        """
        self._failures, self.is_stopped = {}, False
        if self._first_records is not None:
            self._first_records.forget_old()
        failure: KafkaException | None = None
        unsent = iter(records)
        with _paused_collection():
            while failure is None and not self.is_stopped and (chunk := list(itertools.islice(unsent, _POLL_RECORDS))):
                self._serve(self.producer.poll, 0)
                failure = self._produce_in_order(chunk)
            self._flush()
        if failure is not None and not self.is_stopped:
            raise failure
        if self.is_stopped and not self._is_transactional:
            self._discard()
            _fail(unsent)
        self.rejections += len({failure.partition for failure in self._failures.values()})
        return list(self._failures.values())

    def on_failure(self, position: int, error: KafkaError, message: Any) -> None:
        """Handle the delivery report of a record that was not written.

        Args:
            position: position of the record in the task's output.
            error: the error.
            message: the message; None if the producer did not accept it.
        """
        try:
            self._add_failure(position, error, message)
        except SystemError as pending:  # the client set a fatal error before it called this method
            self._fatal = pending.__cause__ or pending
            self._add_failure(position, error, message)

    def _add_failure(self, position: int, error: KafkaError, message: Any) -> None:
        partition = None if message is None else (message.topic(), message.partition())
        self._failures[position] = Failure(position, error, partition)
        # The producer discards records of a failed transaction, but keeps those that it retries until they time out.
        ignored = UNKNOWN_TOPIC if self._is_transactional else UNSENT | UNKNOWN_TOPIC
        if message is not None and error.code() not in ignored and not self._sends_segments:
            self.is_stopped = True

    def close(self) -> None:
        """Close the connections, and discard unsent records."""
        with contextlib.suppress(KafkaException):  # already raised by ``send``
            self.producer.purge()
            self._serve(self.producer.flush, _FLUSH_INTERVAL_S)
        del self.producer

    def _discard(self) -> None:
        """Discard unsent records, and wait for the responses of all sent ones.

        The client's threads can discard records after ``purge`` has returned, also those of a later ``send`` call. So
        the producer must not be used again.
        """
        left = 1
        while left:  # ``purge`` again: a response can put records back into the queue to send them again
            self.producer.purge(in_queue=True, in_flight=False)
            left = self._serve(self.producer.flush, _FLUSH_INTERVAL_S)

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Call the producer's ``poll`` or ``flush``, which calls ``on_failure``."""
        left = 1
        try:
            left = call(timeout_s)
        except KafkaException as error:
            self._fatal = error
        except SystemError as error:  # raised after ``on_failure`` was called with a pending fatal error
            self._fatal = self._fatal or error.__cause__ or error
        fatal, self._fatal = self._fatal, None
        if fatal is None:
            return left
        if not isinstance(fatal, KafkaException) or fatal.args[0].code() != KafkaError._GAPLESS_GUARANTEE:
            raise fatal
        self.is_stopped = True  # the broker's error is in the delivery reports
        return left

    def _flush(self) -> None:
        """Wait until all records are written, or one is rejected."""
        while self._serve(self.producer.flush, _FLUSH_INTERVAL_S) and not self.is_stopped:
            pass

    def _produce_in_order(self, records: list[RecordFields]) -> KafkaException | None:
        """Pass records to the producer, those that must be written first alone; see ``_produce``."""
        if self._first_records is None:
            return self._produce(records)
        while True:
            first, records = self._first_records.divide(records)
            if not first:
                return self._produce(records)
            known = len(self._failures)
            failure = self._produce(first)
            self._flush()
            if failure is None and len(self._failures) > known:
                self.is_stopped = True  # the caller sends the others in segments
            if failure is not None or self.is_stopped:
                _fail(records)
                return failure
            self._first_records.confirm()

    def _count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it is unknown."""
        return len(self.producer.list_topics(topic, self._timeout_s).topics[topic].partitions)

    def _produce(self, records: list[RecordFields]) -> KafkaException | None:
        """Pass records to the producer; return the error if it accepts no more records."""
        unsent = iter(records)
        while True:
            try:
                deque(itertools.starmap(self.producer.produce, unsent), maxlen=0)  # no Python code per record
                return None
            except BufferError:
                error = self._produce_later(records[-1 - operator.length_hint(unsent)])
            except KafkaException as raised:
                error = raised
            if error is None:
                continue
            failed = records[-1 - operator.length_hint(unsent)]
            if error.args[0].code() in _STOPPED:  # for example, after an earlier record was rejected
                _fail([failed, *unsent])
                return error
            failed[4](error.args[0], None)

    def _produce_later(self, record: RecordFields) -> KafkaException | None:
        """Wait until the producer queue has room, then produce ``record``; return the error if it is not accepted."""
        while True:
            left = self._serve(self.producer.flush, 0.1)  # ``poll`` would wait for ``linger.ms``
            try:
                self.producer.produce(*record)
                return None
            except BufferError:
                if not left:  # the record is larger than the queue
                    return KafkaException(KafkaError(KafkaError._QUEUE_FULL))
            except KafkaException as error:
                return error


def find_segment_bytes(settings: SinkSettings) -> int:
    """Return the maximum size of the records in a segment, in bytes, that the producer sends in one batch."""
    config = _configure(settings)
    size: int = min(config["batch.size"], config["message.max.bytes"])
    return max(1, size - _REQUEST_BYTES - len(str(config.get("client.id", "rdkafka")).encode()))


def _configure(settings: SinkSettings) -> dict[str, Any]:
    """Return the properties of a producer, whose numbers in ``_NUMBERS`` are integers.

    Raises:
        ConfigurationError: one of these properties is not a number.
    """
    given = {
        _PREFERRED_NAMES.get(name, name): value for name, value in {**settings.producer, **settings.client}.items()
    }
    config = {
        "batch.size": 1_000_000,
        "delivery.report.only.error": True,
        "message.max.bytes": _MAX_RECORD_BYTES,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
        **given,
    }
    for name in _NUMBERS & config.keys():
        try:
            config[name] = int(config[name])
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"invalid producer settings: {name} must be an integer, got {config[name]!r}"
            ) from None
    timeout_ms = config.get("delivery.timeout.ms", 0)
    return {"linger.ms": min(_LINGER_MS, timeout_ms - 1) if timeout_ms else _LINGER_MS, **config}


def _fail(records: Iterable[RecordFields]) -> None:
    """Report records that were not passed to the producer."""
    error = KafkaError(KafkaError._PURGE_QUEUE)
    for record in records:
        record[4](error, None)


@contextlib.contextmanager
def _paused_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would visit the callback of each record several times."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
