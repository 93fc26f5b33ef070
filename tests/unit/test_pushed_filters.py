"""Filters of batch reads: all records that fulfill them are read, compared with Spark's rules for random filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyspark.sql.datasource as spark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer import TopicPartition
from zkconsumer.spark.pushed_filters import PushedFilters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = ("a", "ab", "b")
PARTITIONS = tuple(TopicPartition(topic, number) for topic in TOPICS for number in range(3))
COMPARISONS = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
)


class Record(NamedTuple):
    """The columns of a record that filters can have."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


#: Timestamps of the records of each partition, in milliseconds. They do not increase steadily; -1 means none.
LOGS = {
    partition: [(17 * offset * (number + 1)) % 50 - 1 for offset in range(20)]
    for number, partition in enumerate(PARTITIONS)
}
RECORDS = [
    Record(*partition, offset, at(time)) for partition, times in LOGS.items() for offset, time in enumerate(times)
]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from([*TOPICS, "", "c"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-2, 22),
    "timestamp": st.builds(lambda us: EPOCH + timedelta(microseconds=us), st.integers(-3_000, 60_000)),
}


def filters_on(column: str) -> st.SearchStrategy[spark.Filter]:
    values = VALUES[column] | st.none()
    kinds: list[st.SearchStrategy[Any]] = [st.builds(kind, st.just((column,)), values) for kind in COMPARISONS]
    kinds.append(st.builds(spark.In, st.just((column,)), st.lists(values, min_size=1, max_size=4).map(tuple)))
    kinds += [st.builds(kind, st.just((column,))) for kind in (spark.IsNull, spark.IsNotNull)]
    if column == "topic":
        texts = (spark.StringStartsWith, spark.StringEndsWith, spark.StringContains)
        kinds += [st.builds(kind, st.just((column,)), st.sampled_from(["", "a", "b", "ab"])) for kind in texts]
    return st.recursive(st.one_of(kinds), lambda child: st.builds(spark.Not, child), max_leaves=2)


def holds(one: Any, record: Record) -> bool | None:
    """Return the result of a filter in SQL; None for NULL."""
    if isinstance(one, spark.Not):
        result = holds(one.child, record)
        return None if result is None else not result
    value = getattr(record, one.attribute[0])
    if isinstance(one, spark.IsNull | spark.IsNotNull):
        return isinstance(one, spark.IsNotNull)
    if isinstance(one, spark.EqualNullSafe):
        return bool(value == one.value)
    if isinstance(one, spark.In):
        return True if value in one.value else None if None in one.value else False
    if one.value is None:
        return None
    results: dict[type[spark.Filter], Callable[[], bool]] = {
        spark.EqualTo: lambda: value == one.value,
        spark.GreaterThan: lambda: value > one.value,
        spark.GreaterThanOrEqual: lambda: value >= one.value,
        spark.LessThan: lambda: value < one.value,
        spark.LessThanOrEqual: lambda: value <= one.value,
        spark.StringStartsWith: lambda: value.startswith(one.value),
        spark.StringEndsWith: lambda: value.endswith(one.value),
        spark.StringContains: lambda: one.value in value,
    }
    return bool(results[type(one)]())


def find_offsets(partitions: Iterable[TopicPartition], timestamp: int) -> Mapping[TopicPartition, int]:
    """Return what brokers return for a timestamp."""
    assert timestamp >= 0, "a marker"
    return {
        partition: next((offset for offset, time in enumerate(LOGS[partition]) if time >= timestamp), -1)
        for partition in partitions
    }


def read(filters: list[Any]) -> list[Record]:
    """Return the records that are read with filters."""
    pushed = PushedFilters.from_filters(filters)
    ranges = {partition: (2, 19) for partition in PARTITIONS if pushed.selects(partition)}
    narrowed = pushed.narrow(ranges, find_offsets)
    assert all(2 <= start < until <= 19 for start, until in narrowed.values())
    return [
        record
        for record in RECORDS
        if (span := narrowed.get(TopicPartition(*record[:2]))) is not None and span[0] <= record.offset < span[1]
    ]


@given(st.lists(st.sampled_from(sorted(VALUES)).flatmap(filters_on), max_size=4))
def test_all_matching_records_are_read(filters: list[Any]) -> None:
    def matches(record: Record) -> bool:
        return all(holds(one, record) is True for one in filters)

    wanted = [record for record in RECORDS if 2 <= record.offset < 19 and matches(record)]
    assert [record for record in read(filters) if matches(record)] == wanted


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([], 9 * 17),
        ([spark.EqualTo(("topic",), "a")], 3 * 17),
        ([spark.StringStartsWith(("topic",), "a"), spark.Not(spark.EqualTo(("partition",), 0))], 4 * 17),
        ([spark.In(("partition",), (0, 7))], 3 * 17),
        ([spark.GreaterThan(("offset",), 3), spark.LessThanOrEqual(("offset",), 5)], 9 * 2),
        ([spark.GreaterThanOrEqual(("offset",), 3), spark.LessThan(("offset",), 5)], 9 * 2),
        ([spark.EqualTo(("offset",), 7)], 9),
        ([spark.In(("offset",), (9, None, 4))], 9 * 6),
        ([spark.EqualTo(("topic",), "other")], 0),
        ([spark.GreaterThan(("timestamp",), at(1_000))], 0),
        ([spark.LessThan(("timestamp",), at(0))], 9 * 17),
        ([spark.EqualTo(("value",), b"x"), spark.EqualTo(("headers", "key"), "x")], 9 * 17),
    ],
)
def test_no_more_records_are_read_than_necessary(filters: list[Any], count: int) -> None:
    assert len(read(filters)) == count


def test_records_before_the_first_later_one_are_not_read() -> None:
    partition = PARTITIONS[0]
    filters = [spark.EqualTo(("topic",), "a"), spark.EqualTo(("partition",), 0)]
    found = read([*filters, spark.GreaterThanOrEqual(("timestamp",), at(35))])

    first = next(offset for offset, time in enumerate(LOGS[partition]) if time >= 35)
    assert [record.offset for record in found] == list(range(max(2, first), 19))


def test_microseconds_of_a_filter_are_rounded_down() -> None:
    pushed = PushedFilters.from_filters([spark.GreaterThanOrEqual(("timestamp",), at(45) + timedelta(microseconds=1))])
    assert pushed.timestamp_ms == 45
