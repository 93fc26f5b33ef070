"""Table processors: the table source, ``filter``, ``map_values`` and ``group_by``.

Source: Kafka 3.9 KTableSource, KTableFilter, KTableMapValues and KTableRepartitionMap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.dsl.stateless import Predicate
from zkconsumer.topology.dsl.table_store import TableChange, TableOutput
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext


class TableProcessor(Processor):
    """Base class of processors that forward table changes, and update the table's store if it has one.

    Args:
        store: name of the store; None if the table has no store.
        sends_old: whether downstream steps need old values.
    """

    def __init__(self, store: str | None, sends_old: bool) -> None:
        self._name, self._sends_old = store, sends_old

    def init(self, context: ProcessorContext) -> None:
        """Open the store, if the table has one."""
        self._context = context
        self._store = None if self._name is None else TableOutput(context, self._name, self._sends_old)

    def _update(self, record: Record, change: TableChange) -> None:
        """Update the store if there is one, and forward ``change``."""
        if self._store is None:
            self._context.forward(record.with_value(change))
        else:
            self._store.update(record.key, change.new, change.old, record.timestamp, record.headers)


class TableSource(TableProcessor):
    """Converts records to table changes. Records without a key are dropped and counted.

    For the arguments, see ``TableProcessor``.
    """

    def process(self, record: Record) -> None:
        """Convert the record to a table change, and forward it."""
        if record.key is None:
            self._context.drop(DropReason.NULL_KEY)
            return
        found = None if self._store is None else self._store.get(record.key)
        self._update(record, TableChange(record.value, None if found is None else found.value))


class TableStep(TableProcessor):
    """Base class of processors that derive a table from its parent table. For the arguments, see ``TableProcessor``."""

    def process(self, record: Record) -> None:
        """Compute the new and the old value, and forward the change unless the subclass drops it."""
        change: TableChange = record.value
        new = self._compute(record.key, change.new)
        old = self._find_old(record.key, change) if self._sends_old else None
        if self._is_forwarded(new, old):
            self._update(record, TableChange(new, old, change.is_latest))

    def _compute(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def _is_forwarded(self, _new: Any, _old: Any) -> bool:
        return True

    def _find_old(self, key: Any, change: TableChange) -> Any:
        if self._store is None:
            return self._compute(key, change.old)
        found = self._store.get(key)
        return None if found is None else found.value


class FilterTable(TableStep):
    """Removes the values that a predicate rejects.

    Args:
        store: see ``TableProcessor``.
        sends_old: see ``TableProcessor``.
        predicate: function of key and value that returns whether to keep the value.
        is_negated: whether to remove the accepted values instead.
        is_versioned: whether the parent table is versioned; if so, every change is forwarded.
    """

    def __init__(
        self, store: str | None, sends_old: bool, predicate: Predicate, is_negated: bool, is_versioned: bool
    ) -> None:
        super().__init__(store, sends_old)
        self._predicate, self._is_negated, self._is_versioned = predicate, is_negated, is_versioned

    def _compute(self, key: Any, value: Any) -> Any:
        if value is None or bool(self._predicate(key, value)) is self._is_negated:
            return None
        return value

    def _is_forwarded(self, new: Any, old: Any) -> bool:
        return self._is_versioned or not self._sends_old or new is not None or old is not None


class MapTableValues(TableStep):
    """Replaces each value with the result of ``mapper``.

    Args:
        store: see ``TableProcessor``.
        sends_old: see ``TableProcessor``.
        mapper: function of key and value that returns the new value. Not called for tombstones.
    """

    def __init__(self, store: str | None, sends_old: bool, mapper: Callable[[Any, Any], Any]) -> None:
        super().__init__(store, sends_old)
        self._mapper = mapper

    def _compute(self, key: Any, value: Any) -> Any:
        return None if value is None else self._mapper(key, value)


class RegroupTable(Processor):
    """Forwards table changes with new keys and values to an aggregation.

    Args:
        mapper: function that returns the new key and value, given the key and value.
        is_versioned: whether the parent table is versioned; if so, changes to older versions are ignored.
    """

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]], is_versioned: bool) -> None:
        self._mapper, self._is_versioned = mapper, is_versioned

    def init(self, context: ProcessorContext) -> None:
        """Store the context."""
        self._context = context

    def process(self, record: Record) -> None:
        """Forward the removal of the old value and the addition of the new value.

        Raises:
            StreamsError: the record has no key.
        """
        if record.key is None:
            raise StreamsError(f"node {self._context.node_name!r}: records of a grouped table must have a key")
        change: TableChange = record.value
        if self._is_versioned and not change.is_latest:
            return
        new, old = self._map(record.key, change.new), self._map(record.key, change.old)
        if new is not None and old is not None and new[0] == old[0]:
            self._forward(record, new[0], TableChange(new[1], old[1], change.is_latest))
            return
        if old is not None:
            self._forward(record, old[0], TableChange(None, old[1], change.is_latest))
        if new is not None:
            self._forward(record, new[0], TableChange(new[1], None, change.is_latest))

    def _map(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        pair = None if value is None else self._mapper(key, value)
        return None if pair is None or pair[0] is None or pair[1] is None else pair

    def _forward(self, record: Record, key: Any, change: TableChange) -> None:
        self._context.forward(Record(key, change, record.timestamp, record.headers))
