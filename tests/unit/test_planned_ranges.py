"""Tests of the ranges that tasks pass to the decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.configurations import fetch_settings

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.executor.decoders import PlannedRange
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.row_schema import RowSchema
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.planned_ranges import add_planned_ranges, create_planning_task

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
LEADERS = {FIRST: (1, Endpoint("a", 1)), SECOND: (2, Endpoint("b", 2))}
OPTIONS = {"group.id": "g", "zookeeper.connect": "z", "subscribe": "t"}


def create_task(ranges: Ranges) -> FetchTask:
    schema = RowSchema.from_columns(("value",))
    return FetchTask(ranges, LEADERS, (Endpoint("c", 3),), fetch_settings(), 2, schema, True, True, 1.0)


def test_first_task_passes_all_ranges() -> None:
    ranges = {FIRST: (1, 5), SECOND: (4, 4), THIRD: (0, 2)}
    tasks = [create_task({FIRST: (1, 5)}), create_task({THIRD: (0, 2)})]
    offset = BatchOffset(ranges=ranges, generation=0, lags={FIRST: 3, SECOND: 0}, planned_ms=1_000)

    planned = PlannedRange(FIRST, 5, 3, 1_000), PlannedRange(SECOND, 4, 0, 1_000)
    assert add_planned_ranges(tasks, ranges, offset) == [replace(tasks[0], planned=planned), tasks[1]]
    assert add_planned_ranges([], ranges, offset) == []
    assert add_planned_ranges(tasks, ranges, replace(offset, lags={})) == tasks


def test_planning_task_passes_tasks_instead_of_fetching() -> None:
    ranges = {THIRD: (0, 2), FIRST: (1, 5), SECOND: (4, 4)}
    task = create_task(ranges)
    offset = BatchOffset(ranges=ranges, generation=0, lags={FIRST: 3, SECOND: 1}, planned_ms=1_000)

    found = create_planning_task(task, offset)

    assert (found.ranges, found.leaders) == ({}, {})
    assert found.planned == (
        PlannedRange(FIRST, 5, 3, 1_000, replace(task, ranges={FIRST: (1, 5)}, leaders={FIRST: LEADERS[FIRST]})),
        PlannedRange(SECOND, 4, 1, 1_000),
        PlannedRange(THIRD, 2, 0, 1_000, replace(task, ranges={THIRD: (0, 2)}, leaders={})),
    )


def test_empty_range_without_lag_is_omitted() -> None:
    offset = BatchOffset(ranges={}, generation=0)

    assert create_planning_task(create_task({FIRST: (7, 7)}), offset).planned == ()


@pytest.mark.parametrize("value", ["true", "only"])
def test_planned_ranges_require_a_decoder(value: str) -> None:
    with pytest.raises(ConfigurationError, match="option plannedRanges requires the option decoder"):
        SourceOptions.parse({**OPTIONS, "plannedRanges": value})


@pytest.mark.parametrize("given", [{}, {"plannedRanges": "false"}])
def test_ranges_are_not_planned_by_default(given: dict[str, str]) -> None:
    assert not SourceOptions.parse({**OPTIONS, **given}).passes_ranges
