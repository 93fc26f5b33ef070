"""``spark.read.format("zkconsumer")``: all records between two offsets of each partition, read once.

Source: Spark 4.2 KafkaRelation, KafkaBatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from zkconsumer.broker import protocol
from zkconsumer.cluster import LogOffsets
from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.thread import RESET
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.listener import Claim
from zkconsumer.retry import patiently
from zkconsumer.spark.lone import LoneReader
from zkconsumer.spark.loss import range_is_gone, start_is_gone
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.ranges import FetchTask, Ranges
from zkconsumer.spark.reader import read
from zkconsumer.spark.starts import Starts, resolve
from zkconsumer.spark.tasks import tasks


class ZkConsumerBatchReader(DataSourceReader):
    """Plans one batch, in a process of Spark's; nothing of the group but its offsets is looked at."""

    def __init__(self, options: Mapping[str, str], cores: int, schema: StructType) -> None:
        self._options = dict(options)
        self._cores = cores
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks.

        Raises:
            ConfigurationError: the end of a partition is before its start.
            DataLossError: a log begins behind the start that was asked for.
        """
        options = SourceOptions.parse(self._options, batch=True)
        config = options.consumer
        found = _Found()
        reader = LoneReader(
            config, options.subscription, found, offsets=options.has_zookeeper, patience=options.unavailable_timeout
        )
        reader.start()
        logs = LogOffsets.of(reader.cluster.brokers, config)
        try:
            ranges = patiently(options.unavailable_timeout)(_ranges, options, dict(found.claims), logs)
            return list(
                tasks(
                    options,
                    ranges,
                    logs.find_leaders(ranges),
                    reader.cluster.brokers(),
                    self._cores,
                    options.layout(self._schema),
                )
            )
        finally:
            logs.close()
            reader.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches."""
        return read(partition) if isinstance(partition, FetchTask) else iter(())  # Spark's own, where there is none


def _ranges(options: SourceOptions, claims: Mapping[TopicPartition, Claim], logs: LogOffsets) -> Ranges:
    """Return from where to where each partition is read."""
    reset = RESET[options.consumer.auto_offset_reset]

    def offsets(where: Starts) -> dict[TopicPartition, int]:
        wanted = {p: where.begin(p, c.offset, reached=None, fresh=True, new=False) for p, c in claims.items()}
        return resolve(wanted, logs, reset)

    starts, untils = offsets(options.starts), offsets(options.ends)
    firsts, ends = logs.offsets(claims, protocol.EARLIEST), logs.offsets(claims, protocol.LATEST)
    ranges: Ranges = {}
    for partition in sorted(claims):
        start, until = starts[partition], untils[partition]
        if until < start:
            raise ConfigurationError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] topic {partition.topic!r} partition "
                f"{partition.partition}: it would be read from offset {start} to {until}"
            )
        first, end = firsts[partition], ends[partition]
        if start < until and (start < first or until > end):
            loss = start_is_gone(partition, start, first, "Or begin later.")
            if until > end:
                loss = range_is_gone(partition, start, until, first, end)
            if options.fails_on_data_loss:
                raise loss
            get_logger("zkconsumer.spark").warning("records_lost", error=str(loss))
        ranges[partition] = (max(start, first), min(until, end))
    return ranges


class _Found:
    """Takes note of the partitions that there are."""

    release_timeout = 0.0

    def __init__(self) -> None:
        self.claims: dict[TopicPartition, Claim] = {}

    def acquire(self, claims: Mapping[TopicPartition, Claim]) -> None:
        self.claims.update(claims)

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int]:
        del partitions, final
        return {}

    def lose(self) -> None:
        pass

    def consumed(self) -> Mapping[TopicPartition, int]:
        return {}

    def fail(self, error: BaseException) -> None:
        raise error
