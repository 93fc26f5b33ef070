"""Classes of the tests of random scenarios that workers import."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from zkconsumer.spark.streams.packing import COLUMNS
from zkconsumer.topology import ApplicationConfig, StreamTask, TaskRuntime
from zkconsumer.topology.subtopology import Subtopology

# The nodes of a ``ScenarioSubtopology`` need the package ``oracle``. A worker imports this module first.
sys.path.append(str(Path(__file__).parents[2]))

#: Number of Spark partitions that read a batch.
_PARTITIONS = 2


@dataclass(frozen=True, kw_only=True)
class ScenarioSubtopology(Subtopology):
    """A sub-topology with settings of its own, because the scenarios of a query have different ones.

    Attributes:
        config: settings of its tasks.
    """

    config: ApplicationConfig

    def task(
        self,
        partition: int,
        config: ApplicationConfig,
        runtime: TaskRuntime,
        snapshot: bytes | None = None,
    ) -> StreamTask:
        """Return a new task with the settings of this sub-topology."""
        return super().task(partition, self.config, runtime, snapshot)


class StoredPartition(InputPartition):  # type: ignore[misc]  # of type Any
    """Each ``_PARTITIONS``-th row of a file.

    Attributes:
        path: the file.
        first: number of the first row.
    """

    def __init__(self, path: str, first: int) -> None:
        self.path, self.first = path, first


class StoredReader(DataSourceStreamReader):  # type: ignore[misc]  # of type Any
    """Its offset is the number of batches that were read; each trigger reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder, self._count = Path(options["path"]), int(options["batches"])

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first batch."""
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return the offset after the next batch."""
        return {"batches": min(start["batches"] + 1, self._count)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the parts of the batches between two offsets."""
        return [
            StoredPartition(str(self._folder / str(number)), first)
            for number in range(start["batches"], end["batches"])
            for first in range(_PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield rows in the order of the file."""
        assert isinstance(partition, StoredPartition)
        yield from pickle.loads(Path(partition.path).read_bytes())[partition.first :: _PARTITIONS]


class StoredBatches(DataSource):  # type: ignore[misc]  # of type Any
    """Batches of rows of the operator in files ``0``, ``1`` and so on of a folder.

    Options: ``path`` of the folder and the number of ``batches``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "stored-batches"

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader."""
        return StoredReader(self.options)
