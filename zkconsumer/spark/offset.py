"""The offset of a batch: the range of each of its partitions, as JSON for Spark's log.

The text of an offset is compared by Spark, so it is always written alike: topics and partitions sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition

#: Partition to (from, until): the first offset of a batch and the one after its last.
Ranges = dict[TopicPartition, tuple[int, int]]

#: Version of the JSON. Offsets without a version have version 1, which has no sequence number.
FORMAT_VERSION = 2

#: Start of every query. Spark asks for it again if batch 0 has not finished, so it must be constant; each later
#: offset carries the ranges of its whole batch.
INITIAL: dict[str, Any] = {"version": FORMAT_VERSION, "sequence": 0, "generation": 0, "ranges": {}}


def check_format(offset: Mapping[str, Any]) -> None:
    """Check that an offset from a checkpoint can be read by this release.

    Raises:
        ConfigurationError: the offset was written by another data source or by a later release.
    """
    if not ("ranges" in offset and "generation" in offset):
        raise ConfigurationError(
            f"the checkpoint was not written by format('zkconsumer'): its last offset is {str(offset)[:200]}. "
            "Start with a new checkpointLocation; `zkconsumer migrate-offsets --from checkpoint:DIR` copies the "
            "offsets of a checkpoint of format('kafka')"
        )
    version = offset.get("version", 1)
    if version not in (1, FORMAT_VERSION):
        raise ConfigurationError(
            f"the checkpoint has offset format version {version!r}, and this release reads versions 1 to "
            f"{FORMAT_VERSION}; upgrade zkconsumer, or start with a new checkpointLocation"
        )


def to_offset(
    ranges: Ranges,
    generation: int,
    known: Iterable[TopicPartition] = (),
    group: str | None = None,
    ids: Mapping[str, str] | None = None,
    gone: Iterable[str] = (),
    before: Mapping[TopicPartition, int] | None = None,
    sequence: int = 0,
) -> dict[str, Any]:
    """Return the ranges of a batch as an offset for Spark's log.

    Args:
        known: the partitions that existed when it was planned, whoever owns them.
        group: whose batch it is.
        ids: of topics, to tell those that are created anew.
        gone: those of the topics that do not exist any more.
        before: where earlier batches ended in partitions that this one does not have.
        sequence: number of batches planned so far. It makes the offset differ from its predecessor even if the batch
            has the same ranges again; Spark takes an equal offset for "no new data".
    """
    topics: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), (start, until) in sorted(ranges.items()):
        topics.setdefault(topic, {})[str(partition)] = [start, until]
    earlier: dict[str, dict[str, int]] = {}
    for (topic, partition), reached in sorted((before or {}).items()):
        earlier.setdefault(topic, {})[str(partition)] = reached
    offset: dict[str, Any] = {"version": FORMAT_VERSION, "sequence": sequence, "generation": generation}
    if group is not None:
        offset["group"] = group
    if numbers := _by_topic(known):
        offset["known"] = numbers
    if ids:
        offset["ids"] = dict(sorted(ids.items()))
    if names := sorted(gone):
        offset["gone"] = names
    if earlier:
        offset["before"] = earlier
    return {**offset, "ranges": topics}


def end_of_stream(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offset behind which a query has nothing more to read: a decoder has seen the end in the batch before.

    An empty batch goes up to it, which tells those who listen; and it stays the query's last.
    """
    here = {partition: (until, until) for partition, until in reached_by(offset).items()}
    ended = to_offset(
        here,
        offset["generation"],
        known_by(offset),
        offset.get("group"),
        offset.get("ids"),
        sequence=next_sequence(offset),
    )
    return {"ended": True, **ended}


def next_sequence(offset: Mapping[str, Any]) -> int:
    """Return the sequence number of the batch after this offset."""
    return int(offset.get("sequence", 0)) + 1


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, int | list[int]]:
    """Return the numbers by topic; how many there are, where none is missing."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return {topic: len(n) if n == list(range(len(n))) else n for topic, n in topics.items()}


def known_by(offset: Mapping[str, Any]) -> set[TopicPartition]:
    """Return the partitions that existed when an offset was planned."""
    known = {
        TopicPartition(topic, number)
        for topic, numbers in offset.get("known", {}).items()
        for number in (range(numbers) if isinstance(numbers, int) else numbers)
    }
    return known.union(from_offset(offset))


def from_offset(offset: Mapping[str, Any]) -> Ranges:
    """Return the ranges that an offset carries."""
    return {
        TopicPartition(topic, int(partition)): (int(start), int(until))
        for topic, partitions in offset["ranges"].items()
        for partition, (start, until) in partitions.items()
    }


def reached_by(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return where a query had come to, with the batch of this offset and those before it."""
    earlier = {
        TopicPartition(topic, int(partition)): int(reached)
        for topic, partitions in offset.get("before", {}).items()
        for partition, reached in partitions.items()
    }
    return {**earlier, **{partition: until for partition, (_, until) in from_offset(offset).items()}}


def total(ranges: Mapping[TopicPartition, Sequence[int]]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(max(0, until - start) for start, until in ranges.values())
