"""The data source ``zkconsumer``: ``spark.readStream.format("zkconsumer")``.

Spark creates a reader in two processes, and pickles one of the readers for the executors, so the constructor does no
I/O. The planning process joins the group when Spark requests the read limit, before it requests an offset.

Source: Spark 4.3 pyspark.sql.streaming.datasource, python_streaming_source_runner.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from zkconsumer.errors import ConfigurationError
from zkconsumer.log import show_level
from zkconsumer.signals import Exit, FirstSignal
from zkconsumer.spark.offset import INITIAL, BatchOffset, group_by_topic
from zkconsumer.spark.options.source_options import SourceOptions, check_not_table

#: Minimum seconds between two reports that there is nothing to read.
_IDLE_REPORT_INTERVAL_S = 1.0

if TYPE_CHECKING:  # five kinds of processes import this module; none of them needs all of these modules
    from zkconsumer.spark.batch import ZkConsumerBatchReader
    from zkconsumer.spark.driver_link import DriverLink
    from zkconsumer.spark.executor.task_reports import ReportListener, SkippedRange
    from zkconsumer.spark.keyed_server import ServerAddress
    from zkconsumer.spark.planning.early_join import EarlyJoin
    from zkconsumer.spark.planning.planner import Planner


class ZkConsumerDataSource(DataSource):
    """Reads Kafka topics as a member of a ZooKeeper-coordinated consumer group.

    The source has the same columns as Spark's Kafka source. See ``SourceOptions`` for the options.
    """

    #: Default number of tasks per batch: the number of cores of the session that registered the source.
    cores = os.cpu_count() or 1
    #: Driver host name that executors can resolve, and the driver's bind address (None to bind to that host).
    driver: tuple[str, str | None] | None = None
    #: Address of the driver listener; None without a listener.
    link: ServerAddress | None = None
    #: Whether the decoder can end the query; None until ``schema`` is called.
    _has_an_end: bool | None = None

    @classmethod
    def name(cls) -> str:
        """Return the data source name for ``format(...)``."""
        return "zkconsumer"

    def schema(self) -> Any:
        """Validate the options, so that ``load()`` reports invalid options, and return the columns.

        Spark calls this method for streaming reads and batch reads, which have different options, and does not
        indicate the kind of read.
        """
        try:
            options = SourceOptions.parse(self.options)
        except ConfigurationError as error:
            try:
                options = SourceOptions.parse(self.options, batch=True)
            except ConfigurationError as batch_error:
                # Drop the traceback, which does not help the user; Spark would print it above the message.
                is_batch = "option 'ending" in str(error)
                raise (batch_error if is_batch else error).with_traceback(None) from None
        # The decoder is imported here, because the planning process cannot import files that the user passed to Spark.
        self._has_an_end = options.has_an_end
        return options.schema

    def reader(self, schema: StructType) -> ZkConsumerBatchReader:
        """Return the reader of a batch query."""
        from zkconsumer.spark.batch import ZkConsumerBatchReader

        self._check_schema()
        return ZkConsumerBatchReader(dict(self.options), self.cores, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Raise an error, because the source does not support writing."""
        del schema, overwrite
        raise ConfigurationError(
            "format('zkconsumer') does not support writing; use format('kafka'), which requires the jars of Spark's "
            "Kafka connector"
        )

    streamWriter = writer

    def streamReader(self, schema: StructType) -> ZkConsumerStreamReader:
        """Return the reader of a streaming query."""
        self._check_schema()
        return ZkConsumerStreamReader(
            dict(self.options),
            self.cores,
            schema,
            driver=self.driver,
            link=self.link,
            has_an_end=bool(self._has_an_end),
        )

    def _check_schema(self) -> None:
        """Raise an error if the user set a schema. Spark then does not call ``schema``.

        Raises:
            ConfigurationError: the user set a schema, or the source was created for a table with columns.
        """
        if self._has_an_end is None:
            check_not_table(self.options)
            raise ConfigurationError(
                "format('zkconsumer') does not accept a schema; remove schema(...), or create a view instead of a "
                "table. The options 'columns', 'includeHeaders' and 'decoder' determine the columns"
            )


class ZkConsumerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Forwards Spark's calls to the ``Planner``, and receives task reports.

    Args:
        cores: default number of tasks per batch, until the driver listener reports the number of executor cores.
        schema: schema of the DataFrame.
        driver: driver host name that executors can resolve, and the driver's bind address; None if unknown.
        link: address of the driver listener; None without a listener.
        has_an_end: whether the decoder can end the query.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        cores: int,
        schema: StructType,
        *,
        driver: tuple[str, str | None] | None = None,
        link: ServerAddress | None = None,
        has_an_end: bool = False,
    ) -> None:
        self._raw_options = dict(options)
        self._cores = cores
        self._schema = schema
        self._driver = driver
        self._link_address = link
        self._has_an_end = has_an_end
        self._exit: FirstSignal | None = None
        self._join: EarlyJoin | None = None
        self._planner: Planner | None = None
        self._is_bounded = False
        self._reports: ReportListener | None = None
        self._link: DriverLink | None = None
        self._idle_reported_at = -_IDLE_REPORT_INTERVAL_S

    # ---- in the planning process ----

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant; a batch's start offsets are part of the batch's own offset."""
        return INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the value of ``maxOffsetsPerTrigger``.

        Spark calls this method for all sources of a query before it requests an offset, so the source joins the group;
        see ``EarlyJoin``.
        """
        from zkconsumer.spark.planning.early_join import EarlyJoin

        options = SourceOptions.parse(self._raw_options)
        if self._join is None:
            show_level(logging.INFO)  # Spark copies standard error to its log
            self._exit = _exit_on_sigterm()
            self._join = EarlyJoin(options, os.getppid())
            self._join.start()
        return ReadMaxRows(options.limits.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query at the log end offsets that the next call to ``latestOffset`` finds."""
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Record that the batch that ends at ``start`` has finished, and plan the next one or end the query."""
        if start.get("ended"):
            self.stop()
            return start
        planner = self._started_planner(start)
        planner.finish_batch(start)
        if self._reports is not None and self._reports.has_ended:
            return BatchOffset.from_json(start).end_of_stream().to_json()
        if isinstance(limit, ReadMaxRows):
            end = planner.plan(start, limit.max_rows)
        else:
            end = planner.plan(start, is_last=True)  # Trigger.Once ignores the limits
        if end is start:
            self._report_idle(planner)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets, the lag and the member's state for progress events; None before the first batch."""
        return self._planner.latest() if self._planner is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. Ranges depend only on ``end``, so a replayed batch reads the same offsets."""
        from zkconsumer.spark.planning.planned_ranges import add_planned_ranges, create_planning_task
        from zkconsumer.spark.planning.splitting import task, tasks

        del start
        if end.get("ended"):
            return []
        planner = self._started_planner(end)
        ranges = planner.start_batch(end)
        leaders, brokers = planner.find_brokers(ranges)
        if self._link is not None:
            self._link.send(brokers=[broker[:2] for broker in brokers])
        offset, row_schema = BatchOffset.from_json(end), self._options.row_schema(self._schema)
        reports = self._reports.address if self._reports is not None else None
        if self._options.planned_ranges == "only":
            fetch = task(self._options, ranges, leaders, brokers, row_schema, reports=reports)
            return [create_planning_task(fetch, offset)]
        found = tasks(
            self._options,
            ranges,
            leaders,
            brokers,
            self._link.cores if self._link is not None else self._cores,
            row_schema,
            reports=reports,
            can_end=self._has_an_end,
        )
        return list(add_planned_ranges(list(found), ranges, offset))

    def commit(self, end: dict[str, Any]) -> None:
        """Record that a batch has finished. Usually ``latestOffset`` has already done so."""
        if self._planner is not None:
            self._planner.finish_batch(end)

    def stop(self) -> None:
        """Leave the group, so that the member's ephemeral znodes are deleted immediately."""
        if self._join is not None:
            self._join.close()
            self._join = None
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if self._reports is not None:
            self._reports.close()
            self._reports = None
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._exit is not None:
            self._exit.close()  # the process is exiting
            self._exit = None

    def _started_planner(self, seen: Mapping[str, Any]) -> Planner:
        """Return the planner. The first call joins the group.

        Args:
            seen: an offset from Spark's offset log.
        """
        if self._planner is None:
            from zkconsumer.spark.planning.factory import create_planner

            self._options = SourceOptions.parse(self._raw_options)
            joined = None
            if self._join is not None:
                joined = self._join.take(is_new=not BatchOffset.from_json(seen).ends)
            try:
                planner = create_planner(self._options, seen, application=os.getppid(), joined=joined)
            except BaseException:
                if joined is not None:
                    joined.close()
                raise
            if self._is_bounded:
                planner.prepare_for_available_now()
            self._planner = planner
            if self._has_an_end or self._options.may_skip:
                from zkconsumer.spark.executor.task_reports import ReportListener, local_address

                host, bind = self._driver or local_address()
                self._reports = ReportListener(host, bind, on_skipped=self._record_skipped)
                self._reports.start()
            planner.start()
            if self._link_address is not None:
                from zkconsumer.spark.driver_link import DriverLink

                self._link = DriverLink(planner.consumer_id, self._cores, planner.finish_reported_batch)
                self._link.connect(self._link_address)
        return self._planner

    def _report_idle(self, planner: Planner) -> None:
        """Report the current state to the driver, because Spark sends no progress report without a batch."""
        now = time.monotonic()
        if self._link is not None and now >= self._idle_reported_at + _IDLE_REPORT_INTERVAL_S:
            self._idle_reported_at, latest = now, planner.latest()
            state = {key: latest[key] for key in ("lag", "owned", "health", "healthReasons")}
            state = {**state, "group": self._options.consumer.group_id, "delayed": planner.is_delayed}
            self._link.send(idle=state)

    def _record_skipped(self, ranges: Iterable[SkippedRange]) -> None:
        """Record the offsets that a task skipped. Called in a ``ReportListener`` thread."""
        planner, link = self._planner, self._link
        if planner is None:
            return
        planner.skipped.record(ranges)
        if link is not None:
            lost, skipped = planner.skipped.counts
            link.send(recordsLost=group_by_topic(lost), recordsSkipped=group_by_topic(skipped))

    # ---- in the executors ----

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches."""
        from zkconsumer.spark.executor.fetch_task import FetchTask
        from zkconsumer.spark.executor.reader import read

        assert isinstance(partition, FetchTask)
        return read(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # executors only call ``read``, which uses no attributes


def _is_running(code: CodeType, frame: FrameType | None) -> bool:
    """Return whether ``frame`` or one of its callers executes the code of a function.

    Unlike a flag that the function sets, this is also true before the first statement of the function.
    """
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _exit_on_sigterm() -> FirstSignal:
    """Raise SystemExit on SIGTERM, which Spark sends to terminate the process, so that ``stop`` is called.

    The signal does not interrupt ``stop``, which may be running because Spark also closes the connection. Otherwise,
    the member would remain in the group until its session expires.

    Returns:
        The handler, which ``stop`` closes.
    """
    first = FirstSignal(lambda _number: Exit(0))

    def exit_once(number: int, frame: FrameType | None) -> None:
        if not _is_running(ZkConsumerStreamReader.stop.__code__, frame):
            first(number, frame)

    signal.signal(signal.SIGTERM, exit_once)
    return first
