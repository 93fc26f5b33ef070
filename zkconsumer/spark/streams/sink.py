"""The sink of an application's query, which writes task output to Kafka."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from zkconsumer.event_limits import log_unlogged
from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver import sink_metrics
from zkconsumer.spark.driver_link import send_once
from zkconsumer.spark.executor.garbage import freeze_modules
from zkconsumer.spark.keyed_server import ServerAddress
from zkconsumer.spark.streams.markers import NO_OUTPUT, Marker, MarkerCommitter, decode_offsets
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.packing import SINK_FORMAT
from zkconsumer.spark.streams.requirements import CONFLUENT_KAFKA, check_modules
from zkconsumer.spark.streams.servers_file import read_servers

if TYPE_CHECKING:
    from zkconsumer.spark.streams.writer_threads import WriterThreads

#: Commits offsets. Used in the Python process in which Spark calls ``commit``, on the driver's host.
_committer = MarkerCommitter()


@dataclass
class WrittenOutput(WriterCommitMessage):
    """Offsets and metrics of a Spark partition, which the sink commits and reports when all partitions are written.

    Attributes:
        query: id of the query.
        offsets: next offset of each Kafka partition whose task had no output.
        metrics: changes of the task metrics, by task id and metric name; see ``TaskWriter.write``.
    """

    query: str
    offsets: dict[TopicPartition, int]
    metrics: dict[str, Mapping[str, int]]


class TopicWriter(DataSourceStreamArrowWriter):
    """Writes the output of all tasks in a Spark partition.

    Args:
        settings: encoded sink settings; see ``SinkSettings.encode``.
        servers: current brokers, as in ``bootstrap.servers``; None for those in the settings.
        link: address of the driver listener; None without a listener.
    """

    def __init__(self, settings: str, servers: str | None, link: ServerAddress | None) -> None:
        self._settings, self._servers, self._link = settings, servers, link

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write task output, and wait until the brokers acknowledge it; see ``TaskWriter.write``."""
        freeze_modules("sink")
        marker, writers = _find_batch(), _open_writers()
        written = WrittenOutput(marker.query, {}, {})
        for batch in iterator:
            outputs = [TaskOutput(**row) for row in batch.select(TaskOutput._fields).to_pylist()]
            for output in outputs:
                if output.blob is None:
                    written.offsets.update(decode_offsets(output.offsets))
            with_output = [output for output in outputs if output.blob is not None]
            for task, metrics in writers.write_all(self._settings, with_output, marker, self._servers).items():
                if metrics:
                    written.metrics[task] = dict(metrics)
        log_unlogged()
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report the metrics, and commit the offsets of tasks without output if the guarantee requires it.

        Raises:
            StreamsError: another query uses the same application id, or the output of a repeated batch differs.
            RetriableError: the brokers did not respond.
        """
        freeze_modules("commit")
        settings = SinkSettings.decode(self._settings).with_servers(self._servers)
        found = [message for message in messages if isinstance(message, WrittenOutput)]
        metrics = {task: changes for message in found for task, changes in message.metrics.items()}
        if metrics and self._link is not None:
            query = found[0].query
            send_once(self._link, f"sink {query}", sink_metrics.to_message(query, batchId, metrics))
        offsets = {partition: offset for message in found for partition, offset in message.offsets.items()}
        if offsets and settings.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
            _committer.commit(
                settings.client,
                settings.application_id,
                offsets,
                Marker(found[0].query, batchId, NO_OUTPUT),
                fails_on_changed_output=settings.fails_on_changed_output,
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because Spark repeats the batch."""


class TopicSink(DataSource):
    """The format ``zkconsumer-topics``, with the options ``settings`` and ``serversFile``.

    See ``SinkSettings.encode`` and ``servers_file``.

    Attributes:
        link: see ``TopicWriter``.
    """

    link: ServerAddress | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return SINK_FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """Return the writer of a batch."""
        freeze_modules("sink planning")
        check_modules(CONFLUENT_KAFKA)  # the process that commits offsets uses the same Python
        options: Mapping[str, str] = self.options
        return TopicWriter(options["settings"], read_servers(options["serversFile"]), self.link)


@functools.cache
def _open_writers() -> WriterThreads:
    """Return the writer threads of this worker process.

    Raises:
        ConfigurationError: confluent-kafka cannot be imported on this worker.
    """
    check_modules(CONFLUENT_KAFKA)
    from zkconsumer.spark.streams.writer_threads import WriterThreads

    return WriterThreads()


def _find_batch() -> Marker:
    """Return the query and batch of the Spark task that runs in this thread."""
    context = TaskContext.get()
    assert context is not None
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    assert query is not None
    assert batch is not None
    return Marker(query, int(batch))
