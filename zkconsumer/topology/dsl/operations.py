"""Table operations of a ``StreamsBuilder``. Downstream steps can require a table to be materialized.

Source: Kafka 3.9 KTableProcessorSupplier, KStreamAggProcessorSupplier and KTableSource.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from zkconsumer.topology.dsl.stateless import Predicate
from zkconsumer.topology.dsl.tables import FilterTable, MapTableValues, RegroupTable, TableSource
from zkconsumer.topology.dsl.views import FilterView, MapView, StoreView, View
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.processor import ProcessorSupplier


class SourceTable(Protocol):
    """The table on which an operation was called. ``KTable`` implements it."""

    @property
    def name(self) -> str:
        """Name of the node from which downstream steps receive changes."""

    def view(self) -> View:
        """Return a view of the table's values; see ``TableOperation``."""

    def send_old_values(self, *, force: bool) -> bool:
        """Make the table's operation forward old values, if possible; see ``TableOperation``."""


class TableOperation(ABC):
    """An operation whose result is a table.

    Attributes:
        sends_old: whether old values are forwarded along with new values.
    """

    sends_old = False

    @abstractmethod
    def send_old_values(self, *, force: bool) -> bool:
        """Forward old values along with new values, if possible.

        Args:
            force: whether to materialize the table, or a table from which it is derived, if necessary.

        Returns:
            whether old values are forwarded.
        """

    @abstractmethod
    def view(self) -> View:
        """Return a view of the table's values. This materializes the table of a ``SourceOperation``."""

    @abstractmethod
    def create_supplier(self) -> ProcessorSupplier:
        """Return the processor supplier. This method is called after all steps have been added."""

    def use_versions(self, parent: str) -> None:  # noqa: B027
        """Mark a parent table as versioned.

        Args:
            parent: name of the parent's step.
        """


class SourceOperation(TableOperation):
    """A table that is read from a topic, or converted from a stream.

    Args:
        store: name of the table's store.
        is_materialized: whether the store is created even if no step needs it.
    """

    def __init__(self, store: str, is_materialized: bool) -> None:
        self._store, self.is_materialized = store, is_materialized

    def send_old_values(self, *, force: bool) -> bool:
        """See ``TableOperation``."""
        if not force and not self.is_materialized:
            return False
        self.sends_old = self.is_materialized = True
        return True

    def view(self) -> View:
        """See ``TableOperation``."""
        self.is_materialized = True
        return StoreView(self._store)

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(TableSource, self._store if self.is_materialized else None, self.sends_old)


class AggregateOperation(TableOperation):
    """An aggregation of a grouped stream or grouped table.

    Args:
        view: view of the aggregation's store.
        create: function that returns a processor, given ``sends_old``.
        emit: emit strategy; see ``Emit``.
    """

    def __init__(self, view: View, create: Callable[[bool], Any], emit: Emit = Emit.ON_UPDATE) -> None:
        self._view, self._create, self.emit = view, create, emit

    def send_old_values(self, *, force: bool) -> bool:  # noqa: ARG002
        """See ``TableOperation``."""
        self.sends_old = True
        return True

    def view(self) -> View:
        """See ``TableOperation``."""
        return self._view

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(self._create, self.sends_old)


class DerivedOperation(TableOperation):
    """An operation that derives each value from the parent table's value.

    Args:
        parent: parent table.
        store: name of the result's store; None if it is not materialized.
    """

    def __init__(self, parent: SourceTable, store: str | None) -> None:
        self._parent, self._store = parent, store

    def send_old_values(self, *, force: bool) -> bool:
        """See ``TableOperation``."""
        if self._store is not None or self._parent.send_old_values(force=force):
            self.sends_old = True
        return self.sends_old

    def view(self) -> View:
        """See ``TableOperation``."""
        return self._derive_view(self._parent.view()) if self._store is None else StoreView(self._store)

    @abstractmethod
    def _derive_view(self, parent: View) -> View:
        """Return the view of a table without a store, derived from the ``parent`` view."""


class FilterOperation(DerivedOperation):
    """``filter`` and ``filter_not`` on a table."""

    def __init__(self, parent: SourceTable, store: str | None, predicate: Predicate, is_negated: bool) -> None:
        super().__init__(parent, store)
        self._predicate, self._is_negated, self._is_versioned = predicate, is_negated, False
        self.sends_old = parent.send_old_values(force=False)

    def use_versions(self, parent: str) -> None:  # noqa: ARG002
        """See ``TableOperation``."""
        self._is_versioned = True

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(FilterTable, self._store, self.sends_old, self._predicate, self._is_negated, self._is_versioned)

    def _derive_view(self, parent: View) -> View:
        return FilterView(parent, self._predicate, self._is_negated)


class MapOperation(DerivedOperation):
    """``map_values`` on a table."""

    def __init__(self, parent: SourceTable, store: str | None, mapper: Callable[[Any, Any], Any]) -> None:
        super().__init__(parent, store)
        self._mapper = mapper

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(MapTableValues, self._store, self.sends_old, self._mapper)

    def _derive_view(self, parent: View) -> View:
        return MapView(parent, self._mapper)


class RegroupOperation:
    """``group_by`` on a table. It always needs old values."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper, self._is_versioned = mapper, False

    def use_versions(self, parent: str) -> None:  # noqa: ARG002
        """See ``TableOperation``."""
        self._is_versioned = True

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(RegroupTable, self._mapper, self._is_versioned)
