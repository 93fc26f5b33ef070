"""The stores of tables, and how their changes are forwarded.

Source: Kafka 3.9 KeyValueStoreWrapper, TimestampedTupleForwarder, TimestampedCacheFlushListener and
SessionCacheFlushListener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from zkconsumer.topology.aggregator_py import Functions
from zkconsumer.topology.loop import RecordAggregator
from zkconsumer.topology.processor import ProcessorContext
from zkconsumer.topology.records import Change, Header, Record
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.versioned_store import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore


class TableChange(NamedTuple):
    """A change of a key of a table: the value of the records between the steps of a table.

    Attributes:
        new: the new value; None if the key was deleted.
        old: the value before; None if there was none, or if no later step needs it.
        is_latest: whether ``new`` is the latest version of the key.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


class TableStore:
    """A timestamped or versioned key-value store.

    Args:
        context: context of the processor.
        name: name of the store.
    """

    def __init__(self, context: ProcessorContext, name: str) -> None:
        self.store = context.get_state_store(name)
        self.is_versioned = isinstance(self.store, VersionedKeyValueStore)
        if not self.is_versioned:
            self.get = self.store.get  # type: ignore[method-assign]  # avoids a Python call per record

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of a key, or None."""
        found = self.store.get(key)
        return ValueAndTimestamp(found.value, found.timestamp) if found else None

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        """Return the value of a key in a versioned store that was valid at a time in milliseconds, or None."""
        found = self.store.get(key, timestamp)
        return ValueAndTimestamp(found.value, found.timestamp) if found else None

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Set the value of a key.

        Returns:
            whether it is the latest version; None if a versioned store dropped it.
        """
        if not self.is_versioned:
            self.store.put(key, None if value is None else ValueAndTimestamp(value, timestamp))
            return True
        valid_to = self.store.put(key, value, timestamp)
        return None if valid_to == NOT_PUT else bool(valid_to == VALID_TO_UNDEFINED)


class ChangeForwarder:
    """Forwards the changes of a store, unless it is cached: then the cache forwards them.

    Args:
        context: context of the processor.
        store: the store; None to forward all changes.
        sends_old: whether the changes contain old values.

    Attributes:
        is_cached: whether the cache forwards the changes.
        sends_old: whether the changes contain old values.
    """

    def __init__(self, context: ProcessorContext, store: Any, sends_old: bool) -> None:
        self._context, self.sends_old = context, sends_old
        listen = getattr(store, "set_flush_listener", None)
        self.is_cached = listen is not None and listen(self._forward_cached, sends_old)

    def forward(self, key: Any, change: TableChange, timestamp: int, headers: Iterable[Header] = ()) -> None:
        """Forward a change.

        Args:
            key: the key of the table.
            change: the change.
            timestamp: milliseconds since the epoch.
            headers: headers of the record that caused it.
        """
        if not self.is_cached:
            if not self.sends_old:
                change = TableChange(change.new, None, change.is_latest)
            self._context.forward(Record(key, change, timestamp, headers))

    def _forward_cached(self, record: Record) -> None:
        new, old = record.value
        timestamp = record.timestamp if new is None else new.timestamp
        change = TableChange(None if new is None else new.value, None if old is None else old.value)
        self._context.forward(Record(record.key, change, timestamp, record.headers))


class SessionForwarder(ChangeForwarder):
    """Forwards the changes of a session store. Their timestamps are the ends of the sessions."""

    def _forward_cached(self, record: Record) -> None:
        change: Change = record.value
        self._context.forward(Record(record.key, TableChange(change.new, change.old), record.key.end, record.headers))


class TableOutput(TableStore):
    """The store of a table, whose changes are forwarded.

    Args:
        context: context of the processor.
        name: name of the store.
        sends_old: whether the changes contain old values.
    """

    def __init__(self, context: ProcessorContext, name: str, sends_old: bool) -> None:
        super().__init__(context, name)
        self._context = context
        self._forwarder = ChangeForwarder(context, self.store, sends_old)

    def create_aggregator(
        self,
        functions: Functions,
        drop: Callable[[], object],
    ) -> RecordAggregator:
        """Return a function that aggregates records in the store, which must not be versioned.

        Args:
            functions: see ``RecordAggregator``.
            drop: called for a record without key or value.
        """
        forward = None if self._forwarder.is_cached else self._context.forward
        return RecordAggregator(
            (self.store.get, self.store.put),
            functions,
            ValueAndTimestamp,
            (forward, TableChange, self._forwarder.sends_old),
            drop,
        )

    def update(self, key: Any, new: Any, old: Any, timestamp: int, headers: Iterable[Header]) -> None:
        """Set the value of a key, and forward the change, unless a versioned store dropped it."""
        is_latest = self.put(key, new, timestamp)
        if is_latest is not None:
            self._forwarder.forward(key, TableChange(new, old, is_latest), timestamp, headers)
