"""Batch limits: options that limit the size of a batch, or delay a batch until it has a minimum size.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class Limits:
    """The batch limits of a query.

    Attributes:
        max_offsets: ``maxOffsetsPerTrigger``.
        partition_offsets: ``maxOffsetsPerPartition``.
        min_offsets: ``minOffsetsPerTrigger``; a batch with fewer offsets is delayed.
        max_delay_s: ``maxTriggerDelay`` in seconds; maximum delay of a batch with fewer than ``min_offsets`` offsets.
        max_bytes: ``maxBytesPerTrigger``; maximum size of the records in a batch, estimated by sampling.
        partition_bytes: ``maxBytesPerPartition``; maximum size of each partition's records in a batch.
        bytes_per_second: ``maxBytesPerSecond``; maximum average rate.

    The size of a record is that of its key, value and headers.
    """

    max_offsets: int
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
            partition_offsets=reader["maxOffsetsPerPartition"],
            min_offsets=min_offsets,
            max_delay_s=reader["maxTriggerDelay"],
            max_bytes=reader["maxBytesPerTrigger"],
            partition_bytes=reader["maxBytesPerPartition"],
            bytes_per_second=reader["maxBytesPerSecond"],
        )
