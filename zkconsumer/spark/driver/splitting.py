"""Splits a batch into the tasks that Spark runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zkconsumer.fetcher.manager import fetcher_id
from zkconsumer.fetcher.settings import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.rows import Layout
from zkconsumer.spark.executor.task_reports import ReportAddress
from zkconsumer.spark.offset import Ranges, total
from zkconsumer.spark.options.source_options import SourceOptions

#: Minimum number of offsets per task when a partition is split: a core reads about as many while Spark starts a task.
_MIN_TASK_OFFSETS = 50_000


def tasks(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    cores: int,
    layout: Layout | None = None,
    *,
    reports: ReportAddress | None = None,
    can_end: bool = False,
) -> Iterator[FetchTask]:
    """Yield the tasks of a batch.

    Args:
        leaders: the known leaders, with their node ids.
        brokers: brokers to which tasks may send metadata requests.
        cores: number of tasks to create if the ranges are large enough.
        layout: layout of the rows; None for the columns of Spark's own source.
        reports: where tasks report the end of the stream and skipped records; None if tasks report neither.
        can_end: the decoder can end the stream. Records after the end must not be read, so each partition is read by
            one task.
    """
    config = options.consumer
    for group in split_ranges(
        ranges,
        leaders,
        num_fetchers=config.num_consumer_fetchers,
        cores=cores,
        min_tasks=options.min_partitions,
        max_offsets=options.max_records_per_partition,
        may_split=not can_end,
    ):
        yield task(options, group, leaders, brokers, layout, reports=reports, can_end=can_end)


def task(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    layout: Layout | None = None,
    *,
    reports: ReportAddress | None = None,
    can_end: bool = False,
) -> FetchTask:
    """Return the task that fetches all of the ranges; see ``tasks`` for the arguments."""
    config = options.consumer
    return FetchTask(
        ranges=ranges,
        leaders={partition: leaders[partition] for partition in ranges if partition in leaders},
        brokers=tuple(brokers),
        settings=FetchSettings.from_config(config),
        max_chunks=config.queued_max_message_chunks,
        layout=layout or options.layout(),
        check_crcs=config.check_crcs,
        fails_on_data_loss=options.fails_on_data_loss,
        unavailable_timeout=options.unavailable_timeout,
        reports=reports,
        can_end=can_end,
    )


def split_ranges(
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    *,
    num_fetchers: int,
    cores: int,
    min_tasks: int | None = None,
    max_offsets: int | None = None,
    may_split: bool = True,
) -> list[Ranges]:
    """Return the ranges of each task: non-empty ranges grouped by (broker, fetcher id), large ones split.

    Args:
        cores: number of tasks to create if the ranges are large enough.
        min_tasks: minimum number of tasks, even if the ranges are small; None for ``cores``.
        max_offsets: maximum number of offsets of a partition in one task.
        may_split: whether several tasks may read a partition.
    """
    pieces = []
    if max_offsets is not None and may_split:
        remaining = {}
        for partition, (start, until) in sorted(ranges.items()):
            while until - start > max_offsets:
                pieces.append({partition: (start, start + max_offsets)})
                start += max_offsets
            remaining[partition] = (start, until)
        ranges = remaining
    wanted = min_tasks or cores
    groups = group_ranges(ranges, leaders, num_fetchers=num_fetchers, min_groups=wanted) + pieces
    while may_split and groups and len(groups) < wanted:
        largest = max(groups, key=total)
        if total(largest) < (2 if min_tasks else 2 * _MIN_TASK_OFFSETS):
            break
        # There are fewer groups than tasks, so each group has one partition.
        [(partition, (start, until))] = largest.items()
        middle = (start + until) // 2
        index = groups.index(largest)
        groups[index : index + 1] = [{partition: (start, middle)}, {partition: (middle, until)}]
    return groups


def group_ranges(
    ranges: Ranges, leaders: Mapping[TopicPartition, tuple[int, Endpoint]], *, num_fetchers: int, min_groups: int
) -> list[Ranges]:
    """Return the non-empty ranges grouped by (broker, fetcher id).

    The number of fetcher ids is increased until there are ``min_groups`` groups, or one per partition. If there are
    still too few, because partitions have the same fetcher id, the largest groups are halved.
    """
    wanted = {partition: span for partition, span in sorted(ranges.items()) if span[0] < span[1]}
    by_fetcher: dict[tuple[int, int], Ranges] = {}
    for fetchers in range(num_fetchers, max(num_fetchers, len(wanted)) + 1):
        by_fetcher = {}
        for partition, span in wanted.items():
            node = leaders[partition][0] if partition in leaders else -1
            by_fetcher.setdefault((node, fetcher_id(partition, fetchers)), {})[partition] = span
        if len(by_fetcher) >= min(min_groups, len(wanted)):
            break
    groups = [by_fetcher[key] for key in sorted(by_fetcher)]
    while len(groups) < min(min_groups, len(wanted)):
        index = max(range(len(groups)), key=lambda number: len(groups[number]))
        items = sorted(groups[index].items())
        middle = len(items) // 2
        groups[index : index + 1] = [dict(items[:middle]), dict(items[middle:])]
    return groups
