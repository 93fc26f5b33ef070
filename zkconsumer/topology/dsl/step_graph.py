"""The graph of all steps in a ``StreamsBuilder``.

Source: Kafka 3.9 InternalStreamsBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zkconsumer.errors import TopologyError
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
    """All steps of a ``StreamsBuilder``, as a graph.

    Args:
        create_stream: stream class; passed as an argument, because the stream and table modules cannot import each
            other.
        create_table: table class.

    Attributes:
        names: name generator.
        root: root of the graph; the parent of all steps that have no other parent.
        copartitioned: sets of sources whose topics must have the same number of partitions.
        key_changers: dict from each step that changes keys or merges streams to the downstream repartition steps that
            can share one topic.
        merges: steps that merge streams, as dict keys.
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
            child: step to add.
            parents: parent steps; the root if there are none.
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

    def check_same_builder(self, name: str, other: StepGraph) -> None:
        """Check that an argument was created by the same ``StreamsBuilder``.

        Args:
            name: name of the argument.
            other: steps of the builder that created the argument.

        Raises:
            TopologyError: another builder created the argument.
        """
        if other is not self:
            raise TopologyError(f"{name} must belong to the same StreamsBuilder, got one of another StreamsBuilder")

    def replace_source(self, name: str, other: str) -> None:
        """Replace source ``name`` with ``other`` in the co-partitioned source sets."""
        self.copartitioned = [names - {name} | {other} if name in names else names for names in self.copartitioned]

    def name_repartition(self, prefix: str) -> RepartitionNames:
        """Return the names of a repartition topic and its nodes.

        Args:
            prefix: topic name; the suffix ``-repartition`` is appended if it is missing.
        """
        topic = prefix if prefix.endswith(_SUFFIX) else prefix + _SUFFIX
        sink, filter_, source = map(self.names.generate, (SINK, FILTER, SOURCE))
        if is_generated(prefix):
            return RepartitionNames(topic, sink, source, filter_)
        return RepartitionNames(topic, f"{topic}-sink", f"{topic}-source", f"{topic}-filter")


def is_generated(name: str) -> bool:
    """Return whether ``name`` is the generated name of a stream step."""
    return name.startswith("KSTREAM") and name[-11:-10] == "-" and name[-10:].isdecimal()


def find_ancestor(node: GraphNode, accepts: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return ``node`` or an ancestor for which ``accepts`` returns true; None if there is none.

    As in Kafka Streams, the ancestors of each parent are searched in turn, and each search overwrites the result of the
    previous one, even if it finds nothing.
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
    """Return the union of the given source sets."""
    return frozenset().union(*sources)
