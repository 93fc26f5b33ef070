"""``GlobalKTable``: a table of which each task has all partitions.

Source: Kafka 3.9 GlobalKTableImpl.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.topology.dsl.views import StoreView


@dataclass(frozen=True)
class GlobalKTable:
    """A table that streams can be joined with by any key; see ``StreamsBuilder.global_table``.

    Attributes:
        store: name of its store.
    """

    store: str

    @property
    def view(self) -> StoreView:
        """A view of the values, which needs no connected store."""
        return StoreView(self.store)
