"""Reads the records of a batch in executors."""

from __future__ import annotations

from collections.abc import Iterator

from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.reader import read

#: The columns that tasks read, in the field order of ``FetchedRecord``.
COLUMNS = ("key", "value", "topic", "partition", "offset")

FetchedRecord = tuple[bytes | None, bytes | None, str, int, int]


def fetch(tasks: Iterator[FetchTask]) -> Iterator[FetchedRecord]:
    """Fetch the ranges of ``tasks``, and yield their records."""
    for task in tasks:
        for batch in read(task):
            yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
