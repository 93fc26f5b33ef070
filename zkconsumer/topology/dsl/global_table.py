"""``GlobalKTable``: a table that contains all partitions of a topic, and that every task can access.

Source: Kafka 3.9 GlobalKTableImpl.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.topology.dsl.step_graph import StepGraph
from zkconsumer.topology.dsl.views import StoreView


@dataclass(frozen=True)
class GlobalKTable:
    """A table that streams can join by any key; see ``StreamsBuilder.global_table``.

    Attributes:
        store: name of the table's global store.
        graph: steps of the ``StreamsBuilder``.
    """

    store: str
    graph: StepGraph = field(repr=False, compare=False)

    @property
    def view(self) -> StoreView:
        """A view of the table. Processors need not be connected to its global store."""
        return StoreView(self.store)
