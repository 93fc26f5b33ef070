"""Batch limits: options that limit the size of a batch, or delay a batch until it has a minimum size.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.zookeeper.registry import OFFSET_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """The batch limits of a query.

    Attributes:
        max_offsets: ``maxOffsetsPerTrigger``.
        sets_max_offsets: whether the user set ``maxOffsetsPerTrigger``.
        partition_offsets: ``maxOffsetsPerPartition``.
        min_offsets: ``minOffsetsPerTrigger``; a batch with fewer offsets is delayed.
        max_delay_s: ``maxTriggerDelay`` in seconds; maximum delay of a batch with fewer than ``min_offsets`` offsets.
        max_bytes: ``maxBytesPerTrigger``; maximum size of the records in a batch, estimated by sampling.
        partition_bytes: ``maxBytesPerPartition``; maximum size of each partition's records in a batch.
        bytes_per_second: ``maxBytesPerSecond``; maximum average rate.

    The size of a record is that of its key, value and headers.
    """

    max_offsets: int
    sets_max_offsets: bool
    partition_offsets: int | None
    min_offsets: int
    max_delay_s: float
    max_bytes: int | None
    partition_bytes: int | None
    bytes_per_second: int | None

    @property
    def counts_bytes(self) -> bool:
        """Whether a byte limit is set, so that record sizes must be sampled."""
        return any(limit is not None for limit in (self.max_bytes, self.partition_bytes, self.bytes_per_second))

    @property
    def only_batch_max_offsets(self) -> int | None:
        """Maximum number of offsets in a batch that may be the only one of a query; None for no limit.

        Only limits that the user set apply to such a batch.
        """
        if self.sets_max_offsets:
            return self.max_offsets
        return OFFSET_MAX if self.counts_bytes or self.partition_offsets is not None else None

    @classmethod
    def parse(cls, reader: OptionReader) -> Limits:
        """Parse the limit options.

        Raises:
            ConfigurationError: a value is invalid, or ``minOffsetsPerTrigger`` exceeds ``maxOffsetsPerTrigger``.
        """
        max_offsets, min_offsets = reader["maxOffsetsPerTrigger"], reader["minOffsetsPerTrigger"] or 0
        if min_offsets > max_offsets:
            raise ConfigurationError(
                f"option 'minOffsetsPerTrigger' must be at most maxOffsetsPerTrigger = {max_offsets}, got "
                f"'{min_offsets}'"
            )
        return cls(
            max_offsets=max_offsets,
            sets_max_offsets=reader.given("maxOffsetsPerTrigger"),
            partition_offsets=reader["maxOffsetsPerPartition"],
            min_offsets=min_offsets,
            max_delay_s=reader["maxTriggerDelay"],
            max_bytes=reader["maxBytesPerTrigger"],
            partition_bytes=reader["maxBytesPerPartition"],
            bytes_per_second=reader["maxBytesPerSecond"],
        )
