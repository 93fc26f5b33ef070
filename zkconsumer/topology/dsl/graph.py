"""The graph of steps from which a ``StreamsBuilder`` builds a ``Topology``.

Source: Kafka 3.9 org.apache.kafka.streams.kstream.internals.graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.stores.builder import StoreBuilder

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology

#: Function that returns a processor supplier. It is called when the topology is built, because steps that are added
#: later can change the processor.
SupplierFactory = Callable[[], ProcessorSupplier]


class GraphNode:
    """A step in the graph of a ``StreamsBuilder``.

    Args:
        name: name of the step, and of the topology node from which its children receive records.

    Attributes:
        name: same as the argument.
        parents: parent steps, as dict keys, in the order in which they were connected.
        children: child steps, as dict keys.
        priority: position of the step in the order in which steps are written to the topology.
        changes_key: whether the step can change keys.
        changes_value: whether the step changes values, but not keys.
        is_merge: whether the step merges streams.
        allows_null_keys: whether the step is a join that accepts records without a key; upstream repartition steps must
            not drop these records.
        is_versioned: whether the output is a versioned table; None if this depends on the parents.
        grace_ms: stream time between the end of a window and its close, in milliseconds; None if the step is not
            windowed.
        use_versions: function that is called with the name of each versioned parent; None if the step handles all
            parents alike.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.parents: dict[GraphNode, None] = {}
        self.children: dict[GraphNode, None] = {}
        self.priority = 0
        self.changes_key = self.changes_value = self.is_merge = self.allows_null_keys = False
        self.is_versioned: bool | None = None
        self.grace_ms: int | None = None
        self.use_versions: Callable[[str], None] | None = None

    def add_child(self, child: GraphNode) -> None:
        """Connect ``child`` downstream of this step."""
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        """Disconnect ``child`` from this step."""
        del self.children[child]
        del child.parents[self]

    def write(self, topology: Topology) -> None:
        """Add the step's nodes and stores to ``topology``."""

    def _parent_names(self) -> list[str]:
        return [parent.name for parent in self.parents]


class ProcessorGraphNode(GraphNode):
    """A step with one processor.

    Args:
        name: see ``GraphNode``.
        supplier: function that returns the processor supplier.
        connected: names of existing stores that the processor uses.
        stores: function that returns the builders of the stores to add for the processor.
        keeps_keys: see ``Topology.add_processor``.
    """

    def __init__(
        self,
        name: str,
        supplier: SupplierFactory,
        connected: Sequence[str] = (),
        stores: Callable[[], Iterable[StoreBuilder]] = tuple,
        *,
        keeps_keys: bool = False,
    ) -> None:
        super().__init__(name)
        self._keeps_keys = keeps_keys
        self._supplier, self._connected, self._stores = supplier, connected, stores

    def write(self, topology: Topology) -> None:
        """Add the processor and its stores to ``topology``."""
        topology.add_processor(self.name, self._supplier(), *self._parent_names(), keeps_keys=self._keeps_keys)
        if self._connected:
            topology.connect_processor_and_state_stores(self.name, *self._connected)
        for store in self._stores():
            topology.add_state_store(store, self.name)


class StateStoreGraphNode(GraphNode):
    """A step that adds a state store."""

    def __init__(self, builder: StoreBuilder) -> None:
        super().__init__(builder.name)
        self._builder = builder

    def write(self, topology: Topology) -> None:
        """Add the store to ``topology``."""
        topology.add_state_store(self._builder)
