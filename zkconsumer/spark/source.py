"""The data source ``zkconsumer``: ``spark.readStream.format("zkconsumer")``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.compat import FILTER_WORKER, is_process_of
from zkconsumer.spark.options.source_options import SourceOptions, check_not_table
from zkconsumer.spark.query_context import QueryContext
from zkconsumer.spark.readers.factory import create_reader
from zkconsumer.spark.readers.stream_reader import StreamReader

if TYPE_CHECKING:  # five kinds of processes import this module; few of them need these modules
    from zkconsumer.spark.batch import ZkConsumerBatchReader
    from zkconsumer.spark.keyed_server import ServerAddress


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
        from zkconsumer.spark.batch import FilteringBatchReader, ZkConsumerBatchReader

        self._check_schema()
        # Without spark.sql.python.filterPushdown.enabled, Spark rejects readers that accept filters.
        reader = FilteringBatchReader if is_process_of(FILTER_WORKER) else ZkConsumerBatchReader
        return reader(dict(self.options), self.cores, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Raise an error, because the source does not support writing."""
        del schema, overwrite
        raise ConfigurationError(
            "format('zkconsumer') does not support writing; use format('kafka'), which requires the jars of Spark's "
            "Kafka connector"
        )

    streamWriter = writer

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a streaming query."""
        self._check_schema()
        context = QueryContext(
            options=dict(self.options),
            schema=schema,
            cores=self.cores,
            driver=self.driver,
            link=self.link,
            has_an_end=bool(self._has_an_end),
        )
        return create_reader(context)

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
