"""Views, which declare how processors read the values of a table.

Source: Kafka 3.9 KTableValueGetterSupplier and its implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from zkconsumer.topology.dsl.stateless import Predicate
from zkconsumer.topology.dsl.table_store import TableStore
from zkconsumer.topology.processor import ProcessorContext
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp


class OpenView(Protocol):
    """The values of a table, as read by a task."""

    @property
    def is_versioned(self) -> bool:
        """Whether ``get_as_of`` can be called."""

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value of ``key``, or None if there is none."""

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        """Return the value of ``key`` that was valid at ``timestamp`` (in milliseconds), or None."""


class View(Protocol):
    """Declares how the processors of downstream steps read a table."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores to which a processor that opens the view must be connected."""

    def open(self, context: ProcessorContext) -> OpenView:
        """Return the table's values; called by a processor's ``init``."""


@dataclass(frozen=True)
class _OneStore:
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The name of the store."""
        return (self.store,)


@dataclass(frozen=True)
class StoreView(_OneStore):
    """The values in a key-value store."""

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the store."""
        return TableStore(context, self.store)


@dataclass(frozen=True)
class _DerivedView(ABC):
    parent: View

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the parent's stores."""
        return self.parent.stores

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the parent view."""
        return _Computed(self.parent.open(context), self._compute)

    @abstractmethod
    def _compute(self, key: Any, found: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        """Derive the value of ``key`` from the parent's value ``found``."""


@dataclass(frozen=True)
class FilterView(_DerivedView):
    """The values of a table that pass a filter."""

    predicate: Predicate
    is_negated: bool

    def _compute(self, key: Any, found: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        if found is None or bool(self.predicate(key, found.value)) is self.is_negated:
            return None
        return found


@dataclass(frozen=True)
class MapView(_DerivedView):
    """The values of a table, mapped with ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Any]

    def _compute(self, key: Any, found: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        value = None if found is None else self.mapper(key, found.value)
        return None if found is None or value is None else ValueAndTimestamp(value, found.timestamp)


class _Computed:
    """Values that are derived from another table."""

    def __init__(
        self, parent: OpenView, compute: Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]
    ) -> None:
        self._parent, self._compute, self.is_versioned = parent, compute, parent.is_versioned

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value of ``key``, or None if there is none."""
        return self._compute(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        """Return the value of ``key`` that was valid at ``timestamp`` (in milliseconds), or None."""
        return self._compute(key, self._parent.get_as_of(key, timestamp))


@dataclass(frozen=True)
class WindowView(_OneStore):
    """The values in a window store, by windowed key."""

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the store."""
        store = context.get_state_store(self.store)
        return _ByWindow(lambda key: store.fetch(key.key, key.start))


@dataclass(frozen=True)
class SessionView(_OneStore):
    """The values in a session store, by windowed key."""

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the store."""
        store = context.get_state_store(self.store)

        def fetch(key: Any) -> ValueAndTimestamp | None:
            value = store.fetch_session(key.key, key.start, key.end)
            return None if value is None else ValueAndTimestamp(value, key.end)

        return _ByWindow(fetch)


class Unversioned:
    """Base class of ``OpenView`` classes that do not support ``get_as_of``."""

    is_versioned = False

    def get_as_of(self, _key: Any, _timestamp: int) -> ValueAndTimestamp | None:
        """Raise ``NotImplementedError``, because the store is not versioned."""
        raise NotImplementedError("get_as_of() requires a versioned store")


class _ByWindow(Unversioned):
    """Values by windowed key."""

    def __init__(self, get: Callable[[Any], ValueAndTimestamp | None]) -> None:
        self.get = get
