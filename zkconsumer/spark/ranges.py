"""The offsets of a query: for each partition of a batch, from where to where; and the tasks of a batch.

The text of an offset is compared by Spark, so it is always written alike: topics and partitions sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from zkconsumer.fetcher.manager import fetcher_id
from zkconsumer.fetcher.thread import FetchSettings
from zkconsumer.message import Endpoint, TopicPartition

#: Partition to (from, until): the first offset of a batch and the one after its last.
Ranges = dict[TopicPartition, tuple[int, int]]

#: What a query starts from. It says nothing, so that it is the same at each start (Spark asks for it again
#: when batch 0 did not finish); each later offset carries the whole ranges of its batch.
INITIAL: dict[str, Any] = {"generation": 0, "ranges": {}}


def to_offset(ranges: Ranges, generation: int) -> dict[str, Any]:
    """Return the ranges of a batch as an offset for Spark's log."""
    topics: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), (start, until) in sorted(ranges.items()):
        topics.setdefault(topic, {})[str(partition)] = [start, until]
    return {"generation": generation, "ranges": topics}


def from_offset(offset: Mapping[str, Any]) -> Ranges:
    """Return the ranges that an offset carries."""
    return {
        TopicPartition(topic, int(partition)): (int(start), int(until))
        for topic, partitions in offset["ranges"].items()
        for partition, (start, until) in partitions.items()
    }


@dataclass(frozen=True)
class FetchTask(InputPartition):
    """What one Spark task fetches: ranges that share a leader and a fetcher id.

    ``leaders`` are the leaders when the batch was planned; ``brokers`` may be asked for others.
    """

    ranges: Ranges
    leaders: dict[TopicPartition, tuple[int, Endpoint]]
    brokers: tuple[Endpoint, ...]
    settings: FetchSettings
    chunks: int
    include_headers: bool
    check_crcs: bool
    patience: float


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


def total(ranges: Mapping[TopicPartition, Sequence[int]]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(max(0, until - start) for start, until in ranges.values())
