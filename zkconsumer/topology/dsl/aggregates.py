"""The processor and the functions for ``count``, ``reduce`` and ``aggregate`` on grouped streams.

Source: Kafka 3.9 KStreamAggregate and KStreamReduce.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from zkconsumer.topology.dropped_records import drop_incomplete
from zkconsumer.topology.dsl.table_store import TableOutput
from zkconsumer.topology.loop.aggregator_py import aggregate_value
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.type_variables import A, K, V

#: Function that returns the initial aggregate.
Initializer = Callable[[], A]
#: Function that returns the new aggregate, given a key, a value and the current aggregate.
Aggregator = Callable[[K, V, A], A | None]

#: Function that combines the current result with a new value.
Reducer = Callable[[V, V], V | None]


def zero() -> int:
    """Return 0, the initial count."""
    return 0


def add_one(_key: Any, _value: Any, count: int) -> int:
    """Return the count, incremented by 1."""
    return count + 1


def nothing() -> None:
    """Return None, the initial result of ``reduce``."""


def reduce_values(reducer: Reducer[Any], _key: Any, value: Any, so_far: Any) -> Any:
    """Combine the current result and a value with ``reducer``. The first value of a key becomes its first result."""
    return value if so_far is None else reducer(so_far, value)


class Aggregate(Processor):
    """Aggregates values by key. Records without a key or value are dropped and counted.

    If the store is not versioned, a ``RecordAggregator`` replaces ``process``.

    Args:
        store: name of the store.
        initializer: function that returns the initial aggregate; None if the first value is the initial aggregate, as
            in ``reduce``.
        aggregator: function that returns the new aggregate, given the key, value and current aggregate.
        sends_old: whether downstream steps need old values.
    """

    def __init__(self, store: str, initializer: Initializer | None, aggregator: Aggregator, sends_old: bool) -> None:
        self._name, self._initializer, self._aggregator = store, initializer, aggregator
        self._sends_old = sends_old

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._table = context, TableOutput(context, self._name, self._sends_old)
        if not self._table.is_versioned:
            functions = self._initializer, None if self._aggregator is add_one else self._aggregator
            drop = partial(drop_incomplete, context)
            self.process = self._table.create_aggregator(functions, drop)  # type: ignore[method-assign]

    def process(self, record: Record) -> None:
        """Update the aggregate of the key, and forward the change."""
        if record.key is None or record.value is None:
            drop_incomplete(self._context, record)
            return
        found = self._table.get(record.key)
        old, new, timestamp = aggregate_value((self._initializer, self._aggregator), record, found)
        self._table.update(record.key, new, old, timestamp, record.headers)
