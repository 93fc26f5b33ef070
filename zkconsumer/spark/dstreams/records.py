"""The records of a batch, as the executors read them."""

from __future__ import annotations

from collections.abc import Iterator

from zkconsumer.spark.executor.reader import read
from zkconsumer.spark.offset import FetchTask

#: Values of the records, as a batch of them has them.
COLUMNS = ("key", "value", "topic", "partition", "offset")

Record = tuple[bytes | None, bytes | None, str, int, int]


def fetch(tasks: Iterator[FetchTask]) -> Iterator[Record]:  # in the executors
    """Yield the records of tasks."""
    for one in tasks:
        for batch in read(one):
            yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
