"""Development producer: wraps kafka-python's ``KafkaProducer``, and translates its errors to zkconsumer errors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TypeAlias

from kafka import KafkaProducer
from kafka.errors import KafkaError

from zkconsumer.config.types import split_list
from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError

#: Maximum seconds to wait for metadata, and for pending records on exit.
_TIMEOUT_S = 10.0

#: Key and value of a record; the key may be None.
KeyValue: TypeAlias = tuple[bytes | None, bytes]

#: Interval between two bursts of records if the rate is limited, in seconds.
_TICK_S = 0.05


class Producer:
    """Sends records to a topic.

    The key of a record determines its partition, as in Kafka's default partitioner; records without keys are sent to
    the partitions round-robin.

    Exiting the ``with`` block without an exception waits until all records are acknowledged, and raises
    ``ZkConsumerError`` if a record could not be written or was not acknowledged in time.

    Attributes:
        acknowledged: number of records acknowledged by all in-sync replicas.

    Args:
        bootstrap_servers: broker addresses, as ``host:port,...``.
        topic: topic to write to.
        partitions: numbers of the partitions for records without keys.
        kafka: broker version; None to detect it, which requires Kafka 0.10 or later.

    Raises:
        BrokerUnavailableError: no broker responded.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: Sequence[int], *, kafka: tuple[int, ...] | None = None
    ) -> None:
        self.acknowledged = 0
        self._error: BaseException | None = None
        self._topic = topic
        self._partitions = itertools.cycle(partitions)
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=split_list(bootstrap_servers),
                acks="all",
                enable_idempotence=False,  # brokers before 0.11 do not support it
                max_block_ms=int(_TIMEOUT_S * 1000),
                api_version=kafka,
            )
        except KafkaError as error:
            raise BrokerUnavailableError(f"no broker in {bootstrap_servers!r} responded: {error!r}") from error

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._producer.flush(_TIMEOUT_S)
        except KafkaError as late:
            raise self._failure(late) from late
        finally:
            self._producer.close(_TIMEOUT_S)
        if kind is None:
            self._check()

    def send(self, records: Iterable[KeyValue], *, rate: int | None = None) -> None:
        """Send records.

        Args:
            records: keys and values.
            rate: maximum number of records per second; None for no limit.

        Raises:
            ZkConsumerError: a record could not be written.
        """
        for key, value in records if rate is None else _limit_rate(records, rate):
            partition = next(self._partitions) if key is None else None
            try:
                future = self._producer.send(self._topic, value, key, partition=partition)
            except KafkaError as error:  # for example, the record is too large
                raise self._failure(error) from error
            future.add_callback(self._count)
            future.add_errback(self._fail)
            self._check()

    def _count(self, _metadata: object) -> None:  # called in KafkaProducer's thread, like _fail
        self.acknowledged += 1

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise self._failure(self._error) from self._error

    def _failure(self, error: BaseException) -> ZkConsumerError:
        return ZkConsumerError(f"could not write to topic {self._topic!r}: {error}")


def _limit_rate(records: Iterable[KeyValue], rate: int) -> Iterator[KeyValue]:
    due = time.monotonic()
    for record in records:
        now = time.monotonic()
        due = max(due, now - _TICK_S)  # do not catch up after a pause in the input
        if due - now > _TICK_S:
            time.sleep(due - now)
        yield record
        due += 1 / rate
