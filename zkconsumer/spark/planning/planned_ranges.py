"""Passes the ranges of a batch to the decoder; see the option ``plannedRanges``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zkconsumer.spark.executor.decoders import PlannedRange
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.offset import BatchOffset, Ranges


def add_planned_ranges(tasks: Sequence[FetchTask], ranges: Ranges, offset: BatchOffset) -> list[FetchTask]:
    """Return the tasks of a batch; the first one passes the batch's ranges to the decoder.

    Args:
        ranges: all ranges of the batch.
        offset: end of the batch, with the lags of the partitions.
    """
    planned = tuple(
        PlannedRange(partition, until, offset.lags[partition], offset.planned_ms)
        for partition, (_, until) in sorted(ranges.items())
        if partition in offset.lags
    )
    return [replace(tasks[0], planned=planned), *tasks[1:]] if planned and tasks else list(tasks)


def create_planning_task(task: FetchTask, offset: BatchOffset) -> FetchTask:
    """Return a task that only passes the ranges of ``task`` to the decoder, with the tasks that fetch them.

    Args:
        offset: end of the batch, with the lags of the partitions. A range whose lag is unknown is only omitted if it is
            empty.
    """
    planned = []
    for partition, (start, until) in sorted(task.ranges.items()):
        if start < until:
            leaders = {partition: task.leaders[partition]} if partition in task.leaders else {}
            fetch = replace(task, ranges={partition: (start, until)}, leaders=leaders)
            lag = offset.lags.get(partition, 0)
            planned.append(PlannedRange(partition, until, lag, offset.planned_ms, fetch))
        elif partition in offset.lags:
            planned.append(PlannedRange(partition, until, offset.lags[partition], offset.planned_ms))
    return replace(task, ranges={}, leaders={}, planned=tuple(planned))
