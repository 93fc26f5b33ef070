"""Pure-Python version of the class ``RecordAggregator`` in ``_loop.c``.

See docs/decisions/33-steps-by-record.rst.

Source: Kafka 3.9 KStreamAggregate and KStreamReduce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.topology.loop.loop_py import Record

#: Initializer and aggregator; see ``RecordAggregator``.
Functions = tuple[Callable[[], Any] | None, Callable[[Any, Any, Any], Any] | None]


def aggregate_value(functions: Functions, record: Record, found: tuple[Any, int] | None) -> tuple[Any, Any, int]:
    """Return the old aggregate, the new aggregate and the new timestamp.

    Args:
        functions: see ``RecordAggregator``.
        record: record to aggregate.
        found: stored aggregate and its timestamp; None if there is none.
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
    """Aggregates the values of each key in a timestamped store.

    Args:
        store: ``get`` and ``put`` methods of the store.
        functions: initializer and aggregator. The initializer returns the initial aggregate; if the initializer is
            None, the first value becomes the aggregate. The aggregator is called with key, value and aggregate, and
            returns the new aggregate; if the aggregator is None, records are counted.
        pair_type: named tuple class for a value and its timestamp.
        changes: ``forward``, ``change_type`` and ``sends_old``. ``forward`` is called with a record for each change;
            None disables forwarding. ``change_type`` is the named tuple class of a change, which consists of
            new value, old value and ``is_latest`` (always True). ``sends_old`` specifies whether changes include the
            old value.
        drop: function that is called with each record without a key or value.
    """

    __slots__ = ("_changes", "_drop", "_functions", "_pair_type", "_store")

    def __init__(
        self,
        store: tuple[Callable[[Any], Any], Callable[[Any, Any], object]],
        functions: Functions,
        pair_type: Callable[[Any, int], Any],
        changes: tuple[Callable[[Record], object] | None, Callable[[Any, Any, bool], Any], bool],
        drop: Callable[[Record], object],
    ) -> None:
        self._store, self._functions, self._pair_type = store, functions, pair_type
        self._changes, self._drop = changes, drop

    def __call__(self, record: Record) -> None:
        key, headers = record.key, record.headers
        if key is None or record.value is None:
            self._drop(record)
            return
        get, put = self._store
        old, new, timestamp = aggregate_value(self._functions, record, get(key))
        put(key, None if new is None else self._pair_type(new, timestamp))
        forward, change_type, sends_old = self._changes
        if forward is not None:
            forward(Record(key, change_type(new, old if sends_old else None, True), timestamp, headers))
