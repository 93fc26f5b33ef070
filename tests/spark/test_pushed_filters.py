"""Filters of batch reads that Spark pushes down to the source: same results, fewer rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers

from zkconsumer.devcluster.load import batch
from zkconsumer.message import TopicPartition
from zkconsumer.spark.compat import VERSION

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.0 pushes no filters down to Python sources"),
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PARTITIONS, RECORDS = 2, 30


@pytest.fixture
def pushdown(spark: Any) -> Iterator[Callable[[bool], None]]:
    """Enable or disable the pushdown of filters: ``pushdown(True)``."""
    yield lambda enabled: spark.conf.set(PUSHDOWN, str(enabled).lower())
    spark.conf.unset(PUSHDOWN)


@pytest.fixture
def names(zkconsumer_cluster: Cluster, topic: Topics) -> list[str]:
    """Create two topics; the timestamps of their records do not increase steadily."""
    created = sorted(topic(partitions=PARTITIONS) for _ in range(2))
    for name in created:
        for number in range(PARTITIONS):
            for offset in range(0, RECORDS, 3):
                time_ms = 1_000 * ((7 * offset + number) % RECORDS)
                records = batch(numbers(offset, offset + 3), timestamp_ms=time_ms)
                zkconsumer_cluster.admin.produce(TopicPartition(name, number), records)
    return created


class Reads:
    """Batch reads of two topics.

    Args:
        options: options of the source.
    """

    def __init__(self, spark: Any, options: dict[str, str]) -> None:
        self._spark = spark
        self._options = options

    def rows(self, predicate: str) -> tuple[list[Any], int]:
        """Return the rows that fulfill a predicate, and the number of rows that the source returned."""
        frame = self._spark.read.format("zkconsumer").options(**self._options).load()
        frame = frame.select("topic", "partition", "offset", "timestamp").where(predicate)
        found = sorted(frame.collect())
        leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
        return found, int(leaf.metrics().apply("numOutputRows").value())


@pytest.fixture
def reads(spark: Any, options: Callable[..., dict[str, str]], names: list[str]) -> Reads:
    return Reads(spark, options(",".join(names)))


def time_literal(second: int) -> str:
    return f"timestamp'1970-01-01 00:00:{second:02}'"


@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        ("true", 2 * PARTITIONS * RECORDS),
        ("topic = 'FIRST'", PARTITIONS * RECORDS),
        ("partition = 1 AND offset >= 10 AND offset < 13", 2 * 3),
        ("partition IN (1, 5)", 2 * RECORDS),
        (f"timestamp > {time_literal(59)}", 0),
        ("topic = 'another'", 0),
        ("offset % 2 = 0", 2 * PARTITIONS * RECORDS),
    ],
)
def test_filters_reduce_the_rows_that_are_read(
    reads: Reads, names: list[str], pushdown: Callable[[bool], None], predicate: str, count: int
) -> None:
    predicate = predicate.replace("FIRST", names[0])
    pushdown(False)
    rows, total = reads.rows(predicate)
    assert predicate == "true" or total == 2 * PARTITIONS * RECORDS

    pushdown(True)
    assert reads.rows(predicate) == (rows, count)


def random_predicate(draw: random.Random, names: list[str]) -> str:
    """Draw a conjunction of conditions on the columns of a record."""

    def condition() -> str:
        column = draw.choice(["topic", "partition", "offset", "timestamp"])
        literals: dict[str, Callable[[], str]] = {
            "topic": lambda: f"'{draw.choice([*names, 'another'])}'",
            "partition": lambda: str(draw.randint(-1, PARTITIONS)),
            "offset": lambda: str(draw.randint(-1, RECORDS)),
            "timestamp": lambda: time_literal(draw.randint(0, RECORDS)),
        }
        literal = literals[column]
        if draw.random() < 0.2:
            return f"{column} IN ({literal()}, {literal()})"
        if column == "topic" and draw.random() < 0.3:
            return f"topic LIKE '{names[0][: draw.randint(1, len(names[0]))]}%'"
        return f"{column} {draw.choice(['=', '<=>', '<', '<=', '>', '>='])} {literal()}"

    conditions = [condition() for _ in range(draw.randint(1, 3))]
    return " AND ".join(f"NOT ({one})" if draw.random() < 0.2 else one for one in conditions)


@pytest.mark.slow
def test_random_filters_have_the_same_result(reads: Reads, names: list[str], pushdown: Callable[[bool], None]) -> None:
    for seed in range(40):
        predicate = random_predicate(random.Random(seed), names)
        pushdown(False)
        rows, total = reads.rows(predicate)
        pushdown(True)
        found, count = reads.rows(predicate)
        assert found == rows, f"seed {seed}: {predicate}"
        assert len(rows) <= count <= total, f"seed {seed}: {predicate}"


@pytest.mark.parametrize("settings", [{"decoder": "shifted_offsets:Shifted"}, {"corrupt.record.policy": "quarantine"}])
def test_filters_on_other_columns_are_not_pushed_down(
    spark: Any,
    options: Callable[..., dict[str, str]],
    names: list[str],
    pushdown: Callable[[bool], None],
    settings: dict[str, str],
) -> None:
    """The columns of a decoder have their own values, and those of a quarantined record are null."""
    frame = spark.read.format("zkconsumer").options(**options(names[0], **settings)).load()
    pushdown(True)
    predicate = "offset >= 1000" if "decoder" in settings else "offset IS NULL OR offset >= 0"

    assert frame.where(predicate).count() == PARTITIONS * RECORDS
