"""The input partition of one Spark task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.decoders import PlannedRange
from zkconsumer.spark.executor.rows import RowSchema
from zkconsumer.spark.executor.task_reports import ReportAddress

if TYPE_CHECKING:  # tasks do not parse offsets
    from zkconsumer.spark.offset import Ranges


@dataclass(frozen=True)
class FetchTask(InputPartition):
    """What one Spark task fetches; pickled to the executor that runs it.

    Attributes:
        planned: ranges of all partitions of the batch for ``BatchDecoder.decode_range``, in the first task; empty in
            other tasks, and without the option ``plannedRanges``.
        ranges: offsets to read, by partition. All partitions had the same leader when the batch was planned.
        leaders: id and endpoint of the leader by partition, as known when the batch was planned.
        brokers: endpoints for metadata requests, used when a leader has changed or is unknown.
        settings: settings of fetch requests.
        max_chunks: maximum number of fetched chunks per partition that wait to be decoded.
        row_schema: schema of the rows, and how they are decoded.
        check_crcs: verify the checksums of record batches.
        fails_on_data_loss: raise an error for deleted records; if False, skip them.
        unavailable_timeout: maximum seconds without a fetched chunk before the task fails.
        reports: where to report the end of the stream and skipped records; None if neither is reported.
        can_end: the decoder can end the stream.
    """

    ranges: Ranges
    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    brokers: tuple[Endpoint, ...]
    settings: FetchSettings
    max_chunks: int
    row_schema: RowSchema
    check_crcs: bool
    fails_on_data_loss: bool
    unavailable_timeout: float
    reports: ReportAddress | None = None
    can_end: bool = False
    planned: tuple[PlannedRange, ...] = ()
