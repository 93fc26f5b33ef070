"""The steps that a ``StreamsBuilder`` has collected.

Source: Kafka 3.9 InternalStreamsBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, RepartitionNames
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.names import Names

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.stream import KStream
    from zkconsumer.topology.dsl.table import KTable

FILTER = "KSTREAM-FILTER-"
SINK = "KSTREAM-SINK-"
SOURCE = "KSTREAM-SOURCE-"

_SUFFIX = "-repartition"


class StepGraph:
    """The steps, in the order in which they are written to the topology.

    Args:
        create_stream: class of streams. It is an argument because the modules of streams and tables cannot both import
            the other one.
        create_table: class of tables.

    Attributes:
        names: generates names.
        root: the parent of the steps without a parent.
        copartitioned: sets of sources whose topics must have the same number of partitions.
        key_changers: the steps that change keys or merge streams, each with the steps after it that repartition its
            output and can share a topic.
        merges: the steps that merge streams.
    """

    def __init__(self, create_stream: type[KStream], create_table: type[KTable]) -> None:
        self.create_stream, self.create_table = create_stream, create_table
        self.names = Names()
        self.root = GraphNode("root")
        self.copartitioned: list[frozenset[str]] = []
        self.key_changers: dict[GraphNode, dict[RepartitionGraphNode, None]] = {}
        self.merges: dict[GraphNode, None] = {}
        self._next_priority = 0

    def add(self, child: GraphNode, *parents: GraphNode) -> None:
        """Add a step.

        Args:
            child: the step.
            parents: the steps before it; none for the root.
        """
        for parent in parents or (self.root,):
            parent.add_child(child)
            child.priority = self._next_priority
            self._next_priority += 1
            self._record(child)

    def _record(self, node: GraphNode) -> None:
        if node.changes_key:
            self.key_changers[node] = {}
        elif isinstance(node, RepartitionGraphNode) and node.is_optimizable:
            changer = find_ancestor(node, lambda one: one.changes_key)
            if changer is not None and changer is find_ancestor(node, lambda one: one.changes_key or one.changes_value):
                self.key_changers[changer][node] = None
        elif node.is_merge:
            self.merges[node] = None

    def replace_source(self, name: str, other: str) -> None:
        """Replace a source by another one in the sets of co-partitioned sources."""
        self.copartitioned = [names - {name} | {other} if name in names else names for names in self.copartitioned]

    def name_repartition(self, prefix: str) -> RepartitionNames:
        """Return names for a repartition topic and its nodes.

        Args:
            prefix: name of the topic without its suffix.
        """
        topic = prefix if prefix.endswith(_SUFFIX) else prefix + _SUFFIX
        sink, filter_, source = map(self.names.generate, (SINK, FILTER, SOURCE))
        if is_generated(prefix):
            return RepartitionNames(topic, sink, source, filter_)
        return RepartitionNames(topic, f"{topic}-sink", f"{topic}-source", f"{topic}-filter")


def is_generated(name: str) -> bool:
    """Return whether a name of a step of a stream was generated."""
    return name.startswith("KSTREAM") and name[-11:-10] == "-" and name[-10:].isdecimal()


def find_ancestor(node: GraphNode, accepts: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return a node, or one of the steps before it, that a function accepts; None if there is none.

    As in Kafka Streams, a match found above one parent is overwritten by the search above the next parent, even if that
    finds nothing.
    """
    if accepts(node):
        return node
    found = None
    for parent in node.parents:
        if accepts(parent):
            return parent
        found = find_ancestor(parent, accepts)
    return found


def unite(*sources: Iterable[str]) -> frozenset[str]:
    """Return the union of sets of sources."""
    return frozenset().union(*sources)
