"""A source of one row for each task and trigger, so that tasks without records punctuate, too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from zkconsumer.spark.streams.packing import COLUMNS

#: Name of the format.
FORMAT = "zkconsumer-ticks"


class TickPartition(InputPartition):
    """The tick of a batch.

    Attributes:
        time_ms: its time.
    """

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms


class TickReader(DataSourceStreamReader):
    """Its offset is the wall-clock time in milliseconds, so a batch that is repeated has the same tick."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._keys: list[int] = json.loads(options["keys"])
        self._interval_ms = int(options["intervalMs"])

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first tick."""
        return {"time": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Return the time of the last tick."""
        return {"time": time.time_ns() // 1_000_000 // self._interval_ms * self._interval_ms}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the tick of a batch."""
        return [TickPartition(end["time"])] if end["time"] > start["time"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield one row for each task."""
        if isinstance(partition, TickPartition):
            for key in self._keys:
                yield key, None, None, partition.time_ms, None, None


class TickSource(DataSource):
    """The format ``zkconsumer-ticks``, with the options ``keys`` (JSON) and ``intervalMs``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader."""
        return TickReader(self.options)
