"""Splits a batch into the tasks that Spark runs."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence

from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.manager import fetcher_id
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.row_schema import RowSchema
from zkconsumer.spark.executor.task_reports import ReportAddress
from zkconsumer.spark.offset import Ranges, total
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.table import MAX_TASKS

#: Minimum number of offsets per task when a partition is split. A core reads about that many while Spark starts a task.
_MIN_TASK_OFFSETS = 50_000


def tasks(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    cores: int,
    row_schema: RowSchema | None = None,
    *,
    reports: ReportAddress | None = None,
    can_end: bool = False,
) -> Iterator[FetchTask]:
    """Yield the tasks of a batch.

    Args:
        leaders: broker id and endpoint of each known leader, by partition.
        brokers: brokers to which tasks may send metadata requests.
        cores: number of executor cores.
        row_schema: schema of the rows; None for the schema of ``options.columns``.
        reports: address to which tasks report the end of the stream and skipped records; None to report neither.
        can_end: whether the decoder can end the stream. Records after the end must not be read, so each partition is
            read by one task.
    """
    config = options.consumer
    for group in split_ranges(
        ranges,
        leaders,
        num_consumer_fetchers=config.num_consumer_fetchers,
        cores=cores,
        min_tasks=options.min_partitions,
        max_offsets=options.max_records_per_partition,
        may_split=not can_end,
    ):
        yield task(options, group, leaders, brokers, row_schema, reports=reports, can_end=can_end)


def task(
    options: SourceOptions,
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    brokers: Sequence[Endpoint],
    row_schema: RowSchema | None = None,
    *,
    reports: ReportAddress | None = None,
    can_end: bool = False,
) -> FetchTask:
    """Create the task that fetches all of the ranges; see ``tasks`` for the arguments."""
    config = options.consumer
    return FetchTask(
        ranges=ranges,
        leaders={partition: leaders[partition] for partition in ranges if partition in leaders},
        brokers=tuple(brokers),
        settings=FetchSettings.from_config(config),
        max_chunks=config.queued_max_message_chunks,
        row_schema=row_schema or options.row_schema(),
        check_crcs=config.check_crcs,
        fails_on_data_loss=options.fails_on_data_loss,
        unavailable_timeout_s=options.unavailable_timeout_s,
        reports=reports,
        can_end=can_end,
    )


def split_ranges(
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    *,
    num_consumer_fetchers: int,
    cores: int,
    min_tasks: int | None = None,
    max_offsets: int | None = None,
    may_split: bool = True,
) -> list[Ranges]:
    """Return the ranges of each task: non-empty ranges are grouped by (broker, fetcher id), and large ones are split.

    By default, the number of tasks is the number of cores, or brokers times fetchers, whichever is higher. There are
    fewer tasks if the partitions can no longer be split into pieces of at least 50,000 offsets.

    Args:
        cores: number of executor cores.
        min_tasks: minimum number of tasks, even if the ranges are small; None for the default.
        max_offsets: maximum number of offsets that a task reads from one partition; None for no limit. Ignored unless
            ``may_split`` is set.
        may_split: whether several tasks may read one partition.

    Raises:
        ConfigurationError: ``max_offsets`` would require more than 100,000 tasks.
    """
    pieces: list[Ranges] = []
    if max_offsets is not None and may_split:
        ranges, pieces = _split_off(ranges, max_offsets)
    brokers = {_node(partition, leaders) for partition, (start, until) in ranges.items() if start < until}
    wanted = min_tasks or max(cores, len(brokers) * num_consumer_fetchers)
    groups = group_ranges(ranges, leaders, num_consumer_fetchers=num_consumer_fetchers, min_groups=wanted) + pieces
    if not may_split or len(groups) >= wanted:
        return groups
    # There are fewer groups than wanted tasks, so each group has one partition.
    smallest = 1 if min_tasks else _MIN_TASK_OFFSETS
    numbers = itertools.count()  # tie-breaker, so that groups are never compared
    heap = [(-total(group), next(numbers), group) for group in groups]
    heapq.heapify(heap)
    while heap and len(heap) < wanted and -heap[0][0] >= 2 * smallest:
        _, _, largest = heapq.heappop(heap)
        [(partition, (start, until))] = largest.items()
        middle = (start + until) // 2
        for half in ((start, middle), (middle, until)):
            heapq.heappush(heap, (half[0] - half[1], next(numbers), {partition: half}))
    return sorted((group for _, _, group in heap), key=lambda group: min(group.items()))


def _split_off(ranges: Ranges, max_offsets: int) -> tuple[Ranges, list[Ranges]]:
    """Split off pieces of ``max_offsets`` offsets from each range; return the remaining ranges and the pieces."""
    count = sum(-(-max(0, until - start) // max_offsets) for start, until in ranges.values())
    if count > MAX_TASKS:
        raise ConfigurationError(
            f"option maxRecordsPerPartition = {max_offsets} would divide a batch of {total(ranges)} offsets into "
            f"{count} tasks (maximum: {MAX_TASKS}); increase its value"
        )
    remaining: Ranges = {}
    pieces: list[Ranges] = []
    for partition, (start, until) in sorted(ranges.items()):
        while until - start > max_offsets:
            pieces.append({partition: (start, start + max_offsets)})
            start += max_offsets
        remaining[partition] = (start, until)
    return remaining, pieces


def group_ranges(
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    *,
    num_consumer_fetchers: int,
    min_groups: int,
) -> list[Ranges]:
    """Return the non-empty ranges grouped by (broker, fetcher id).

    If there are fewer than ``min_groups`` groups, each broker's partitions are divided evenly so that there are
    ``min_groups`` groups, or one group per partition.
    """
    wanted = {partition: span for partition, span in sorted(ranges.items()) if span[0] < span[1]}
    by_fetcher: dict[tuple[int, int], list[TopicPartition]] = {}
    by_node: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        node = _node(partition, leaders)
        by_fetcher.setdefault((node, fetcher_id(partition, num_consumer_fetchers)), []).append(partition)
        by_node.setdefault(node, []).append(partition)
    count = min(min_groups, len(wanted))
    if len(by_fetcher) >= count:
        groups = [by_fetcher[key] for key in sorted(by_fetcher)]
    else:
        groups = _split_groups([by_node[node] for node in sorted(by_node)], count, wanted)
    return [{partition: wanted[partition] for partition in group} for group in groups]


def _split_groups(groups: Sequence[list[TopicPartition]], count: int, ranges: Ranges) -> list[list[TopicPartition]]:
    """Divide the groups into smaller ones, so that there are ``count`` groups in total."""
    parts = [1] * len(groups)
    heap = [(-float(len(group)), number) for number, group in enumerate(groups)]
    heapq.heapify(heap)
    for _ in range(count - len(groups)):
        _, number = heapq.heappop(heap)
        parts[number] += 1
        heapq.heappush(heap, (-len(groups[number]) / parts[number], number))
    divided = []
    for group, of_group in zip(groups, parts, strict=True):
        by_size = sorted(group, key=lambda partition: ranges[partition][0] - ranges[partition][1])
        divided += [sorted(by_size[number::of_group]) for number in range(of_group)]
    return divided


def _node(partition: TopicPartition, leaders: Mapping[TopicPartition, tuple[int, Endpoint]]) -> int:
    """Return the leader's broker id, or -1 if it is unknown."""
    return leaders[partition][0] if partition in leaders else -1
