"""What the tasks of a batch are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zkconsumer.fetcher.manager import fetcher_id
from zkconsumer.fetcher.thread import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.end_of_stream import EndSignal
from zkconsumer.spark.executor.rows import Layout
from zkconsumer.spark.offset import FetchTask, Ranges, total
from zkconsumer.spark.options.source_options import SourceOptions

#: Offsets that are worth a task of their own: what a core reads while Spark starts one.
_WORTH_A_TASK = 50_000


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
        settings=FetchSettings.of(config),
        chunks=config.queued_max_message_chunks,
        layout=layout or options.layout(),
        check_crcs=config.check_crcs,
        fails_on_data_loss=options.fails_on_data_loss,
        patience=options.unavailable_timeout,
        end=end,
    )


def split_ranges(
    ranges: Ranges,
    leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    *,
    num_fetchers: int,
    cores: int,
    at_least: int | None = None,
    at_most: int | None = None,
    in_pieces: bool = True,
) -> list[Ranges]:
    """Return the tasks of a batch: the ranges that are not empty, by (broker, fetcher id), and large ones in pieces.

    Args:
        cores: so many tasks are made where the ranges are worth it.
        at_least: so many tasks in any case, as far as there are offsets.
        at_most: offsets of a piece.
        in_pieces: whether a partition may be read by several tasks.
    """
    pieces = []
    if at_most is not None and in_pieces:
        whole = {}
        for partition, (start, until) in sorted(ranges.items()):
            while until - start > at_most:
                pieces.append({partition: (start, start + at_most)})
                start += at_most
            whole[partition] = (start, until)
        ranges = whole
    tasks = group_ranges(ranges, leaders, num_fetchers=num_fetchers, at_least=at_least or cores) + pieces
    while in_pieces and tasks and len(tasks) < (at_least or cores):
        largest = max(tasks, key=total)
        if total(largest) < (2 if at_least else 2 * _WORTH_A_TASK):
            break
        [(partition, (start, until))] = largest.items()  # else it would have been grouped more finely
        middle = (start + until) // 2
        index = tasks.index(largest)
        tasks[index : index + 1] = [{partition: (start, middle)}, {partition: (middle, until)}]
    return tasks


def group_ranges(
    ranges: Ranges, leaders: Mapping[TopicPartition, tuple[int, Endpoint]], *, num_fetchers: int, at_least: int
) -> list[Ranges]:
    """Return the ranges that are not empty, grouped by (broker, fetcher id).

    Fetcher ids are made finer until there are ``at_least`` groups, or one for each partition; groups that the
    hash does not take apart are halved.
    """
    wanted = {partition: span for partition, span in sorted(ranges.items()) if span[0] < span[1]}
    groups: dict[tuple[int, int], Ranges] = {}
    for fetchers in range(num_fetchers, max(num_fetchers, len(wanted)) + 1):
        groups = {}
        for partition, span in wanted.items():
            node = leaders[partition][0] if partition in leaders else -1
            groups.setdefault((node, fetcher_id(partition, fetchers)), {})[partition] = span
        if len(groups) >= min(at_least, len(wanted)):
            break
    made = [groups[key] for key in sorted(groups)]
    while len(made) < min(at_least, len(wanted)):
        index = max(range(len(made)), key=lambda number: len(made[number]))
        items = sorted(made[index].items())
        middle = len(items) // 2
        made[index : index + 1] = [dict(items[:middle]), dict(items[middle:])]
    return made
