"""Limits of a batch: the options that bound its offsets and bytes, and how long it waits for more of them.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one batch.

    Attributes:
        max_offsets: ``maxOffsetsPerTrigger``.
        partition_offsets: ``maxOffsetsPerPartition``.
        min_offsets: ``minOffsetsPerTrigger``; a batch with fewer offsets is delayed.
        max_delay_s: ``maxTriggerDelay`` in seconds; maximum delay of a batch with fewer than ``min_offsets``.
        max_bytes: ``maxBytesPerTrigger``; size of the keys and values of a batch, estimated from the next records.
        partition_bytes: ``maxBytesPerPartition``; the same for each partition.
        bytes_per_second: ``maxBytesPerSecond``; average rate of keys and values.
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
        """Whether the sizes of records must be known."""
        return any(limit is not None for limit in (self.max_bytes, self.partition_bytes, self.bytes_per_second))

    @classmethod
    def parse(cls, reader: OptionReader) -> Limits:
        """Read the options.

        Raises:
            ConfigurationError: a value is not valid, or the minimum exceeds the maximum.
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
