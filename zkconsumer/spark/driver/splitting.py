"""What the tasks of a batch are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zkconsumer.fetcher.settings import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.end_of_stream import EndSignal
from zkconsumer.spark.executor.rows import Layout
from zkconsumer.spark.offset import FetchTask, Ranges, split_ranges
from zkconsumer.spark.options.source_options import SourceOptions


def tasks(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    cores: int,
    layout: Layout | None = None,
    end: EndSignal | None = None,
) -> Iterator[FetchTask]:
    """Yield what each Spark task fetches of some ranges.

    Args:
        leaders: as far as they are known.
        brokers: who may be asked for others.
        layout: how rows are made; by default the columns of Spark's own source.
        end: who is told where a decoder sees the end of the stream; what follows in the partition is not wanted then,
            so one task has all of it.
    """
    config = options.consumer
    for group in split_ranges(
        ranges,
        leaders,
        num_fetchers=config.num_consumer_fetchers,
        cores=cores,
        at_least=options.min_partitions,
        at_most=options.max_records_per_partition,
        in_pieces=end is None,
    ):
        yield task(options, group, leaders, brokers, layout, end)


def task(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    layout: Layout | None = None,
    end: EndSignal | None = None,
) -> FetchTask:
    """Return what the one Spark task is told that fetches all of some ranges."""
    config = options.consumer
    return FetchTask(
        ranges=ranges,
        leaders={partition: leaders[partition] for partition in ranges if partition in leaders},
        brokers=tuple(brokers),
        settings=FetchSettings.from_config(config),
        chunks=config.queued_max_message_chunks,
        layout=layout or options.layout(),
        check_crcs=config.check_crcs,
        fails_on_data_loss=options.fails_on_data_loss,
        patience=options.unavailable_timeout,
        end=end,
    )
