"""The declared nodes of a topology, and their groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkconsumer.errors import ConfigurationError, TopologyError
from zkconsumer.rebalance.topic_filter import Whitelist
from zkconsumer.topology.checks import check_functions, check_name
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.records import Record, RecordMetadata
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.timestamps import TimestampExtractor

#: Returns an object for the topic and the serialized bytes, which may be None.
Deserializer = Callable[[str, bytes | None], Any]

#: Returns the serialized bytes for the topic and an object, which may be None.
Serializer = Callable[[str, Any], bytes | None]

#: Returns the topic of a record, from the record and where the current record was read.
TopicExtractor = Callable[[Record, RecordMetadata], str]

#: Returns the partition number of a record, from topic, key, value and number of partitions. None selects the
#: producer's choice; several numbers send the record to each of them, and no number drops it.
Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]


@dataclass(frozen=True)
class SourceNode:
    """A node that reads topics: ``topics`` is empty if ``pattern``, a Java regular expression, selects them."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None
    offset_reset: str | None
    timestamp_extractor: TimestampExtractor | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    parents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_functions(
            f"source {self.name!r}",
            timestamp_extractor=self.timestamp_extractor,
            key_deserializer=self.key_deserializer,
            value_deserializer=self.value_deserializer,
        )


@dataclass(frozen=True)
class ProcessorNode:
    """A node with a processor, and the names of the stores that are connected to it, in that order."""

    name: str
    parents: tuple[str, ...]
    supplier: ProcessorSupplier
    stores: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkNode:
    """A node that writes to ``topic``, or to the topic that ``extractor`` returns."""

    name: str
    parents: tuple[str, ...]
    topic: str | None
    extractor: TopicExtractor | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner | None

    def __post_init__(self) -> None:
        check_functions(
            f"sink {self.name!r}",
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
            partitioner=self.partitioner,
        )


Node = SourceNode | ProcessorNode | SinkNode


class TopicGroup(NamedTuple):
    """The topics of a sub-topology, whose tasks read one partition number of all of them.

    Attributes:
        sources: topics that it reads. Topics of patterns are missing until ``Topology.set_topics``.
        sinks: topics that it writes, without those that an extractor selects.
        is_global: whether it updates a global store, so that it has no tasks of its own.
    """

    sources: frozenset[str]
    sinks: frozenset[str]
    is_global: bool = False


class GlobalStore(NamedTuple):
    """A global store: the builder, and the nodes that fill it from a topic."""

    builder: StoreBuilder
    source: SourceNode
    processor: ProcessorNode


class UnionFind:
    """Sets of connected names. Source: Kafka 3.9 QuickUnion."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a name as a set of its own."""
        self._parents[name] = name

    def root(self, name: str) -> str:
        """Return the name that represents the set of ``name``, and shorten the path to it."""
        parents = self._parents
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Join the set of a name with those of others."""
        for other in others:
            self._parents[self.root(name)] = self.root(other)


def node_groups(nodes: Mapping[str, Node], connected: UnionFind) -> list[list[str]]:
    """Return the names of each connected part; parts and names are in the order in which the nodes were added."""
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(connected.root(name), []).append(name)
    return list(groups.values())


def matched_topics(sources: Iterable[SourceNode], existing: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the topics of each source with a pattern, by name of the source.

    Raises:
        TopologyError: two patterns match a topic.
    """
    topics = list(existing)
    matched: dict[str, tuple[str, ...]] = {}
    owner: dict[str, SourceNode] = {}
    for source in sources:
        if source.pattern is None:
            continue
        matched[source.name] = tuple(Whitelist(source.pattern).select(topics))
        for topic in matched[source.name]:
            other = owner.setdefault(topic, source)
            if other is not source:
                raise TopologyError(
                    f"topic {topic!r} matches the patterns {other.pattern!r} of source {other.name!r} and "
                    f"{source.pattern!r} of source {source.name!r}"
                )
    return matched


def check_topics(name: str, topics: tuple[str, ...], sources: Iterable[SourceNode]) -> None:
    """Raise TopologyError if the topics of a new source are invalid, or are read by another source."""
    if not topics:
        raise TopologyError(f"source {name!r} needs at least one topic, or a pattern")
    others = list(sources)
    for index, topic in enumerate(topics):
        check_name("topic", topic)
        if topic in topics[:index]:
            raise TopologyError(f"source {name!r} names topic {topic!r} twice")
        for other in others:
            if topic in other.topics:
                raise TopologyError(f"topic {topic!r} is already read by source {other.name!r}")
            if other.pattern is not None and Whitelist(other.pattern).is_topic_allowed(topic, False):
                raise TopologyError(f"topic {topic!r} matches the pattern {other.pattern!r} of source {other.name!r}")


def check_pattern(name: str, pattern: str, sources: Iterable[SourceNode], global_topics: set[str]) -> None:
    """Raise TopologyError if the pattern of a new source is invalid, or matches a topic that another source reads."""
    check_name("pattern", pattern)
    if set(pattern) & set(", \"'"):
        raise TopologyError(
            f"source {name!r}: pattern must not contain commas, spaces and quotation marks, got {pattern!r}"
        )
    try:
        topic_filter = Whitelist(pattern)
    except ConfigurationError as error:
        raise TopologyError(f"source {name!r}: {error}") from error
    for other in sources:
        for topic in topic_filter.select([topic for topic in other.topics if topic not in global_topics], False):
            raise TopologyError(
                f"source {name!r}: pattern {pattern!r} matches topic {topic!r}, which source {other.name!r} reads"
            )
