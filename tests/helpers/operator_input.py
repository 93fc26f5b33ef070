"""What the operator of an application receives from Spark: fetched records, and the state of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


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
