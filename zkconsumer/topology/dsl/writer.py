"""Writes the steps of a ``StreamsBuilder`` to a topology.

Source: Kafka 3.9 InternalStreamsBuilder.buildAndOptimizeTopology.
"""

from __future__ import annotations

from zkconsumer.topology.builder import Topology
from zkconsumer.topology.declared.nodes import SourceNode
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.step_graph import StepGraph
from zkconsumer.topology.loop.java_order import PriorityQueue


def write(graph: StepGraph) -> Topology:
    """Return a topology that contains all steps.

    Steps are written in priority order, but parents are always written before their children.
    """
    topology, written = Topology(), {graph.root}
    queue: PriorityQueue[GraphNode] = PriorityQueue(lambda node: node.priority)
    for child in graph.root.children:
        queue.add(child)
    while (node := queue.poll()) is not None:
        if node not in written and written.issuperset(node.parents):
            node.write(topology)
            written.add(node)
        for child in node.children:
            queue.add(child)
    for names in graph.copartitioned:
        sources = [name for name in topology.nodes if name in names and isinstance(topology.nodes[name], SourceNode)]
        if len(sources) > 1:
            topology.copartition(*sources)
    return topology
