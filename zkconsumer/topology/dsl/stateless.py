"""Stateless processors.

See docs/decisions/33-steps-by-record.rst.

Source: Kafka 3.9 KStreamFilter, KStreamMap, KStreamFlatMap, KStreamMapValues, KStreamFlatMapValues, KStreamBranch,
KStreamPeek, ForeachProcessor and PassThrough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.type_variables import K, V

#: Function that returns whether a record is accepted, given its key and value.
Predicate = Callable[[K, V], Any]
#: Function that is called with the key and value of a record.
Action = Callable[[K, V], object]


class StatelessProcessor(Processor):
    """Base class of processors without state."""

    def init(self, context: ProcessorContext) -> None:
        """Store the ``forward`` method of the context."""
        self._forward = context.forward


class PassThrough(StatelessProcessor):
    """Forwards each record unchanged."""

    def process(self, record: Record) -> None:
        """Forward the record."""
        self._forward(record)


class DropNullKeys(StatelessProcessor):
    """Forwards the records that have a key."""

    def process(self, record: Record) -> None:
        """Forward the record unless its key is None."""
        if record.key is not None:
            self._forward(record)


class Filter(StatelessProcessor):
    """Forwards the records that a predicate accepts.

    Args:
        predicate: function that returns whether to accept a record, given its key and value.
        is_negated: whether to forward the rejected records instead.
    """

    def __init__(self, predicate: Predicate, is_negated: bool) -> None:
        self._predicate, self._is_negated = predicate, is_negated

    def process(self, record: Record) -> None:
        """Forward the record if it passes the filter."""
        if bool(self._predicate(record.key, record.value)) is not self._is_negated:
            self._forward(record)


class Map(StatelessProcessor):
    """Replaces the key and value of each record."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the key and value that ``mapper`` returns."""
        key, value = self._mapper(record.key, record.value)
        self._forward(Record(key, value, record.timestamp, record.headers))


class SelectKey(StatelessProcessor):
    """Replaces the key of each record."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the key that ``mapper`` returns."""
        self._forward(record.with_key(self._mapper(record.key, record.value)))


class FlatMap(StatelessProcessor):
    """Replaces each record with any number of records."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each key-value pair that ``mapper`` returns."""
        for key, value in self._mapper(record.key, record.value):
            self._forward(Record(key, value, record.timestamp, record.headers))


class MapValues(StatelessProcessor):
    """Replaces the value of each record with the result of ``mapper(value)``."""

    def __init__(self, mapper: Callable[[Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the value that ``mapper`` returns."""
        self._forward(record.with_value(self._mapper(record.value)))


class MapValuesWithKey(StatelessProcessor):
    """Replaces the value of each record with the result of ``mapper(key, value)``."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the value that ``mapper`` returns."""
        self._forward(record.with_value(self._mapper(record.key, record.value)))


class FlatMapValues(StatelessProcessor):
    """Replaces each record with one record per value that ``mapper(value)`` returns. The keys do not change."""

    def __init__(self, mapper: Callable[[Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each value that ``mapper`` returns."""
        for value in self._mapper(record.value):
            self._forward(record.with_value(value))


class FlatMapValuesWithKey(StatelessProcessor):
    """Replaces each record with one record per value that ``mapper(key, value)`` returns. The keys do not change."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each value that ``mapper`` returns."""
        for value in self._mapper(record.key, record.value):
            self._forward(record.with_value(value))


class Peek(StatelessProcessor):
    """Calls a function for each record, and forwards the record."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def process(self, record: Record) -> None:
        """Call ``action(key, value)``, and forward the record."""
        self._action(record.key, record.value)
        self._forward(record)


class ForEach(Processor):
    """Calls a function for each record."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def process(self, record: Record) -> None:
        """Call ``action(key, value)``."""
        self._action(record.key, record.value)


class Branch(StatelessProcessor):
    """Forwards each record to the first child whose predicate accepts it, or else to the default branch, if any.

    Args:
        predicates: predicates, in the order of their evaluation.
        children: names of the child nodes; one more than ``predicates`` if there is a default branch.
    """

    def __init__(self, predicates: Sequence[Predicate], children: Sequence[str]) -> None:
        self._predicates, self._children = predicates, children

    def process(self, record: Record) -> None:
        """Forward the record to the first matching child, or drop it if there is none."""
        for number, predicate in enumerate(self._predicates):
            if predicate(record.key, record.value):
                self._forward(record, self._children[number])
                return
        if len(self._children) > len(self._predicates):
            self._forward(record, self._children[-1])
