"""The offset of a batch in Spark's offset log, as JSON.

Spark compares the text of two offsets to detect new data, so equal offsets must have equal text: topics and partitions
are sorted, and the order of the keys is fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition

#: Partition to (from, until): the first offset of a batch and the one after its last.
Ranges = dict[TopicPartition, tuple[int, int]]

#: Version of the JSON. Offsets without a version have version 1, which has no sequence number.
FORMAT_VERSION = 2

#: Maximum number of partitions of a topic. Clusters with ZooKeeper support about 200,000 partitions in total.
_MAX_PARTITIONS = 1_000_000

#: Initial offset of every query. Spark requests it again if batch 0 has not finished, so it must be constant. The
#: offset of each batch contains the ranges of the batch.
INITIAL: dict[str, Any] = {"version": FORMAT_VERSION, "sequence": 0, "generation": 0, "ranges": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffset:
    """The ranges of a batch, and what planning needs after a restart.

    Attributes:
        ranges: offsets of the batch by partition.
        generation: number of rebalances of the member when the batch was planned.
        group: consumer group of the query; None in the initial offset.
        known: partitions that existed when the batch was planned, whichever member owned them.
        topic_ids: id by topic, to detect re-created topics.
        deleted_topics: the most recently deleted topics, in the order of their deletion.
        earlier_ends: end offsets of earlier batches, for partitions that this batch does not contain.
        idle: partitions that did not hold back others in event time when the batch was planned.
        sequence: number of batches planned so far. Two batches may have the same ranges if a topic is re-created or a
            group's offset is reset; without this number Spark would take the second offset for "no new data".
        is_ended: whether a decoder has detected the end of the stream; no batch follows this one.
    """

    ranges: Ranges
    generation: int
    group: str | None = None
    known: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    deleted_topics: tuple[str, ...] = ()
    earlier_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    idle: frozenset[TopicPartition] = frozenset()
    sequence: int = 0
    is_ended: bool = False

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BatchOffset:
        """Parse the result of ``to_json`` of this release or an earlier one.

        Raises:
            ConfigurationError: the content is not an offset, or contains impossible partition numbers.
        """
        try:
            return cls._parse(content)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"an offset in the checkpoint cannot be parsed ({error!r}): {str(content)[:200]}. Restore the "
                "checkpoint, or start with a new checkpointLocation"
            ) from error

    @classmethod
    def _parse(cls, content: Mapping[str, Any]) -> BatchOffset:
        return cls(
            ranges=from_offset(content),
            generation=int(content["generation"]),
            group=content.get("group"),
            known=_partitions(content.get("known", {})),
            idle=_partitions(content.get("idle", {})),
            topic_ids={str(topic): str(topic_id) for topic, topic_id in content.get("ids", {}).items()},
            deleted_topics=tuple(map(str, content.get("gone", ()))),
            earlier_ends={
                TopicPartition(topic, int(partition)): int(end)
                for topic, partitions in content.get("before", {}).items()
                for partition, end in partitions.items()
            },
            sequence=int(content.get("sequence", 0)),
            is_ended=bool(content.get("ended")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for Spark's offset log. Empty attributes are omitted, except ``ranges``."""
        content: dict[str, Any] = {"ended": True} if self.is_ended else {}
        content.update(version=FORMAT_VERSION, sequence=self.sequence, generation=self.generation)
        if self.group is not None:
            content["group"] = self.group
        if self.known:
            content["known"] = _numbers_by_topic(self.known)
        if self.topic_ids:
            content["ids"] = dict(sorted(self.topic_ids.items()))
        if self.deleted_topics:
            content["gone"] = list(self.deleted_topics)
        if self.earlier_ends:
            content["before"] = nested(self.earlier_ends)
        if self.idle:
            content["idle"] = _numbers_by_topic(self.idle)
        content["ranges"] = nested({partition: list(span) for partition, span in self.ranges.items()})
        return content

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that existed when the batch was planned, including those of the batch."""
        return self.known.union(self.ranges)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each partition after this batch, including partitions that only earlier batches contain."""
        return {**self.earlier_ends, **{partition: until for partition, (_, until) in self.ranges.items()}}

    def end_of_stream(self) -> BatchOffset:
        """Return the offset of the empty batch that ends the query. It follows the batch of this offset."""
        return BatchOffset(
            ranges={partition: (until, until) for partition, until in self.ends.items()},
            generation=self.generation,
            group=self.group,
            known=self.partitions,
            topic_ids=self.topic_ids,
            sequence=self.sequence + 1,
            is_ended=True,
        )


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


def from_offset(offset: Mapping[str, Any]) -> Ranges:
    """Return the ranges of an offset."""
    return {
        TopicPartition(topic, int(partition)): (int(start), int(until))
        for topic, partitions in offset["ranges"].items()
        for partition, (start, until) in partitions.items()
    }


def nested(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    """Return values by topic and partition, with topics sorted by name and partitions by number."""
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(values.items()):
        topics.setdefault(topic, {})[str(partition)] = value
    return topics


def _partitions(topics: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Return partitions from their JSON, the result of ``_numbers_by_topic``."""
    return frozenset(
        TopicPartition(topic, number)
        for topic, numbers in topics.items()
        for number in _partition_numbers(topic, numbers)
    )


def _partition_numbers(topic: str, numbers: Any) -> Sequence[int]:
    """Return the partition numbers of a topic from their JSON: a list, or ``n`` for the numbers from 0 to ``n - 1``.

    Raises:
        ValueError: no topic can have these partitions.
    """
    if type(numbers) is int and 0 <= numbers <= _MAX_PARTITIONS:
        return range(numbers)
    if isinstance(numbers, list) and all(type(number) is int and 0 <= number < _MAX_PARTITIONS for number in numbers):
        return numbers
    raise ValueError(f"partitions of topic {topic!r}: {str(numbers)[:80]}")


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, int | list[int]]:
    """Return sorted partition numbers by topic; the numbers from 0 to ``n - 1`` are abbreviated to ``n``."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return {topic: len(n) if n == list(range(len(n))) else n for topic, n in topics.items()}


def total(ranges: Mapping[TopicPartition, Sequence[int]]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(max(0, until - start) for start, until in ranges.values())
