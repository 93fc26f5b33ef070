"""Topology descriptions, byte-for-byte identical to the output of Kafka Streams.

Source: Kafka 3.9 InternalTopologyBuilder.describe. The order of the node names after an arrow depends on Java's hash
order: edges are added in hash order to sorted sets while the sort key, the number of descendants, still changes. A
node that is reachable on several paths is counted several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.topology.declared.nodes import Node, ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.function_names import function_name
from zkconsumer.topology.loop.java_order import string_order


def describe(nodes: Mapping[str, Node], groups: list[list[str]], global_sources: frozenset[str]) -> str:
    """Return the topology description.

    Args:
        nodes: nodes by name, in the order in which they were added.
        groups: node names of each sub-topology.
        global_sources: source node names of the global stores.
    """
    parts = []
    for number, names in enumerate(groups):
        if global_sources.intersection(names):
            parts.append(_describe_global_store(number, [nodes[name] for name in names]))
        else:
            parts.append(_describe_subtopology(number, {name: nodes[name] for name in names}))
    return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def _describe_global_store(number: int, nodes: list[Node]) -> str:
    source, processor = (_Described(node) for node in nodes)
    source.children.add(processor)
    processor.parents.add(source)
    return f"Sub-topology: {number} for global store (will not generate tasks)\n    {source}\n    {processor}\n"


def _describe_subtopology(number: int, nodes: dict[str, Node]) -> str:
    described = {name: _Described(nodes[name]) for name in string_order(nodes)}
    for node in described.values():
        for parent_name in node.node.parents:
            parent = described[parent_name]
            node.parents.add(parent)
            parent.children.add(node)
            parent.grow(node.size)
    lines = (f"    {node}\n" for node in sorted(described.values(), key=lambda node: (-node.size, node.node.name)))
    return f"Sub-topology: {number}\n{''.join(lines)}\n"


class _Described:
    """A node with its parents, its children, and its size: the number of its descendants plus one."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.size = 1
        self.parents, self.children = _SortedNodes(), _SortedNodes()

    def grow(self, amount: int) -> None:
        """Increase the size of this node and its ancestors by ``amount``."""
        self.size += amount
        for parent in self.parents:
            parent.grow(amount)

    def __str__(self) -> str:
        name, children = self.node.name, f"\n      --> {self.children}"
        parents = f"\n      <-- {self.parents}"
        match self.node:
            case SourceNode(topics=topics, pattern=pattern):
                where = pattern if pattern is not None else _format_set(topics)
                return f"Source: {name} (topics: {where}){children}"
            case ProcessorNode(stores=stores):
                return f"Processor: {name} (stores: {_format_set(stores)}){children}{parents}"
            case SinkNode(topic=topic, extractor=extractor):
                where = f"topic: {topic}" if topic is not None else f"extractor class: {function_name(extractor)}"
                return f"Sink: {name} ({where}){parents}"


def _format_set(names: Any) -> str:
    return f"[{', '.join(string_order(string_order(names), copied=True))}]"


@dataclass(eq=False, slots=True)
class _TreeEntry:
    node: _Described
    parent: _TreeEntry | None = None
    is_red: bool = True
    sides: list[_TreeEntry | None] = field(default_factory=lambda: [None, None])  # left, right


class _SortedNodes:
    """Sorted nodes, ordered like ``java.util.TreeMap``: entries are not re-sorted if the size of a node changes."""

    def __init__(self) -> None:
        self._root: _TreeEntry | None = None

    def __iter__(self) -> Iterator[_Described]:
        return self._in_order(self._root)

    def __str__(self) -> str:
        return ", ".join(node.node.name for node in self) or "none"

    def add(self, node: _Described) -> None:
        """Insert ``node`` unless the tree search finds it, as ``TreeMap.put`` does.

        Because node sizes change, the same node can be inserted twice.
        """
        parent, entry, side = None, self._root, 0
        while entry is not None:
            if entry.node is node:
                return
            side = int((-node.size, node.node.name) > (-entry.node.size, entry.node.node.name))
            parent, entry = entry, entry.sides[side]
        new = _TreeEntry(node, parent)
        if parent is None:
            self._root = new
        else:
            parent.sides[side] = new
        self._balance(new)

    def _balance(self, entry: _TreeEntry) -> None:
        while (parent := entry.parent) is not None and parent.is_red and (upper := parent.parent) is not None:
            side = int(upper.sides[1] is parent)
            uncle = upper.sides[1 - side]
            if uncle is not None and uncle.is_red:
                parent.is_red = uncle.is_red = False
                upper.is_red = True
                entry = upper
                continue
            if parent.sides[1 - side] is entry:
                self._rotate(parent, side)
                entry, parent = parent, entry
            parent.is_red = False
            upper.is_red = True
            self._rotate(upper, 1 - side)
        if self._root is not None:
            self._root.is_red = False

    def _rotate(self, entry: _TreeEntry, side: int) -> None:
        """Rotate the tree at ``entry`` toward ``side``: the child on the other side takes its place."""
        child = entry.sides[1 - side]
        assert child is not None
        entry.sides[1 - side] = inner = child.sides[side]
        if inner is not None:
            inner.parent = entry
        child.parent = entry.parent
        if entry.parent is None:
            self._root = child
        else:
            entry.parent.sides[int(entry.parent.sides[1] is entry)] = child
        child.sides[side] = entry
        entry.parent = child

    def _in_order(self, entry: _TreeEntry | None) -> Iterator[_Described]:
        if entry is not None:
            yield from self._in_order(entry.sides[0])
            yield entry.node
            yield from self._in_order(entry.sides[1])
