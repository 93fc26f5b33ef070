"""The offset of a batch in Spark's offset log, as JSON.

Spark compares the text of two offsets to detect new data, so equal offsets must have equal text: topics and partitions
are sorted, and the order of the keys is fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import OFFSET_MAX, is_valid_topic_name, parse_partition_number

#: Maps each partition to a half-open range of offsets, (start, until).
Ranges = dict[TopicPartition, tuple[int, int]]

#: Version of the JSON format.
FORMAT_VERSION = 1

#: Maximum number of partitions in an offset. ZooKeeper-based clusters support about 200,000 partitions in total.
_MAX_PARTITIONS = 1_000_000

#: Maximum number of content characters quoted in an error message.
_EXCERPT_LENGTH = 200

#: Initial offset of every query. Spark requests it again if batch 0 has not finished, so it must be constant. The
#: offset of each batch contains the batch's ranges.
INITIAL: dict[str, Any] = {"version": FORMAT_VERSION, "sequence": 0, "generation": 0, "ranges": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffset:
    """The ranges of a batch, and the state that planning needs after a restart.

    See docs/decisions/13-spark-offsets-carry-ranges.rst.

    Attributes:
        ranges: start offset (inclusive) and stop offset (exclusive) of the batch, by partition.
        generation: number of rebalances that the member had completed when the batch was planned.
        group: consumer group of the query; None in the initial offset.
        known: partitions that existed when the batch was planned, regardless of their owner.
        topic_ids: topic id by topic name, to detect re-created topics.
        deleted_topics: the most recently deleted topics, in order of deletion.
        earlier_ends: next offsets after earlier batches, for partitions that this batch does not contain.
        lags: number of unread offsets after the batch, by partition; empty unless the option ``plannedRanges`` is set.
        planned_ms: time when the batch was planned, in milliseconds since the epoch; 0 without ``lags``.
        idle: partitions that were idle (see ``idleTimeout``) when the batch was planned.
        sequence: number of batches planned so far. Two batches may have the same ranges if a topic is re-created or a
            group's offset is reset; without this number, Spark would interpret the second offset as "no new data".
        is_ended: whether a decoder detected the end of the stream; no batch follows this one.
    """

    ranges: Ranges
    generation: int
    group: str | None = None
    known: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    deleted_topics: tuple[str, ...] = ()
    earlier_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    planned_ms: int = 0
    idle: frozenset[TopicPartition] = frozenset()
    sequence: int = 0
    is_ended: bool = False

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BatchOffset:
        """Parse an offset that this or an earlier release created with ``to_json``.

        Raises:
            ConfigurationError: the content is malformed.
        """
        try:
            return cls._parse(content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"an offset in the checkpoint cannot be parsed ({_excerpt(error)}): {_excerpt(content)}. Use a new "
                "checkpointLocation"
            ) from error

    @classmethod
    def _parse(cls, content: Mapping[str, Any]) -> BatchOffset:
        return cls(
            ranges=from_offset(content),
            generation=_number(content["generation"]),
            group=None if (group := content.get("group")) is None else _text(group),
            known=_partitions(content.get("known", {})),
            idle=_partitions(content.get("idle", {})),
            topic_ids={_topic(topic): _text(topic_id) for topic, topic_id in content.get("ids", {}).items()},
            deleted_topics=tuple(_topic(topic) for topic in _list(content.get("gone", []))),
            earlier_ends=offsets_of(content.get("before", {})),
            lags=offsets_of(content.get("lags", {})),
            planned_ms=_number(content.get("time", 0)),
            sequence=_number(content["sequence"]),
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
            content["before"] = group_by_topic(self.earlier_ends)
        if self.lags:
            content["lags"] = group_by_topic(self.lags)
            content["time"] = self.planned_ms
        if self.idle:
            content["idle"] = _numbers_by_topic(self.idle)
        content["ranges"] = group_by_topic({partition: list(span) for partition, span in self.ranges.items()})
        return content

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that existed when the batch was planned, including the batch's partitions."""
        return self.known.union(self.ranges)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Next offset of each partition after this batch, including partitions that only earlier batches contain."""
        return {**self.earlier_ends, **{partition: until for partition, (_, until) in self.ranges.items()}}

    def end_of_stream(self) -> BatchOffset:
        """Return the offset of the empty batch that follows this batch and ends the query."""
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
    if not (isinstance(offset, Mapping) and {"version", "generation", "ranges"} <= offset.keys()):
        raise ConfigurationError(
            f"the checkpoint was not written by format('zkconsumer'): its last offset is {_excerpt(offset)}. "
            "Use a new checkpointLocation (`zkconsumer migrate-offsets --from checkpoint:DIR` copies the offsets from "
            "a format('kafka') checkpoint)"
        )
    version = offset["version"]
    if version != FORMAT_VERSION:
        raise ConfigurationError(
            f"the checkpoint has offset format version {_excerpt(version)}, but this release supports only version "
            f"{FORMAT_VERSION}; upgrade zkconsumer"
        )


def from_offset(offset: Mapping[str, Any]) -> Ranges:
    """Return the ranges of a batch, given its offset as JSON."""
    return {
        partition: (_number(start), _number(until)) for partition, (start, until) in _by_partition(offset["ranges"])
    }


def group_by_topic(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    """Return values by topic and partition, with topics sorted by name and partitions by number."""
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(values.items()):
        topics.setdefault(topic, {})[str(partition)] = value
    return topics


def _partitions(topics: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Parse partitions in the JSON format of ``_numbers_by_topic``."""
    numbers_by_topic = {_topic(topic): _partition_numbers(topic, numbers) for topic, numbers in topics.items()}
    if (count := sum(map(len, numbers_by_topic.values()))) > _MAX_PARTITIONS:
        raise ValueError(f"{count} partitions exceed the maximum of {_MAX_PARTITIONS}")
    return frozenset(TopicPartition(topic, number) for topic, numbers in numbers_by_topic.items() for number in numbers)


def _partition_numbers(topic: str, numbers: Any) -> Sequence[int]:
    """Parse the partition numbers of a topic: a list, or ``n`` for the numbers from 0 to ``n - 1``.

    Raises:
        ValueError: ``numbers`` is neither a list of partition numbers nor a count.
    """
    if type(numbers) is int and 0 <= numbers <= _MAX_PARTITIONS:
        return range(numbers)
    if isinstance(numbers, list) and all(type(number) is int and 0 <= number < _MAX_PARTITIONS for number in numbers):
        return numbers
    raise ValueError(f"malformed partition numbers of topic {topic!r}: {_excerpt(numbers)}")


def offsets_of(content: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Parse offsets in the JSON format of ``group_by_topic``.

    Raises:
        AttributeError, ValueError: the content does not have this format.
    """
    return {partition: _number(offset) for partition, offset in _by_partition(content)}


def _by_partition(topics: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition and its value, given JSON in the format of ``group_by_topic``."""
    for topic, partitions in topics.items():
        for text, value in partitions.items():
            number = parse_partition_number(text)
            if number is None:
                raise ValueError(f"topic {topic!r}: {excerpt(text)} is not a partition number")
            yield TopicPartition(_topic(topic), number), value


def _topic(name: Any) -> str:
    if not is_valid_topic_name(name):
        raise ValueError(f"invalid topic name {_excerpt(name)}")
    return str(name)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_excerpt(value)} is not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_excerpt(value)} is not a string")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{_excerpt(value)} is not an integer between 0 and {OFFSET_MAX}")
    return value


def _excerpt(content: Any) -> str:
    """Return the beginning of ``repr(content)``, for JSON content or an error."""
    try:
        text = repr(content)
    except (RecursionError, ValueError):  # deeply nested, or an integer with thousands of digits
        return f"a {type(content).__name__}"
    return text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}..."


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, int | list[int]]:
    """Return sorted partition numbers by topic; the numbers from 0 to ``n - 1`` are abbreviated to ``n``."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return {topic: len(n) if n == list(range(len(n))) else n for topic, n in topics.items()}


def total(ranges: Mapping[TopicPartition, Sequence[int]]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(max(0, until - start) for start, until in ranges.values())
