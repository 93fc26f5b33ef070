"""Writes the output of tasks to Kafka, with librdkafka's producer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from zkconsumer.errors import StreamsError
from zkconsumer.spark.streams.packing import SINK_FORMAT, from_blob

_DELIVERY_TIMEOUT_S = 120.0

#: Records between two looks at delivery errors.
_POLL_RECORDS = 1_000


class TopicWriter(DataSourceStreamArrowWriter):
    """Produces the records of all tasks of a Spark partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._producer_config = json.loads(options["producer"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Produce the records, and wait until the brokers have them.

        Raises:
            StreamsError: a record was not delivered.
        """
        sender: _Sender | None = None
        for batch in iterator:
            for blob in batch.column("blob").to_pylist():
                if blob is not None:
                    sender = sender or _Sender(self._producer_config)
                    sender.send(blob)
        if sender is not None:
            sender.finish()
        return WriterCommitMessage()

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Do nothing."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: records of a batch that failed are written again."""


class _Sender:
    """Sends records, and remembers the first error."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "delivery.report.only.error": True,
                "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1_000),
                "linger.ms": 5,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
                **config,
            }
        )
        self._error: str | None = None

    def send(self, blob: bytes) -> None:
        """Send the records of a blob."""
        table = from_blob(blob)
        columns = [table.column(name).to_pylist() for name in table.schema.names]
        for number, (topic, partition, timestamp, key, value, headers) in enumerate(zip(*columns, strict=True)):
            if number % _POLL_RECORDS == 0:
                self._producer.poll(0)
            if self._error is not None:
                raise StreamsError(self._error)
            arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
            if headers:
                arguments["headers"] = [(header["key"], header["value"]) for header in headers]
            self._produce(topic, value, key, timestamp, arguments)

    def finish(self) -> None:
        """Wait until all records are delivered."""
        left = self._producer.flush(_DELIVERY_TIMEOUT_S + 10)
        if left or self._error:
            raise StreamsError(self._error or f"{left} records were not delivered in time")

    def _produce(self, topic: str, value: Any, key: Any, timestamp: int, arguments: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, key, timestamp=timestamp, on_delivery=self._on_delivery, **arguments
                )
                return
            except BufferError:  # the queue is full; after _DELIVERY_TIMEOUT_S, records in it fail
                self._producer.poll(0.1)
            except confluent_kafka.KafkaException as error:
                reason = error.args[0].str()
                raise StreamsError(
                    f"topic {topic!r}: a record of {_count_bytes(key, value)} bytes was not sent: {reason}"
                ) from error

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = f"topic {message.topic()!r}: a record was not delivered: {error.str()}"


def _count_bytes(*parts: bytes | None) -> int:
    return sum(len(part) for part in parts if part is not None)


class TopicSink(DataSource):
    """The format ``zkconsumer-topics``, with the option ``producer``: JSON of librdkafka's settings."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return SINK_FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """Return the writer."""
        return TopicWriter(self.options)
