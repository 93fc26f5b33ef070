"""The graph of the steps of a ``StreamsBuilder``, from which it builds a ``Topology``.

Source: Kafka 3.9 org.apache.kafka.streams.kstream.internals.graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.stores.builder import StoreBuilder

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology

#: Returns the supplier of a node when the topology is built: until then, later steps can change how it works.
SupplierFactory = Callable[[], ProcessorSupplier]


class GraphNode:
    """A step.

    Args:
        name: name of the step; that of the node that its children receive records from.

    Attributes:
        name: see above.
        parents: the steps before, as keys, in the order in which they were connected.
        children: the steps after.
        priority: the order in which steps are written.
        changes_key: whether the keys of the output differ from those of the input.
        changes_value: whether only the values differ.
        is_merge: whether the step merges streams.
        allows_null_keys: whether a join accepts records without a key, so that repartitioning must not drop them.
        is_versioned: whether the output is that of a versioned store; None if that depends on the steps before.
        grace_ms: milliseconds of stream time from the end of a window until it is closed; None without windows.
        use_versions: called with the name of each step before whose output is versioned; None if that changes nothing.
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
        """Connect a step after this one."""
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        """Disconnect a step."""
        del self.children[child]
        del child.parents[self]

    def write(self, topology: Topology) -> None:
        """Add the nodes and stores of the step to a topology."""

    def _parent_names(self) -> list[str]:
        return [parent.name for parent in self.parents]


class ProcessorGraphNode(GraphNode):
    """A step with one processor.

    Args:
        name: see ``GraphNode``.
        supplier: returns the supplier of its processor.
        connected: names of existing stores that the processor uses.
        stores: stores that are added for the processor.
    """

    def __init__(
        self,
        name: str,
        supplier: SupplierFactory,
        connected: Sequence[str] = (),
        stores: Callable[[], Iterable[StoreBuilder]] = tuple,
    ) -> None:
        super().__init__(name)
        self._supplier, self._connected, self._stores = supplier, connected, stores

    def write(self, topology: Topology) -> None:
        """Add the processor."""
        topology.add_processor(self.name, self._supplier(), *self._parent_names())
        if self._connected:
            topology.connect_processor_and_state_stores(self.name, *self._connected)
        for store in self._stores():
            topology.add_state_store(store, self.name)


class StateStoreGraphNode(GraphNode):
    """A store that the user added."""

    def __init__(self, builder: StoreBuilder) -> None:
        super().__init__(builder.name)
        self._builder = builder

    def write(self, topology: Topology) -> None:
        """Add the store."""
        topology.add_state_store(self._builder)
