"""A topology whose sources have their topics, for the tasks that process them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.errors import TopologyError
from zkconsumer.topology.nodes import Node, SinkNode, SourceNode
from zkconsumer.topology.patterns import match_topics


class TopicGroup(NamedTuple):
    """The topics of a sub-topology, whose tasks read one partition number of all of them.

    Attributes:
        sources: topics that it reads.
        sinks: topics that it writes, without those that an extractor selects.
        is_global: whether it updates a global store, so that it has no tasks of its own.
    """

    sources: frozenset[str]
    sinks: frozenset[str]
    is_global: bool = False


@dataclass(frozen=True)
class ResolvedTopology:
    """The sub-topologies of a topology, and their topics among those that exist; see ``Topology.resolve``.

    Attributes:
        groups: names of the nodes of each sub-topology, global stores included, by its number in ``describe``.
        topic_groups: topics of each sub-topology by its number; sub-topologies that read no topic are missing.
        topics_of: topics of each source, by its name.
    """

    groups: Mapping[int, tuple[str, ...]]
    topic_groups: Mapping[int, TopicGroup]
    topics_of: Mapping[str, tuple[str, ...]]

    @property
    def source_topics(self) -> frozenset[str]:
        """All topics that sources and global stores read."""
        return frozenset(topic for topics in self.topics_of.values() for topic in topics)

    def check_partition_counts(self, counts: Mapping[str, int]) -> None:
        """Check that all topics of each sub-topology have the same number of partitions.

        Args:
            counts: number of partitions by topic.

        Raises:
            TopologyError: the numbers differ, a topic is missing, or the topology has no source.
        """
        if not self.topics_of:
            raise TopologyError("the topology has no source: call add_source or add_global_store")
        missing = sorted(self.source_topics - counts.keys())
        if missing:
            raise TopologyError(f"source topics do not exist: {', '.join(missing)}")
        for number, group in self.topic_groups.items():
            found = {topic: counts[topic] for topic in sorted(group.sources)}
            if len(set(found.values())) > 1:
                raise TopologyError(
                    f"the topics of sub-topology {number} must have the same number of partitions, because records "
                    f"with equal keys are processed together; found {', '.join(f'{t}: {n}' for t, n in found.items())}"
                )


def resolve_topics(
    nodes: Mapping[str, Node], groups: Sequence[Sequence[str]], global_topics: set[str], existing_topics: Iterable[str]
) -> ResolvedTopology:
    """Return a topology with its topics.

    Args:
        nodes: nodes by name, in the order in which they were added.
        groups: names of the nodes of each sub-topology.
        global_topics: topics of global stores, which patterns do not match.
        existing_topics: topics that patterns may match.

    Raises:
        TopologyError: two patterns match a topic.
    """
    sources = [node for node in nodes.values() if isinstance(node, SourceNode)]
    topics_of = match_topics(sources, sorted(set(existing_topics) - global_topics))
    topic_groups = {}
    for number, names in enumerate(groups):
        members = [nodes[name] for name in names]
        read = frozenset(topic for name in names for topic in topics_of.get(name, ()))
        written = frozenset(node.topic for node in members if isinstance(node, SinkNode) and node.topic is not None)
        if read:
            topic_groups[number] = TopicGroup(read, written, is_global=not global_topics.isdisjoint(read))
    return ResolvedTopology({number: tuple(names) for number, names in enumerate(groups)}, topic_groups, topics_of)
