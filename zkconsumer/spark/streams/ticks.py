"""A source of one row for each task and trigger, so that tasks without records punctuate, too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

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


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offset is the wall-clock time in milliseconds, so a batch that is repeated has the same tick."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._keys: list[int] = json.loads(options["keys"])
        self._interval_ms = int(options["intervalMs"])
        self._last: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first tick."""
        return {"time": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query after the tick of the current time."""
        self._last = self._find_tick()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002
        """Return the time of the last tick."""
        if not self._interval_ms:
            return start
        return max(start, self._last or self._find_tick(), key=lambda offset: offset["time"])

    def _find_tick(self) -> dict[str, int]:
        if not self._interval_ms:
            return {"time": 0}
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
    """The format ``zkconsumer-ticks``, with the options ``keys`` (JSON) and ``intervalMs`` (0 for no ticks)."""

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
