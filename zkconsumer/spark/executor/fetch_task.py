"""What one Spark task fetches; pickled to the executor that runs it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from zkconsumer.fetcher.thread import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.end_of_stream import EndSignal
from zkconsumer.spark.executor.rows import Layout
from zkconsumer.spark.offset import Ranges


@dataclass(frozen=True)
class FetchTask(InputPartition):
    """What one Spark task fetches: ranges that share a leader and a fetcher id.

    ``leaders`` are the leaders when the batch was planned; ``brokers`` may be asked for others. ``end`` is told where a
    decoder sees the end of the stream.
    """

    ranges: Ranges
    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    brokers: tuple[Endpoint, ...]
    settings: FetchSettings
    chunks: int
    layout: Layout
    check_crcs: bool
    fails_on_data_loss: bool
    patience: float
    end: EndSignal | None = None
