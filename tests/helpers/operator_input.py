"""What the operator of an application receives from Spark: fetched records, and the state of pages."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.fetching import FETCHED


def fetched(topic: str, partition: int, offsets: Sequence[int], headers: Any = None) -> pa.RecordBatch:
    """Return a fetched chunk. Keys repeat every three offsets, and records are ten milliseconds apart."""
    count = len(offsets)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "key": pa.array([b"k%d" % (offset % 3) for offset in offsets], pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "topic": pa.array([topic] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([offset * 10_000 for offset in offsets], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([headers] * count, header),
        }
    )


class GivenRange(NamedTuple):
    """A range that contains its records, instead of where to fetch them."""

    records: pa.Table


class GivenRecords:
    """A ``RecordFetcher`` that returns the records of ``GivenRange`` objects."""

    def fetch(self, ranges: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, pa.Table]:
        """Return the records of each range."""
        return {partition: one.records for partition, one in ranges.items()}


def give(*chunks: pa.RecordBatch) -> Any:
    """Return a range with the records of fetched chunks."""
    return GivenRange(pa.Table.from_batches(chunks).select(FETCHED))


class Row(NamedTuple):
    """A row of the operator."""

    task: int
    topic: str | None
    partition: int | None
    first_offset: int
    lag: int | None = None
    blob: bytes | None = None
    until: int | None = None


def range_row(
    key: int, partition: TopicPartition, given: Any, *, lag: int = 0, until: int = 0, planned_ms: int = 0
) -> Row:
    """Return the row of a range; ``given`` is None if the range is empty."""
    return Row(key, *partition, planned_ms, lag, None if given is None else pickle.dumps(given), until)


class Pages(dict[tuple[int, int], bytes]):
    """The map state of Spark; a key that is missing may not be read."""

    def getValue(self, key: tuple[int, int]) -> tuple[bytes]:
        """Return a value."""
        return (self[key],)

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        """Set a value."""
        self[key] = value[0]

    def removeKey(self, key: tuple[int, int]) -> None:
        """Remove a key."""
        del self[key]
