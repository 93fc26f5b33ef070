"""The data source ``zkconsumer``: ``spark.readStream.format("zkconsumer")``.

Spark builds the reader twice, in two processes, and pickles one of them to the executors; so building it
does nothing. The process that plans batches joins the group at its first call.

Source: Spark 4.3 pyspark.sql.streaming.datasource, python_streaming_source_runner.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.batch import ZkConsumerBatchReader
from zkconsumer.spark.driver.planner import Planner
from zkconsumer.spark.driver.splitting import tasks
from zkconsumer.spark.executor.end_of_stream import EndListener
from zkconsumer.spark.executor.reader import read
from zkconsumer.spark.offset import INITIAL, FetchTask, end_of_stream
from zkconsumer.spark.options.source_options import SourceOptions


class ZkConsumerDataSource(DataSource):
    """Topics of Kafka, read as a member of a ZooKeeper-coordinated consumer group.

    The columns are those of Spark's own Kafka source. ``options.py`` lists the options.
    """

    #: Cores of the session that registered the source; what tasks are made for where no option says more.
    cores = os.cpu_count() or 1
    #: Where executors reach the driver, and the address that it listens at.
    driver: tuple[str, str | None] = ("127.0.0.1", None)
    #: Whether the decoder may end the query; known once ``schema`` was asked for.
    _has_an_end: bool | None = None

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "zkconsumer"

    def schema(self) -> Any:
        """Return the columns; checks the options, so that a mistake is seen at ``load()``.

        Nobody tells here whether it is for a stream or for a batch read, whose options differ a little.
        """
        try:
            options = SourceOptions.parse(self.options)
        except ConfigurationError as error:
            try:
                options = SourceOptions.parse(self.options, batch=True)
            except ConfigurationError as batch_error:
                raise (batch_error if error.args[0].startswith("option 'ending") else error) from None
        # Here are the files that a user gave to Spark; the process that plans does not have them.
        self._has_an_end = options.has_an_end
        return options.schema

    def reader(self, schema: StructType) -> ZkConsumerBatchReader:
        """Return the reader of a batch query."""
        return ZkConsumerBatchReader(dict(self.options), self.cores, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Refuse: this is a consumer."""
        del schema, overwrite
        raise ConfigurationError(
            "format('zkconsumer') reads; to write to Kafka use format('kafka') with its jars, or a producer in "
            "foreachBatch"
        )

    streamWriter = writer

    def streamReader(self, schema: StructType) -> ZkConsumerStreamReader:
        """Return the reader of a streaming query."""
        if self._has_an_end is None:  # the user has given a schema
            self._has_an_end = SourceOptions.parse(self.options).has_an_end
        end_at = self.driver if self._has_an_end else None
        return ZkConsumerStreamReader(dict(self.options), self.cores, schema, end_at)


class ZkConsumerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls; see ``Planner`` for what happens.

    Args:
        schema: of the frame.
        end_at: where tasks tell the end of the stream (see ``EndListener``), None where there is none.
    """

    def __init__(
        self, options: Mapping[str, str], cores: int, schema: StructType, end_at: tuple[str, str | None] | None
    ) -> None:
        self._raw_options = dict(options)
        self._cores = cores
        self._schema = schema
        self._end_at = end_at
        self._planner: Planner | None = None
        self._bounded = False
        self._end: EndListener | None = None

    # ---- in the process that plans ----

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant: where batch 0 begins is part of its end."""
        return INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:
        """A batch takes what ``maxOffsetsPerTrigger`` says."""
        return ReadMaxRows(SourceOptions.parse(self._raw_options).limits.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop at what the next look at the logs finds."""
        self._bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acknowledge the batch that ends at ``start``, and plan the next one."""
        if start.get("ended"):
            self.stop()
            return start
        planner = self._joined(start)
        planner.acknowledge(start)
        if self._end is not None and self._end.is_told:
            return end_of_stream(start)
        if isinstance(limit, ReadMaxRows):
            return planner.plan(start, limit.max_rows)
        return planner.plan(start, is_last=True)  # of Trigger.Once, whatever the limits are

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs, the lag and the state of the member, for progress reports."""
        return self._planner.latest() if self._planner is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, from its end alone: the same for each replay."""
        del start
        if end.get("ended"):
            return []
        planner = self._joined(end)
        ranges = planner.begin(end)
        return list(
            tasks(
                self._options,
                ranges,
                planner.find_leaders(ranges),
                planner.brokers(),
                self._cores,
                self._options.layout(self._schema),
                self._end.signal if self._end is not None else None,
            )
        )

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge once more; ``latestOffset`` has done it long before."""
        if self._planner is not None:
            self._planner.acknowledge(end)

    def stop(self) -> None:
        """Leave the group: the ephemeral znodes go at once."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if self._end is not None:
            self._end.close()
            self._end = None

    def _joined(self, seen: Mapping[str, Any]) -> Planner:
        """Return the planner, joined to the group at the first call."""
        if self._planner is None:
            self._options = SourceOptions.parse(self._raw_options)
            _log_to_stderr()
            _stop_in_order_on_sigterm()
            planner = Planner(self._options, seen, application=os.getppid())
            if self._bounded:
                planner.stop_at_present_end()
            self._planner = planner
            if self._end_at is not None:
                self._end = EndListener(*self._end_at)
                self._end.start()
            planner.start()
        return self._planner

    # ---- in the executors ----

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches."""
        assert isinstance(partition, FetchTask)
        return read(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # tasks carry all that is needed


def _stop_in_order_on_sigterm() -> None:
    """Let SIGTERM, by which Spark ends the process, unwind it, so that ``stop`` is called."""

    def leave(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)


def _log_to_stderr() -> None:
    """Write what the member does to standard error, which is Spark's log: this process has no other owner."""
    logger = logging.getLogger("zkconsumer")
    if all(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logging.getLogger("zkconsumer.zookeeper.kazoo").setLevel(logging.WARNING)
