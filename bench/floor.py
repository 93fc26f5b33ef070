"""A Python data source for Spark that returns ready Arrow batches.

The batches have the columns of zkconsumer's source that the query selects. There are as many tasks as zkconsumer's
source has for two cores. Each task creates one batch and returns it repeatedly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

#: Types of the columns of zkconsumer's source.
COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
}

TASKS = 2

#: Rows per Arrow batch, limited like those of zkconsumer's source.
ROWS, BYTES = 65_536, 2 << 20


@dataclass
class Share(InputPartition):  # type: ignore[misc]
    """The number of records that one task returns."""

    records: int


class FloorSource(DataSource):  # type: ignore[misc]
    """The data source.

    Its options are ``records``, ``size`` (of a value, in bytes), ``topic`` and ``columns``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "floor"

    def schema(self) -> Any:
        """Return the schema of the selected columns."""
        return ", ".join(f"{name} {COLUMNS[name]}" for name in self.options["columns"].split(","))

    def streamReader(self, schema: Any) -> FloorReader:
        """Return the reader."""
        del schema
        return FloorReader(self.options)


class FloorReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans one batch with all records."""

    def __init__(self, options: Any) -> None:
        self._records = int(options["records"])
        self._size, self._topic = int(options["size"]), options["topic"]
        self._columns = options["columns"].split(",")

    def initialOffset(self) -> dict[str, int]:
        """Return the offset of the first batch."""
        return {"end": 0}

    def latestOffset(self) -> dict[str, int]:
        """Return the offset after the only batch."""
        return {"end": 1}

    def partitions(self, start: Any, end: Any) -> list[Share]:
        """Divide the records among the tasks."""
        del start, end
        return [Share(len(range(number, self._records, TASKS))) for number in range(TASKS)]

    def read(self, partition: Share) -> Iterator[Any]:
        """Return the same batch until all records of the task were returned."""
        import pyarrow as pa

        rows = max(1, min(ROWS, BYTES // self._size, partition.records))
        now = int(time.time() * 1_000_000)
        batch = pa.record_batch(
            [
                pa.nulls(rows, pa.binary()),
                pa.array([b"0" * self._size] * rows, pa.binary()),
                pa.array([self._topic] * rows, pa.string()),
                pa.array([0] * rows, pa.int32()),
                pa.array(range(rows), pa.int64()),
                pa.array([now] * rows, pa.timestamp("us", tz="UTC")),
                pa.array([0] * rows, pa.int32()),
            ],
            names=list(COLUMNS),
        )
        batch = batch.select(self._columns)
        left = partition.records
        while left >= rows:
            yield batch
            left -= rows
        if left:
            yield batch.slice(0, left)

    def commit(self, end: Any) -> None:
        """Do nothing."""
