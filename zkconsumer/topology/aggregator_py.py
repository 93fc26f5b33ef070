"""``RecordAggregator`` in Python; ``_loop.c`` has the same class.

Source: Kafka 3.9 KStreamAggregate and KStreamReduce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.topology.loop_py import Record

#: Initializer and aggregator; see ``RecordAggregator``.
Functions = tuple[Callable[[], Any] | None, Callable[[Any, Any, Any], Any] | None]


def aggregate_value(functions: Functions, record: Record, found: tuple[Any, int] | None) -> tuple[Any, Any, int]:
    """Return the old aggregate, the new one and its timestamp.

    Args:
        functions: see ``RecordAggregator``.
        record: the record.
        found: the aggregate in the store with its timestamp, or None.
    """
    initializer, aggregator = functions
    key, value, timestamp = record.key, record.value, record.timestamp
    old: Any
    old, latest = found or (None, timestamp)
    if old is not None:
        timestamp = max(timestamp, latest)
    elif initializer is not None:
        old = initializer()
    if aggregator is None:
        return old, old + 1, timestamp
    if old is None and initializer is None:
        return old, value, timestamp
    return old, aggregator(key, value, old), timestamp


class RecordAggregator:
    """Aggregates the values of each key in a store of values with timestamps.

    Args:
        store: ``get`` and ``put`` of the store.
        functions: initializer and aggregator. The initializer returns the aggregate before the first record; None
            starts with the first value. The aggregator returns the new aggregate for key, value and aggregate; None
            counts.
        pair_type: class of values with timestamps, a named tuple.
        changes: ``forward``, ``change_type`` and ``sends_old``. ``forward`` receives a record with each change; None
            forwards nothing. ``change_type`` is a named tuple of the new value, the old one, and True. ``sends_old``:
            whether changes have the old value.
        drop: called without arguments for a record without key or value.
    """

    __slots__ = ("_changes", "_drop", "_functions", "_pair_type", "_store")

    def __init__(
        self,
        store: tuple[Callable[[Any], Any], Callable[[Any, Any], object]],
        functions: Functions,
        pair_type: Callable[[Any, int], Any],
        changes: tuple[Callable[[Record], object] | None, Callable[[Any, Any, bool], Any], bool],
        drop: Callable[[], object],
    ) -> None:
        self._store, self._functions, self._pair_type = store, functions, pair_type
        self._changes, self._drop = changes, drop

    def __call__(self, record: Record) -> None:
        key, headers = record.key, record.headers
        if key is None or record.value is None:
            self._drop()
            return
        get, put = self._store
        old, new, timestamp = aggregate_value(self._functions, record, get(key))
        put(key, None if new is None else self._pair_type(new, timestamp))
        forward, change_type, sends_old = self._changes
        if forward is not None:
            forward(Record(key, change_type(new, old if sends_old else None, True), timestamp, headers))
