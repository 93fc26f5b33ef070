"""The sink of an application's query, which writes task output to Kafka."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from zkconsumer.message import TopicPartition
from zkconsumer.spark.executor.garbage import freeze_modules
from zkconsumer.spark.streams.markers import NO_OUTPUT, Marker, OffsetCommitter, decode_offsets
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.packing import SINK_FORMAT
from zkconsumer.spark.streams.requirements import CONFLUENT_KAFKA, check_modules
from zkconsumer.spark.streams.servers_file import read_servers

if TYPE_CHECKING:
    from zkconsumer.spark.streams.task_writer import TaskWriters

#: Commits offsets. Used in the Python process in which Spark calls ``commit``, on the driver's host.
_committer = OffsetCommitter()


@dataclass
class WrittenOffsets(WriterCommitMessage):
    """The offsets that a Spark partition has processed.

    Attributes:
        query: id of the query.
        offsets: next offset of each Kafka partition, unless a transaction committed it.
    """

    query: str
    offsets: dict[TopicPartition, int]


class TopicWriter(DataSourceStreamArrowWriter):
    """Writes the output of all tasks in a Spark partition.

    Args:
        settings: encoded sink settings; see ``SinkSettings.encode``.
        servers: current brokers, as in ``bootstrap.servers``; None for those in the settings.
    """

    def __init__(self, settings: str, servers: str | None) -> None:
        self._settings, self._servers = settings, servers

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write task output, and wait until the brokers acknowledge it; see ``TaskWriter.write``."""
        freeze_modules("sink")
        marker, writers = _find_batch(), _open_writers()
        offsets: dict[TopicPartition, int] = {}
        for batch in iterator:
            for row in batch.select(TaskOutput._fields).to_pylist():
                output = TaskOutput(**row)
                if output.blob is None or not writers.write(self._settings, output, marker, self._servers):
                    offsets.update(decode_offsets(output.offsets))
        return WrittenOffsets(marker.query, offsets)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the offsets that transactions did not commit, if the settings require commits to Kafka.

        Raises:
            StreamsError: another query uses the same application id.
            RetriableError: the brokers did not respond.
        """
        freeze_modules("commit")
        settings = SinkSettings.decode(self._settings).with_servers(self._servers)
        found = [message for message in messages if isinstance(message, WrittenOffsets) and message.offsets]
        if settings.commits_to_kafka and found:
            merged = {partition: offset for message in found for partition, offset in message.offsets.items()}
            digest = NO_OUTPUT if settings.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else 0
            marker = Marker(found[0].query, batchId, digest)
            _committer.commit(settings.client, settings.application_id, merged, marker)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because Spark repeats the batch."""


class TopicSink(DataSource):
    """The format ``zkconsumer-topics``, with the options ``settings`` and ``serversFile``.

    See ``SinkSettings.encode`` and ``servers_file``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return SINK_FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """Return the writer of a batch."""
        freeze_modules("sink planning")
        check_modules(CONFLUENT_KAFKA)  # the process that commits offsets uses the same Python
        options: Mapping[str, str] = self.options
        return TopicWriter(options["settings"], read_servers(options["serversFile"]))


@functools.cache
def _open_writers() -> TaskWriters:
    """Return the writers of this worker process.

    Raises:
        ConfigurationError: confluent-kafka cannot be imported on this worker.
    """
    check_modules(CONFLUENT_KAFKA)
    from zkconsumer.spark.streams.task_writer import TaskWriters

    return TaskWriters()


def _find_batch() -> Marker:
    """Return the query and batch of the Spark task that runs in this thread."""
    context = TaskContext.get()
    assert context is not None
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    assert query is not None
    assert batch is not None
    return Marker(query, int(batch))
