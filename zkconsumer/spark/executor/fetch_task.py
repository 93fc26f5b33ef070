"""The input partition of one Spark task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.decoders import PlannedRange
from zkconsumer.spark.executor.row_schema import RowSchema
from zkconsumer.spark.executor.task_reports import ReportAddress

if TYPE_CHECKING:  # tasks do not parse offsets
    from zkconsumer.spark.offset import Ranges


@dataclass(frozen=True)
class FetchTask(InputPartition):
    """Describes what one Spark task fetches; pickled and sent to the executor that runs the task.

    Attributes:
        planned: ranges of all partitions in the batch, for ``BatchDecoder.decode_range``; empty unless this is the
            first task and the option ``plannedRanges`` is set.
        ranges: offsets to read, by partition. All partitions had the same leader when the batch was planned.
        leaders: broker id and endpoint of each partition's leader, as known when the batch was planned.
        brokers: endpoints for metadata requests, used if a leader changed or is unknown.
        settings: fetch request settings.
        max_chunks: maximum number of fetched chunks per partition that wait to be decoded.
        row_schema: schema of the rows, and how they are decoded.
        check_crcs: whether to verify record batch checksums.
        fails_on_data_loss: whether to raise an error for deleted records instead of skipping them.
        unavailable_timeout_s: maximum seconds without a fetched chunk before the task fails.
        reports: address to which the end of the stream and skipped records are reported; None disables the reports.
        can_end: whether to call the decoder's ``is_end_of_stream``.
    """

    ranges: Ranges
    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    brokers: tuple[Endpoint, ...]
    settings: FetchSettings
    max_chunks: int
    row_schema: RowSchema
    check_crcs: bool
    fails_on_data_loss: bool
    unavailable_timeout_s: float
    reports: ReportAddress | None = None
    can_end: bool = False
    planned: tuple[PlannedRange, ...] = ()

    def with_brokers(self, brokers: Iterable[Endpoint]) -> FetchTask:
        """Return a copy that sends metadata requests to ``brokers``, and to the brokers of this task."""
        return replace(self, brokers=tuple(dict.fromkeys((*brokers, *self.brokers))))
