"""Processors without state.

Source: Kafka 3.9 KStreamFilter, KStreamMap, KStreamFlatMap, KStreamMapValues, KStreamFlatMapValues, KStreamBranch,
KStreamPeek, ForeachProcessor and PassThrough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.records import Record

#: Returns whether a key and a value are accepted.
Predicate = Callable[[Any, Any], Any]
#: Called with a key and a value.
Action = Callable[[Any, Any], object]


class StatelessProcessor(Processor):
    """Keeps the function that forwards records."""

    def init(self, context: ProcessorContext) -> None:
        """Keep the function."""
        self._forward = context.forward


class PassThrough(StatelessProcessor):
    """Forwards each record."""

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
        predicate: the predicate.
        is_negated: forward the others instead.
    """

    def __init__(self, predicate: Predicate, is_negated: bool) -> None:
        self._predicate, self._is_negated = predicate, is_negated

    def process(self, record: Record) -> None:
        """Forward the record if it is accepted."""
        if bool(self._predicate(record.key, record.value)) is not self._is_negated:
            self._forward(record)


class Map(StatelessProcessor):
    """Replaces keys and values."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the key and value that the mapper returns."""
        key, value = self._mapper(record.key, record.value)
        self._forward(Record(key, value, record.timestamp, record.headers))


class SelectKey(StatelessProcessor):
    """Replaces keys."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the key that the mapper returns."""
        self._forward(record.with_key(self._mapper(record.key, record.value)))


class FlatMap(StatelessProcessor):
    """Replaces each record by any number of keys and values."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each key and value that the mapper returns."""
        for key, value in self._mapper(record.key, record.value):
            self._forward(Record(key, value, record.timestamp, record.headers))


class MapValues(StatelessProcessor):
    """Replaces values."""

    def __init__(self, mapper: Callable[[Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the value that the mapper returns."""
        self._forward(record.with_value(self._mapper(record.value)))


class MapValuesWithKey(StatelessProcessor):
    """Replaces values by a function of key and value."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward the record with the value that the mapper returns."""
        self._forward(record.with_value(self._mapper(record.key, record.value)))


class FlatMapValues(StatelessProcessor):
    """Replaces each record by any number of values with its key."""

    def __init__(self, mapper: Callable[[Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each value that the mapper returns."""
        for value in self._mapper(record.value):
            self._forward(record.with_value(value))


class FlatMapValuesWithKey(StatelessProcessor):
    """Replaces each record by any number of values with its key, by a function of key and value."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Forward a record for each value that the mapper returns."""
        for value in self._mapper(record.key, record.value):
            self._forward(record.with_value(value))


class Peek(StatelessProcessor):
    """Calls a function for each record, and forwards the record."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def process(self, record: Record) -> None:
        """Call the function, and forward the record."""
        self._action(record.key, record.value)
        self._forward(record)


class ForEach(Processor):
    """Calls a function for each record."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def process(self, record: Record) -> None:
        """Call the function."""
        self._action(record.key, record.value)


class Branch(StatelessProcessor):
    """Forwards each record to the first child whose predicate accepts it.

    Args:
        predicates: the predicates, in order.
        children: names of the children; one more than predicates if there is a default.
    """

    def __init__(self, predicates: Sequence[Predicate], children: Sequence[str]) -> None:
        self._predicates, self._children = predicates, children

    def process(self, record: Record) -> None:
        """Forward the record to one child, or to none."""
        for number, predicate in enumerate(self._predicates):
            if predicate(record.key, record.value):
                self._forward(record, self._children[number])
                return
        if len(self._children) > len(self._predicates):
            self._forward(record, self._children[-1])
