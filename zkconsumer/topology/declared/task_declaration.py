"""The declaration of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkconsumer.message import TopicPartition
from zkconsumer.topology.declared.nodes import Node
from zkconsumer.topology.stores.builder import StoreBuilder


class TaskDeclaration(NamedTuple):
    """Declaration of a sub-topology task.

    Attributes:
        task_id: sub-topology number and partition number, such as ``0_3``; ``global`` for a global store.
        nodes: nodes of the sub-topology, parents before children.
        stores: stores that are connected to the nodes.
        sources: source node name for each partition.
        fingerprint: fingerprint of the sub-topology.
    """

    task_id: str
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...]
    sources: Mapping[TopicPartition, str]
    fingerprint: str
