"""The declaration of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkconsumer.message import TopicPartition
from zkconsumer.topology.nodes import Node
from zkconsumer.topology.stores.builder import StoreBuilder


class TaskDeclaration(NamedTuple):
    """A task of a sub-topology.

    Attributes:
        task_id: number of the sub-topology and of the partition, such as ``0_3``.
        nodes: the nodes of the sub-topology, parents before children.
        stores: the stores that are connected to them.
        sources: name of the source node of each partition.
        fingerprint: fingerprint of the sub-topology.
    """

    task_id: str
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...]
    sources: Mapping[TopicPartition, str]
    fingerprint: str
