"""A topology with resolved source topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zkconsumer.errors import TopologyError
from zkconsumer.topology.declared.nodes import Node, ProcessorNode, SourceNode
from zkconsumer.topology.declared.patterns import match_topics
from zkconsumer.topology.loop.java_order import string_order
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.subtopology import Subtopology


class TopicGroup(NamedTuple):
    """The topics of a sub-topology. Each task reads the same partition number from all source topics.

    Attributes:
        sources: topics that the sub-topology reads.
        sinks: topics that the sub-topology writes, except topics that a topic extractor selects.
        is_global: whether the sub-topology updates a global store, and therefore has no tasks of its own.
    """

    sources: frozenset[str]
    sinks: frozenset[str]
    is_global: bool = False


@dataclass(frozen=True)
class ResolvedTopology:
    """The sub-topologies of a topology with their resolved topics; see ``Topology.resolve``.

    Attributes:
        subtopologies: sub-topologies, including those of global stores, by their number in ``Topology.describe``.
        copartitioned: groups of topics that must have the same number of partitions.
        internal_topics: partition count of each internal topic, by topic name without the application id; None if the
            count is unknown, for example because it depends on a topic that does not exist.
    """

    subtopologies: Mapping[int, Subtopology]
    copartitioned: tuple[frozenset[str], ...] = ()
    internal_topics: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def topic_groups(self) -> dict[int, TopicGroup]:
        """The topics of each sub-topology, by number; sub-topologies that read no topic are omitted."""
        return {
            number: TopicGroup(one.source_topics, one.sink_topics, one.is_global)
            for number, one in self.subtopologies.items()
            if one.source_topics
        }

    @property
    def source_topics(self) -> frozenset[str]:
        """All source topics, including the topics of global stores."""
        return frozenset(topic for one in self.subtopologies.values() for topic in one.source_topics)

    def check_partition_counts(self, counts: Mapping[str, int]) -> None:
        """Check that all source topics exist, and that co-partitioned topics have equal partition counts.

        Args:
            counts: number of partitions by topic; internal topics may be omitted.

        Raises:
            TopologyError: co-partitioned topics have different partition counts, a source topic does not exist, or the
                topology has no source topic.
        """
        known = {topic: count for topic, count in self.internal_topics.items() if count is not None}
        counts = {**known, **counts}
        if not self.source_topics:
            raise TopologyError("the topology must have at least one source topic")
        missing = sorted(self.source_topics - counts.keys())
        if missing:
            raise TopologyError(f"source topics do not exist: {', '.join(missing)}")
        for topics in self.copartitioned:
            found = {topic: counts[topic] for topic in sorted(topics)}
            if len(set(found.values())) > 1:
                raise TopologyError(
                    "co-partitioned topics must have the same number of partitions, because records with equal keys "
                    f"are processed together; got {', '.join(f'{t}: {n}' for t, n in found.items())}"
                )


def resolve_topics(
    groups: Sequence[Sequence[Node]],
    stores: Mapping[str, StoreBuilder],
    global_topics: Iterable[str],
    partition_counts: Mapping[str, int],
) -> list[Subtopology]:
    """Return the sub-topologies with their resolved topics.

    Args:
        groups: nodes of each sub-topology.
        stores: all stores by name, including global stores.
        global_topics: topics of global stores; patterns do not match these topics.
        partition_counts: partition count of each existing topic; patterns are matched against these topics.

    Raises:
        TopologyError: two patterns match the same topic.
    """
    of_global_stores = set(global_topics)
    sources = [node for nodes in groups for node in nodes if isinstance(node, SourceNode)]
    topics_of = match_topics(sources, sorted(partition_counts.keys() - of_global_stores))
    resolved = []
    for number, nodes in enumerate(groups):
        one = Subtopology(
            number=number,
            nodes=tuple(nodes),
            stores=select_stores(nodes, stores),
            topics_of={node.name: topics_of[node.name] for node in nodes if node.name in topics_of},
        )
        topics = one.source_topics
        counts = {topic: count for topic, count in partition_counts.items() if topic in topics}
        resolved.append(replace(one, partition_counts=counts, is_global=not of_global_stores.isdisjoint(topics)))
    return resolved


def select_stores(nodes: Iterable[Node], stores: Mapping[str, StoreBuilder]) -> tuple[StoreBuilder, ...]:
    """Return the stores connected to ``nodes``, in the order in which Kafka Streams flushes their caches."""
    processors = [node for node in nodes if isinstance(node, ProcessorNode)]
    names = dict.fromkeys(name for node in processors for name in string_order(node.stores))
    return tuple(stores[name] for name in names)


def _merge_overlapping(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Merge sets that have common elements, and return the resulting disjoint sets."""
    merged: list[frozenset[str]] = []
    for one in sets:
        overlapping = [other for other in merged if one & other]
        merged = [other for other in merged if not one & other] + [one.union(*overlapping)]
    return merged


def _derive_partition_counts(
    subtopologies: Sequence[Subtopology], declared: Mapping[str, int | None], existing: Mapping[str, int]
) -> dict[str, int | None]:
    """Derive the partition count of each internal topic from the sub-topologies that write to the topic.

    An internal topic without a declared count gets the highest partition count among the source topics of these
    sub-topologies. The count of an internal source topic can be unknown, for example because a sub-topology reads a
    topic that it also writes to. Such source topics are ignored if no other count can be derived.
    """
    counts = dict(declared)
    while True:
        found: dict[str, tuple[int, set[str]]] = {}
        for topic in (topic for topic, count in counts.items() if count is None):
            sources = {name for one in subtopologies if topic in one.sink_topics for name in one.source_topics}
            sizes = {name: counts.get(name, existing.get(name)) for name in sources - {topic}}
            unknown = {name for name, size in sizes.items() if size is None}
            if len(unknown) < len(sizes) and unknown <= counts.keys():
                found[topic] = max(size for size in sizes.values() if size is not None), unknown
        if not found:
            return counts
        complete = [topic for topic, (_, unknown) in found.items() if not unknown]
        for topic in complete or [next(iter(found))]:
            counts[topic] = found[topic][0]


def count_internal_partitions(
    subtopologies: Sequence[Subtopology],
    declared: Mapping[str, int | None],
    copartitioned: Iterable[frozenset[str]],
) -> dict[str, int | None]:
    """Return the partition count of each internal topic.

    A count that is not declared is derived from the source topics of the sub-topologies that write to the topic, or
    from co-partitioned topics. It is None if it cannot be derived. Source: Kafka 3.9 RepartitionTopics and
    CopartitionedTopicsEnforcer.
    """
    existing = {topic: count for one in subtopologies for topic, count in one.partition_counts.items()}
    counts = _derive_partition_counts(subtopologies, declared, existing)
    for topics in _merge_overlapping(copartitioned):
        # External topics take precedence, then declared counts, then the highest derived count.
        others = [existing[topic] for topic in topics - counts.keys() if topic in existing]
        fixed = [count for topic in topics & counts.keys() if (count := declared[topic]) is not None]
        largest = [count for topic in topics & counts.keys() if (count := counts[topic]) is not None]
        for topic in topics & counts.keys():
            if declared[topic] is None:
                counts[topic] = max(others or fixed or largest, default=None)
    return counts
