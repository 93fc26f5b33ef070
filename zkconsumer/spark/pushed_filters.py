"""Filters of batch reads, as limits of the records that are read.

All records that fulfill the filters are read. Spark evaluates the filters again, because further records may be read.

Source: Spark 4.1 pyspark.sql.datasource.DataSourceReader.pushFilters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import Ranges
from zkconsumer.zookeeper.registry import OFFSET_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Whether a value fulfills a filter, given the value of the column and that of the filter.
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualNullSafe: operator.eq,
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: lambda value, values: value in values,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringContains: operator.contains,
    StringEndsWith: str.endswith,
    StringStartsWith: str.startswith,
}


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The limits of a batch read.

    Attributes:
        by_column: filters on the columns ``topic`` and ``partition``.
        offsets: lowest offset, and offset after the highest one.
        timestamp_ms: lowest timestamp, in milliseconds since the epoch; None for no limit.
    """

    by_column: Mapping[str, tuple[Filter, ...]]
    offsets: tuple[int, int] = (0, OFFSET_MAX)
    timestamp_ms: int | None = None

    @classmethod
    def from_filters(cls, filters: Iterable[Filter]) -> PushedFilters:
        """Create the limits from filters, all of which a record must fulfill. Filters on other columns have no effect.

        There is no upper limit of the timestamp: later records can have lower timestamps.
        """
        by_column: dict[str, tuple[Filter, ...]] = {}
        for one in filters:
            by_column[_column(one)] = (*by_column.get(_column(one), ()), one)
        offsets = [_offsets(one) for one in by_column.get("offset", ())]
        return cls(
            {name: by_column[name] for name in ("topic", "partition") if name in by_column},
            (max([0, *(start for start, _ in offsets)]), min([OFFSET_MAX, *(end for _, end in offsets)])),
            # Brokers treat negative timestamps as markers.
            max((time for time in map(_lowest_time, by_column.get("timestamp", ())) if time >= 0), default=None),
        )

    def selects(self, partition: TopicPartition) -> bool:
        """Return whether records of a partition can fulfill the filters."""
        values = {"topic": partition.topic, "partition": partition.partition}
        return all(
            _evaluate(one, values[name]) is not False for name, filters in self.by_column.items() for one in filters
        )

    def narrow(
        self, ranges: Ranges, find_offsets: Callable[[Iterable[TopicPartition], int], Mapping[TopicPartition, int]]
    ) -> Ranges:
        """Return the parts of ranges whose records can fulfill the filters. Ranges that would be empty are omitted.

        Args:
            find_offsets: function that returns the offset of the first record at or after a timestamp, negative if
                there is none; see ``LogOffsets.offsets``.

        Raises:
            RetriableError: ``find_offsets`` raised it.
        """
        start, end = self.offsets
        narrowed = {p: (max(first, start), min(until, end)) for p, (first, until) in ranges.items()}
        narrowed = {p: (first, until) for p, (first, until) in narrowed.items() if first < until}
        if self.timestamp_ms is None or not narrowed:
            return narrowed
        found = find_offsets(narrowed, self.timestamp_ms)
        later = {p: (max(first, found[p]), until) for p, (first, until) in narrowed.items() if found[p] >= 0}
        return {p: (first, until) for p, (first, until) in later.items() if first < until}


def _column(one: Filter) -> str:
    return ".".join(_column_of(one))


def _column_of(one: Any) -> tuple[str, ...]:
    return _column_of(one.child) if isinstance(one, Not) else tuple(one.attribute)


def _evaluate(one: Any, value: Any) -> bool | None:
    """Return whether a value fulfills a filter; None if it is unknown."""
    if isinstance(one, Not):
        result = _evaluate(one.child, value)
        return None if result is None else not result
    if type(one) not in _COMPARISONS or one.value is None:
        return None
    try:
        return _COMPARISONS[type(one)](value, one.value)
    except TypeError:  # the filter has a value of another type
        return None


def _offsets(one: Filter) -> tuple[int, int]:
    """Return the lowest offset that fulfills a filter, and the offset after the highest one."""
    match one:
        case EqualTo(_, int(offset)) | EqualNullSafe(_, int(offset)):
            return offset, offset + 1
        case In(_, (int(), *_) as offsets):
            known = [offset for offset in offsets if offset is not None]
            return min(known), max(known) + 1
        case GreaterThan(_, int(offset)):
            return offset + 1, OFFSET_MAX
        case GreaterThanOrEqual(_, int(offset)):
            return offset, OFFSET_MAX
        case LessThan(_, int(offset)):
            return 0, offset
        case LessThanOrEqual(_, int(offset)):
            return 0, offset + 1
    return 0, OFFSET_MAX


def _lowest_time(one: Filter) -> int:
    """Return the lowest timestamp that fulfills a filter, in milliseconds since the epoch; -1 if it is unknown."""
    match one:
        case (
            EqualTo(_, datetime() as time)
            | EqualNullSafe(_, datetime() as time)
            | GreaterThan(_, datetime() as time)
            | GreaterThanOrEqual(_, datetime() as time)
        ) if time.tzinfo is not None:
            return _to_ms(time)
    return -1


def _to_ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
