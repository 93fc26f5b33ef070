"""Batch reader of ``spark.read.format("zkconsumer")``: reads a range of offsets from each partition.

Source: Spark 4.2 KafkaRelation, KafkaBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.partition import RESET_TIMESTAMPS
from zkconsumer.log import get_logger
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import open_access
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.retry import retrying
from zkconsumer.spark.data_loss import raise_or_log, range_deleted, start_offset_deleted
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.reader import read
from zkconsumer.spark.offset import Ranges
from zkconsumer.spark.options.check_existence import check_brokers, check_offsets, check_topics
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.starting_offsets import StartingOffsets, resolve
from zkconsumer.spark.planning.splitting import tasks

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from zkconsumer.spark.pushed_filters import PushedFilters


class ZkConsumerBatchReader(DataSourceReader):
    """Plans one batch in a Python process on the driver. Reads the group's offsets without joining the group."""

    def __init__(self, options: Mapping[str, str], cores: int, schema: StructType) -> None:
        self._options = dict(options)
        self._cores = cores
        self._schema = schema
        self._filters: PushedFilters | None = None

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the batch.

        Raises:
            ConfigurationError: an option names a topic or partition that does not exist, the ending offset of a
                partition is lower than its starting offset, or no record is at or after a starting timestamp and
                ``startingOffsetsByTimestampStrategy`` is ``error``.
            DataLossError: the starting or ending offset of a partition is outside its log, and ``failOnDataLoss`` is
                true.
            RetriableError: no broker in ``bootstrap.servers`` responded, or ZooKeeper or the brokers were unreachable
                for ``clusterUnavailableTimeout``.
        """
        options = SourceOptions.parse(self._options, batch=True)
        config, retry = options.consumer, retrying(options.unavailable_timeout_s)
        with open_access(config, Connecting.from_config(config), has_session=options.has_zookeeper) as access:
            check_brokers(config)
            cluster, logs = access.cluster, access.logs(read_committed=config.read_committed)
            partitions = retry(options.subscription.partitions, cluster, config.exclude_internal_topics)
            check_topics(options.subscription, partitions)
            check_offsets(options.starting_offsets, partitions)
            check_offsets(options.ending_offsets, partitions, "ending")
            if self._filters is not None:
                partitions = list(filter(self._filters.selects, partitions))
            group: dict[TopicPartition, int] = {}
            if options.has_zookeeper:
                group = retry(access.offsets("zookeeper").fetch, partitions)
            ranges = retry(_ranges, options, {p: group.get(p, -1) for p in partitions}, logs)
            if self._filters is not None:
                ranges = retry(self._filters.narrow, ranges, logs.offsets)
            return list(
                tasks(
                    options,
                    ranges,
                    retry(logs.find_leaders, ranges),
                    retry(logs.brokers),
                    self._cores,
                    options.row_schema(self._schema),
                )
            )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches."""
        # If there are no tasks, Spark passes a placeholder partition.
        return read(partition) if isinstance(partition, FetchTask) else iter(())


class FilteringBatchReader(ZkConsumerBatchReader):
    """Reads only offset ranges that can contain the records that fulfill the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Limit the records that are read, and return the filters, which Spark evaluates again.

        A decoder creates the columns itself, and the columns of quarantined records are null. In these cases, the
        filters have no effect.
        """
        from zkconsumer.spark.pushed_filters import PushedFilters

        options = SourceOptions.parse(self._options, batch=True)
        if options.decoder is None and options.corrupt_record_policy != "quarantine":
            self._filters = PushedFilters.from_filters(filters)
        return filters


def _ranges(options: SourceOptions, group: Mapping[TopicPartition, int], logs: LogOffsets) -> Ranges:
    """Return the range of each partition.

    Args:
        group: the group's committed offset for each partition, negative if there is none; see ``Offsets.fetch``.

    Raises:
        ConfigurationError: the ending offset of a partition is lower than its starting offset.
        DataLossError: a range is not completely in its log, and ``failOnDataLoss`` is true.
    """
    reset = RESET_TIMESTAMPS[options.consumer.auto_offset_reset]

    def offsets(by_options: StartingOffsets) -> dict[TopicPartition, int]:
        positions = {
            partition: by_options.start_position(
                partition,
                offset,
                checkpoint_offset=None,
                is_first_assignment=True,
                is_new=offset == OF_DELETED_TOPIC,
            )
            for partition, offset in group.items()
        }
        return resolve(positions, logs.offsets, reset)

    starts, untils = offsets(options.starting_offsets), offsets(options.ending_offsets)
    firsts, ends = logs.offsets(group, EARLIEST), logs.offsets(group, LATEST)
    ranges: Ranges = {}
    for partition in sorted(group):
        start, until = starts[partition], untils[partition]
        if until < start:
            raise ConfigurationError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] topic {partition.topic!r} partition "
                f"{partition.partition}: starting offset {start} is greater than ending offset {until}; "
                "set a lower starting offset or a higher ending offset"
            )
        first, end = firsts[partition], ends[partition]
        if start < until and (start < first or until > end):
            loss = start_offset_deleted(partition, start, first, "Set a higher starting offset.")
            if until > end:
                loss = range_deleted(partition, start, until, first, end)
            raise_or_log(loss, options.fails_on_data_loss, get_logger("zkconsumer.spark"))
        ranges[partition] = (max(start, first), min(until, end))
    return ranges
