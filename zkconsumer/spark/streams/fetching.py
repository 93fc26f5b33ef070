"""Fetches the records of a task in the operator, so that they do not pass through the JVM.

The source only plans: its rows contain the range of each partition, and where to fetch it.

See docs/decisions/36-fetch-in-the-operator.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from zkconsumer.message import Endpoint, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.spark.executor.fetch_task import FetchTask
    from zkconsumer.spark.executor.task_reports import ReportAddress

#: Columns of the tables that ``RecordFetcher.fetch`` returns; ``headers`` is missing if no record has headers.
FETCHED = ("offset", "timestamp", "key", "value", "headers")
#: Columns that identify the partition of a fetched batch.
PARTITION = ("topic", "partition")


class FetchRange(NamedTuple):
    """The range of a partition in a batch, and where to fetch it.

    Attributes:
        start: first offset.
        until: end offset, exclusive.
        leader: broker id and endpoint of the leader when the batch was planned; None if it was unknown.
        brokers: endpoints for metadata requests.
        reports: address to which skipped records are reported; None to report none.
    """

    start: int
    until: int
    leader: tuple[int, Endpoint] | None
    brokers: tuple[Endpoint, ...]
    reports: ReportAddress | None

    @classmethod
    def of(cls, task: FetchTask) -> FetchRange:
        """Return the range of a task that fetches a single range."""
        [(partition, (start, until))] = task.ranges.items()
        return cls(start, until, task.leaders.get(partition), task.brokers, task.reports)


class RecordFetcher(Protocol):
    """Fetches records. Pickled with the plan of the application."""

    def fetch(self, ranges: Mapping[TopicPartition, FetchRange]) -> Mapping[TopicPartition, pa.Table]:
        """Return the records of each range, with the columns ``FETCHED``; partitions without records may be missing.

        Raises:
            ZkConsumerError: records were deleted or are corrupt, or the brokers did not respond.
        """


@dataclass(frozen=True)
class KafkaFetcher:
    """Fetches records from Kafka.

    Args:
        template: the settings; it has no ranges.
    """

    template: FetchTask

    def fetch(self, ranges: Mapping[TopicPartition, FetchRange]) -> Mapping[TopicPartition, pa.Table]:
        """See ``RecordFetcher.fetch``."""
        if not ranges:
            return {}
        first = next(iter(ranges.values()))  # brokers and reports are the same in all ranges of a batch
        task = replace(
            self.template.with_brokers(first.brokers),
            ranges={partition: (one.start, one.until) for partition, one in ranges.items()},
            leaders={partition: one.leader for partition, one in ranges.items() if one.leader is not None},
            reports=first.reports,
        )
        found: dict[TopicPartition, list[pa.Table]] = {}
        for partition, batch in read_batches(task):
            found.setdefault(partition, []).append(_select(batch))
        return {partition: pa.concat_tables(parts, promote_options="default") for partition, parts in found.items()}


def read_batches(task: FetchTask) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Fetch the ranges of a task whose batches have the columns ``PARTITION``; yield each batch with its partition."""
    # Imported here, because other processes import this module, too.
    from zkconsumer.spark.executor.reader import read

    for batch in read(task):
        if batch.num_rows:
            topic, number = (batch.column(name)[0].as_py() for name in PARTITION)
            yield TopicPartition(topic, number), batch


def _select(batch: pa.RecordBatch) -> pa.Table:
    names = list(FETCHED)
    if batch.column("headers").null_count == batch.num_rows:
        names.remove("headers")
    return pa.Table.from_batches([batch.select(names)])
