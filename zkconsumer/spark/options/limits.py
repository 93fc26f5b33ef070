"""Limits of a batch: the options that bound its offsets and bytes, and how long it waits for more of them.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader

#: Default of ``maxOffsetsPerTrigger``: a gigabyte of small records.
DEFAULT_LIMIT = 10_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What the options say.

    Attributes:
        most: ``maxOffsetsPerTrigger``, default ``DEFAULT_LIMIT``.
        least: ``minOffsetsPerTrigger``: with fewer a batch waits.
        patience: seconds, ``maxTriggerDelay`` (15m): but no longer than this after the last one was planned.
        most_bytes: ``maxBytesPerTrigger``: of keys and values, by the sizes of the records that come next.
        bytes_per_second: ``maxBytesPerSecond``: the same over time.
    """

    most: int = DEFAULT_LIMIT
    least: int = 0
    patience: float = 900.0
    most_bytes: int | None = None
    bytes_per_second: int | None = None

    @property
    def counts_bytes(self) -> bool:
        """Whether the sizes of records have to be known."""
        return self.most_bytes is not None or self.bytes_per_second is not None

    @classmethod
    def parse(cls, reader: OptionReader) -> Limits:
        """Read the options.

        Raises:
            ConfigurationError: a value is not valid, or the minimum exceeds the maximum.
        """
        most = reader.integer("maxOffsetsPerTrigger")
        least = reader.optional_integer("minOffsetsPerTrigger") or 0
        if least > most:
            raise ConfigurationError(
                f"option minOffsetsPerTrigger must be at most maxOffsetsPerTrigger ({most}), got '{least}'"
            )
        return cls(
            most,
            least,
            reader.duration("maxTriggerDelay"),
            reader.optional_integer("maxBytesPerTrigger"),
            reader.optional_integer("maxBytesPerSecond"),
        )
