"""The stores of tables, and the classes that forward their changes.

Source: Kafka 3.9 KeyValueStoreWrapper, TimestampedTupleForwarder, TimestampedCacheFlushListener and
SessionCacheFlushListener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from zkconsumer.topology.loop.aggregator_py import Functions
from zkconsumer.topology.loop.native import RecordAggregator
from zkconsumer.topology.loop.records import Change, Header, Record
from zkconsumer.topology.processor import ProcessorContext
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.versioned_store import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore


class TableChange(NamedTuple):
    """A table change: the new and old value of a key. Table steps exchange records whose value is a ``TableChange``.

    Attributes:
        new: new value; None if the key was deleted.
        old: previous value; None if there was none, or if no downstream step needs it.
        is_latest: whether ``new`` is the latest version of the key.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


class TableStore:
    """The timestamped or versioned key-value store of a table.

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
        """Return the latest value of ``key``, or None if there is none."""
        found = self.store.get(key)
        return ValueAndTimestamp(found.value, found.timestamp) if found else None

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        """Return the value of ``key`` that was valid at ``timestamp``, or None; the store must be versioned."""
        found = self.store.get(key, timestamp)
        return ValueAndTimestamp(found.value, found.timestamp) if found else None

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Set the value of ``key``; a value of None deletes the key.

        Returns:
            whether the value is the latest version; None if a versioned store dropped it.
        """
        if not self.is_versioned:
            self.store.put(key, None if value is None else ValueAndTimestamp(value, timestamp))
            return True
        valid_to = self.store.put(key, value, timestamp)
        return None if valid_to == NOT_PUT else bool(valid_to == VALID_TO_UNDEFINED)


class ChangeForwarder:
    """Forwards a store's changes downstream. If the store is cached, changes are forwarded when the cache is flushed.

    Args:
        context: context of the processor.
        store: store whose flush listener is set if it is cached; None forwards all changes directly.
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
        """Forward a change, unless the cache forwards it.

        Args:
            key: table key.
            change: change to forward.
            timestamp: timestamp of the change, in milliseconds since the epoch.
            headers: headers of the record that caused the change.
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
    """Forwards a session store's changes downstream. The timestamp of a change is the end of its session."""

    def _forward_cached(self, record: Record) -> None:
        change: Change = record.value
        self._context.forward(Record(record.key, TableChange(change.new, change.old), record.key.end, record.headers))


class TableOutput(TableStore):
    """A table store that forwards its changes downstream.

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
        drop: Callable[[Record], object],
    ) -> RecordAggregator:
        """Return a ``RecordAggregator`` for the store. The store must not be versioned.

        Args:
            functions: see ``RecordAggregator``.
            drop: function that is called with each record without a key or value.
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
        """Set the value of ``key``. Forward the change, unless a versioned store dropped the value."""
        is_latest = self.put(key, new, timestamp)
        if is_latest is not None:
            self._forwarder.forward(key, TableChange(new, old, is_latest), timestamp, headers)
