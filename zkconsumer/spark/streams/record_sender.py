"""Sends records with librdkafka's producer, and translates its errors."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from zkconsumer.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    ProducerFencedError,
    RecordRejectedError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.spark.streams.output import RecordFields, SinkSettings

#: Default ``delivery.timeout.ms`` of non-transactional producers.
_DELIVERY_TIMEOUT_MS = 120_000
#: Seconds between two checks for delivery errors in ``flush``.
_FLUSH_INTERVAL_S = 0.5
#: Number of records between two checks for delivery errors.
_POLL_RECORDS = 1_000

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_UNSUPPORTED = {
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.UNSUPPORTED_VERSION,
}
_UNKNOWN_TOPIC = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}
#: Errors of records that were discarded when a transaction was aborted or the producer was closed.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
#: Errors after which the producer accepts no more records.
_FAILED = {KafkaError._STATE, KafkaError._FATAL, KafkaError._FENCED}
#: Errors that are not caused by a record. As in Kafka Streams, the production handler is not called for them.
_UNREACHABLE = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


class RecordKey(NamedTuple):
    """Topic, key and value of a rejected record. They can be the same for several records of a batch."""

    topic: str
    key: bytes | None
    value: bytes | None


class Rejection(NamedTuple):
    """A rejected record and its error."""

    error: KafkaError
    record: RecordKey


class RecordSender:
    """Sends records with its own producer. Used by one thread.

    Args:
        settings: sink settings.
        transactional_id: transactional id; None for a non-transactional producer.
    """

    def __init__(self, settings: SinkSettings, transactional_id: str | None = None) -> None:
        self._rejections: list[Rejection] = []
        self._is_transactional = transactional_id is not None
        config = {
            "delivery.report.only.error": True,
            "linger.ms": 5,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": self._on_delivery,
            **settings.producer,
            **settings.client,
        }
        if transactional_id is None:
            config.setdefault("delivery.timeout.ms", _DELIVERY_TIMEOUT_MS)
        else:  # ``delivery.timeout.ms`` defaults to the transaction timeout
            config["transactional.id"] = transactional_id
        try:
            self.producer = confluent_kafka.Producer(config)
        except KafkaException as error:
            raise ConfigurationError(f"invalid producer settings: {error.args[0].str()}") from error

    def send(self, records: Iterable[RecordFields]) -> list[Rejection]:
        """Send records, wait until the brokers acknowledge them, and return the rejected records.

        Raises:
            KafkaException: the producer failed and cannot be used again; see ``to_error``.
        """
        self._rejections = []
        failure: KafkaException | None = None
        unsent = iter(records)
        while failure is None and (chunk := list(itertools.islice(unsent, _POLL_RECORDS))):
            self._serve(self.producer.poll, 0)
            failure = self._produce(chunk)
        # After an error, a transactional producer sends nothing until the transaction is aborted.
        while self._serve(self.producer.flush, _FLUSH_INTERVAL_S) and not (self._is_transactional and self._rejections):
            pass
        if failure is not None and not self._rejections:
            raise failure
        return self._rejections

    def close(self) -> None:
        """Close the connections, and discard unsent records."""
        with contextlib.suppress(KafkaException):  # already raised by ``send``
            self.producer.purge()
            self._serve(self.producer.flush, _FLUSH_INTERVAL_S)
        del self.producer  # breaks a reference cycle: the producer references ``_on_delivery``

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Call the producer's ``poll`` or ``flush``, which calls ``_on_delivery``."""
        try:
            return call(timeout_s)
        except SystemError as error:  # ``_on_delivery`` was called after the client set a fatal error
            raise error.__cause__ or error from error

    def _produce(self, records: list[RecordFields]) -> KafkaException | None:
        """Pass records to the producer; return the error if it accepts no more records."""
        unsent = iter(records)
        while True:
            try:
                deque(itertools.starmap(self.producer.produce, unsent), maxlen=0)  # no Python code per record
                return None
            except BufferError:
                self._produce_later(records[-1 - operator.length_hint(unsent)])
            except KafkaException as error:
                if error.args[0].code() in _FAILED:  # for example, after an earlier record was rejected
                    return error
                topic, value, key, *_ = records[-1 - operator.length_hint(unsent)]
                self._rejections.append(Rejection(error.args[0], RecordKey(topic, key, value)))

    def _produce_later(self, record: RecordFields) -> None:
        """Wait at most ``delivery.timeout.ms`` until the producer queue has room, then produce ``record``."""
        while True:
            self._serve(self.producer.poll, 0.1)
            try:
                self.producer.produce(*record)
                return
            except BufferError:
                continue

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() not in _PURGED:
            record = RecordKey(message.topic(), message.key(), message.value())
            self._rejections.append(Rejection(error, record))


def to_error(error: KafkaError, what: str) -> ZkConsumerError:
    """Return the exception for a librdkafka error.

    Args:
        error: the librdkafka error.
        what: description of the operation, used in the message.
    """
    code = error.code()
    if code in _FENCED:
        return ProducerFencedError(
            f"{what}: another producer uses the transactional id, or a transaction took longer than "
            "transaction.timeout.ms; stop other applications with this application id"
        )
    if code in _UNSUPPORTED:
        return UnsupportedBrokerError(f"{what}: {error.str()}; exactly_once_v2 requires Kafka 2.5 or later")
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigurationError(
            f"{what}: transaction.timeout.ms must be at most the brokers' transaction.max.timeout.ms"
        )
    if code in _UNKNOWN_TOPIC:
        return RecordRejectedError(f"{what}: the topic or partition does not exist; create it")
    if error.retriable() or code in _UNREACHABLE:
        return BrokerUnavailableError(
            f"{what}: {error.name()} ({code}): {error.str()}; check the brokers (the time limit is delivery.timeout.ms "
            "in QuerySettings.producer)"
        )
    if code in _TOO_LARGE:
        return RecordRejectedError(
            f"{what}: the record is too large; increase max.message.bytes of the topic and message.max.bytes in "
            "QuerySettings.producer"
        )
    return RecordRejectedError(f"{what}: {error.name()} ({code}): {error.str()}")
