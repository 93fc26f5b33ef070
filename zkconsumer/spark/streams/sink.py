"""Writes the output of tasks to Kafka, with librdkafka's producer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from zkconsumer.errors import StreamsError
from zkconsumer.spark.streams.packing import from_blob

#: Name of the format.
FORMAT = "zkconsumer-topics"

_FLUSH_TIMEOUT_S = 120.0


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
        import confluent_kafka

        self._producer = confluent_kafka.Producer(
            {
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
        for topic, partition, timestamp, key, value, headers in zip(*columns, strict=True):
            arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
            if headers:
                arguments["headers"] = [(header["key"], header["value"]) for header in headers]
            self._produce(topic, value, key, timestamp, arguments)

    def finish(self) -> None:
        """Wait until all records are delivered."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        if left or self._error:
            raise StreamsError(self._error or f"{left} records were not delivered in {_FLUSH_TIMEOUT_S:g} s")

    def _produce(self, topic: str, value: Any, key: Any, timestamp: int, arguments: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, key, timestamp=timestamp, on_delivery=self._on_delivery, **arguments
                )
                return
            except BufferError:  # the queue is full
                self._producer.poll(0.1)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = f"topic {message.topic()!r}: a record was not delivered: {error.str()}"


class TopicSink(DataSource):
    """The format ``zkconsumer-topics``, with the option ``producer``: JSON of librdkafka's settings."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """Return the writer."""
        return TopicWriter(self.options)
