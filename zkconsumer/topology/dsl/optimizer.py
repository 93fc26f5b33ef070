"""Combines steps of a ``StreamsBuilder`` before the topology is built.

Source: Kafka 3.9 InternalStreamsBuilder and NodesWithRelaxedNullKeyJoinDownstream.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from zkconsumer.errors import TopologyError
from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, Serdes, SourceGraphNode
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.step_graph import StepGraph, find_ancestor
from zkconsumer.topology.dsl.stream_stream_joins import StreamJoinGraphNode
from zkconsumer.topology.dsl.suppress import SuppressGraphNode


class Optimization(enum.Flag):
    """Optimizations to apply, like the values of ``topology.optimization`` in Kafka Streams."""

    NONE = 0
    #: Reuse the source topic of a table as its changelog. Has no effect, because there are no changelog topics.
    REUSE_TABLE_SOURCE_TOPICS = enum.auto()
    #: Merge the repartition topics that follow a key-changing step.
    MERGE_REPARTITION_TOPICS = enum.auto()
    #: Use one store for a self-join.
    SINGLE_STORE_SELF_JOIN = enum.auto()
    ALL = REUSE_TABLE_SOURCE_TOPICS | MERGE_REPARTITION_TOPICS | SINGLE_STORE_SELF_JOIN


def optimize(graph: StepGraph, optimization: Optimization) -> None:
    """Optimize the graph. Sources that read the same topics are always merged.

    Raises:
        TopologyError: two sources overlap or have different ``offset_reset`` values, ``suppress`` is applied to a
            versioned table, or repartition topics cannot be merged.
    """
    _merge_sources(graph)
    if Optimization.MERGE_REPARTITION_TOPICS in optimization:
        _merge_repartition_topics(graph)
    if Optimization.SINGLE_STORE_SELF_JOIN in optimization:
        _combine_self_joins(_walk(graph.root))
    nodes = _walk(graph.root)
    _drop_null_keys(nodes)
    for node in nodes:
        for parent in node.parents:
            if node.use_versions is not None and _is_versioned(parent, graph.root):
                node.use_versions(parent.name)
        if isinstance(node, SuppressGraphNode) and _has_versions_before(node, graph.root):
            raise TopologyError(f"step {node.name!r}: suppress() does not support versioned tables")


def _walk(root: GraphNode) -> list[GraphNode]:
    """Return all steps below the root."""
    found: dict[GraphNode, None] = {}
    rest = list(root.children)
    while rest:
        node = rest.pop()
        if node not in found:
            found[node] = None
            rest += node.children
    return list(found)


def _merge_sources(graph: StepGraph) -> None:
    root = graph.root
    by_topic: dict[str, SourceGraphNode] = {}
    by_pattern: dict[str, SourceGraphNode] = {}
    for node in list(root.children):
        if not isinstance(node, SourceGraphNode):
            continue
        known, keys = (by_topic, node.topics) if node.pattern is None else (by_pattern, (node.pattern,))
        for key in keys:
            main = known.setdefault(key, node)
            if main is node:
                continue
            if set(main.topics) != set(node.topics):
                raise TopologyError(
                    f"sources {main.name!r} and {node.name!r} overlap: they read {', '.join(main.topics)} and "
                    f"{', '.join(node.topics)}; read each shared topic with its own stream(), and merge() the streams"
                )
            main.merge(node)
            graph.replace_source(node.name, main.name)
            if node in root.children:
                root.remove_child(node)


def _combine_self_joins(nodes: Iterable[GraphNode]) -> None:
    for node in nodes:
        if isinstance(node, StreamJoinGraphNode) and len(node.parents) == 1 and not node.is_self_join:
            (parent,) = node.parents
            right = next(child for child in parent.children if child.name == node.names.windowed[1])
            parent.remove_child(right)
            node.is_self_join = True


def _drop_null_keys(nodes: Iterable[GraphNode]) -> None:
    """Make repartition steps drop records without a key, unless a downstream join accepts them."""
    keep: set[GraphNode] = set()
    for node in nodes:
        if node.allows_null_keys:
            rest = list(node.parents)
            while rest:
                parent = rest.pop()
                if parent not in keep:
                    keep.add(parent)
                    rest += parent.parents
    for node in nodes:
        if isinstance(node, RepartitionGraphNode):
            node.drops_null_keys = node not in keep


def _is_versioned(node: GraphNode, root: GraphNode) -> bool:
    return node.is_versioned if node.is_versioned is not None else _has_versions_before(node, root)


def _has_versions_before(node: GraphNode, root: GraphNode) -> bool:
    return node is not root and all(_is_versioned(parent, root) for parent in node.parents)


def _merge_repartition_topics(graph: StepGraph) -> None:
    _assign_merges(graph)
    for changer, repartitions in graph.key_changers.items():
        if not repartitions:
            continue
        graph.key_changers[changer] = {}
        first = next(iter(repartitions))
        serdes = Serdes()
        for one in repartitions:
            serdes = Serdes(serdes.key or one.serdes.key, serdes.value or one.serdes.value)
        shared = RepartitionGraphNode(graph.name_repartition(first.names.topic), serdes)
        shared.priority = changer.priority
        for one in repartitions:
            child = find_ancestor(one, lambda node, changer=changer: changer in node.parents)  # type: ignore[misc]
            if child is None:
                raise TopologyError(
                    f"the repartition topics downstream of step {changer.name!r} cannot be merged, because "
                    "merge() combines streams downstream of this step; disable MERGE_REPARTITION_TOPICS"
                )
            shared.add_child(child)
            changer.remove_child(child)
            parents, children = list(one.parents), list(one.children)
            for parent in parents:
                for grandchild in children:
                    parent.add_child(grandchild)
                parent.remove_child(one)
            for grandchild in children:
                one.remove_child(grandchild)
            graph.replace_source(one.name, shared.name)
        changer.add_child(shared)


def _assign_merges(graph: StepGraph) -> None:
    """Assign repartition steps below a merge step to that step, not to the key-changing steps above it."""
    changers_of: dict[GraphNode, list[GraphNode]] = {}
    for merge in graph.merges:
        changers_of[merge] = [
            changer
            for changer, repartitions in graph.key_changers.items()
            if all(find_ancestor(one, lambda node: merge in node.parents) is not None for one in repartitions)  # noqa: B023
            and find_ancestor(merge, lambda node: changer in node.parents) is not None  # noqa: B023
        ]
    for merge, changers in changers_of.items():
        graph.key_changers[merge] = {one: None for changer in changers for one in graph.key_changers[changer]}
    for changer in dict.fromkeys(one for changers in changers_of.values() for one in changers):
        graph.key_changers.pop(changer, None)
