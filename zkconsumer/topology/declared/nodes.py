"""The declared nodes of a topology, and their grouping into sub-topologies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkconsumer.errors import TopologyError
from zkconsumer.topology.checks import check_functions, check_name
from zkconsumer.topology.loop.records import Record, RecordMetadata
from zkconsumer.topology.processor import Processor, ProcessorSupplier
from zkconsumer.topology.serdes import Deserializer, Serializer
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.timestamps import TimestampExtractor

#: Function that returns the target topic, given a record and the metadata of its source record.
TopicExtractor = Callable[[Record, RecordMetadata], str]

#: Function that returns a partition, given topic, key, value and number of partitions. If it returns
#: None, the producer selects the partition. If it returns a collection, the record is sent to each partition in it; an
#: empty collection drops the record.
Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]


@dataclass(frozen=True)
class SourceNode:
    """A source node. Either ``topics`` or ``pattern`` (a Java regular expression) is set."""

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
    """A processor node.

    Attributes:
        name: name of the node.
        parents: names of the parent nodes.
        supplier: class or function that returns a new processor on each call.
        stores: names of the stores, in the order in which they were connected.
        keeps_keys: whether the processor must forward records with the keys that it received. It is not part of the
            fingerprint, because it does not affect the state of tasks.
    """

    name: str
    parents: tuple[str, ...]
    supplier: ProcessorSupplier
    stores: tuple[str, ...] = ()
    keeps_keys: bool = field(default=False, metadata={"is_fingerprinted": False})


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


class GlobalStore(NamedTuple):
    """A global store: its builder, and the nodes that update it from a topic."""

    builder: StoreBuilder
    source: SourceNode
    processor: ProcessorNode


class UnionFind:
    """Disjoint sets of connected names. Source: Kafka 3.9 QuickUnion."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a name as a set of its own."""
        self._parents[name] = name

    def root(self, name: str) -> str:
        """Return the representative of the set that contains ``name``."""
        while self._parents[name] != name:
            name = self._parents[name]
        return name

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Merge the set that contains ``name`` with the sets that contain ``others``."""
        for other in others:
            self._parents[self.root(name)] = self.root(other)


def group_nodes(nodes: Mapping[str, Node], connected: UnionFind) -> list[list[str]]:
    """Return the node names of each connected component, in the order in which the nodes were added."""
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(connected.root(name), []).append(name)
    return list(groups.values())


def check_parents(
    kind: str, name: str, parents: tuple[str, ...], nodes: Mapping[str, Node], global_processors: Collection[str]
) -> None:
    """Raise TopologyError if a new processor or sink cannot be a child of ``parents``.

    Args:
        kind: ``processor`` or ``sink``.
        name: name of the new node.
        parents: names of the parent nodes.
        nodes: nodes by name.
        global_processors: names of the processors that update global stores.
    """
    if not parents:
        raise TopologyError(f"{kind} {name!r} needs at least one parent")
    for parent in parents:
        check_name("parent", parent)
        if parent == name:
            raise TopologyError(f"{kind} {name!r} cannot be its own parent")
        if parent not in nodes:
            raise TopologyError(f"{kind} {name!r}: parent {parent!r} has not been added yet")
        if isinstance(nodes[parent], SinkNode):
            raise TopologyError(f"{kind} {name!r}: parent {parent!r} is a sink and cannot have children")
        if parent in global_processors:
            raise TopologyError(f"{kind} {name!r}: parent {parent!r} updates a global store and cannot have children")


def check_connection(nodes: Mapping[str, Node], processor: str, store: str) -> None:
    """Raise TopologyError if ``store`` cannot be connected to the node ``processor``."""
    check_name("processor", processor)
    node = nodes.get(processor)
    if node is None:
        raise TopologyError(
            f"processor {processor!r} has not been added yet, so store {store!r} cannot be connected to it"
        )
    if not isinstance(node, ProcessorNode):
        kind = "source" if isinstance(node, SourceNode) else "sink"
        raise TopologyError(f"store {store!r} cannot be connected to {kind} {processor!r}; connect it to a processor")


def check_supplier(name: str, supplier: ProcessorSupplier) -> None:
    """Raise TopologyError if ``supplier`` does not return a new ``Processor`` on each call."""
    if not callable(supplier):
        raise TopologyError(f"processor {name!r}: supplier must be a class or function, got {supplier!r}")
    try:
        first, second = supplier(), supplier()
    except Exception as error:
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} failed: {error}") from error
    if first is second:
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} must return a new object on each call")
    if not isinstance(first, Processor):
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} must return a Processor, got {first!r}")


def check_offset_reset(where: str, offset_reset: Any) -> None:
    """Raise TopologyError unless ``offset_reset`` is a start position or None."""
    if offset_reset not in (None, "earliest", "latest"):
        raise TopologyError(f"{where}: offset_reset must be 'earliest' or 'latest', got {offset_reset!r}")


def check_global_store(builder: StoreBuilder) -> None:
    """Raise TopologyError if the changes of a global store are logged."""
    if builder.logging:
        raise TopologyError(f"global store {builder.name!r}: logging must be False, got {builder.logging!r}")
