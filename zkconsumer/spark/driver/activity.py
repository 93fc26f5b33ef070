"""Detects that a query makes no progress, and which of its tasks are running."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JError

from zkconsumer.health import HealthReason, HealthState, ProgressWatch

#: Health reason codes.
BATCH_RUNNING, NO_BATCH = "batch_running", "no_batch"

#: Spark's status message while a batch is running. Source: Spark 4.3 MicroBatchExecution.executeOneBatch.
_RUNNING = "Processing new data"
#: Maximum number of running Spark tasks that a message names.
_MAX_TASKS = 8


class QueryStatus(NamedTuple):
    """The current state of a query.

    Attributes:
        message: Spark's description of the current step.
        is_active: whether Spark is planning or running a batch, instead of waiting for the next trigger.
        last_batch: number of the last finished batch; -1 if there is none.
    """

    message: str = "the query is starting"
    is_active: bool = True
    last_batch: int = -1


class QueryActivity:
    """Watches whether the batches of a query finish. One thread updates it; any thread may read it.

    Args:
        trigger_s: interval between batch starts, in seconds.
        describe_tasks: function that describes the running tasks; see ``describe_running_tasks``.
    """

    def __init__(self, trigger_s: float, describe_tasks: Callable[[], str]) -> None:
        self._watch = ProgressWatch(trigger_s)
        self._describe_tasks = describe_tasks
        self._status = QueryStatus()

    def update(self, status: QueryStatus, *, lag: int = 0, idle_plannings: int = 0) -> None:
        """Record the state of the query.

        Args:
            status: current state of the query.
            lag: number of unread records after the last batch.
            idle_plannings: number that increases if planning finds no records for a batch. This is progress unless
                there are unread records.
        """
        self._status = status
        position = status.last_batch, 0 if lag else idle_plannings
        self._watch.update(position, has_work=status.is_active or lag > 0)

    def end(self) -> None:
        """Record that the query ended."""
        self._watch.update(None, has_work=False)

    def health_reasons(self, prefix: str = "") -> Iterator[HealthReason]:
        """Yield the reason if a batch has been running, or no batch was run, for too long.

        Args:
            prefix: beginning of the message, which identifies the query.
        """
        waited_s = self._watch.find_stall()
        if waited_s is None:
            return
        status, since = self._status, time.time() - waited_s
        if status.message == _RUNNING:
            text = f"{prefix}batch {status.last_batch + 1} has been running for {waited_s:.0f} s"
            tasks = self._describe_tasks()
            yield HealthReason(HealthState.STALLED, BATCH_RUNNING, since, f"{text}: {tasks}" if tasks else text)
        else:
            text = f"{prefix}no batch was finished for {waited_s:.0f} s; status of the query: {status.message}"
            yield HealthReason(HealthState.STALLED, NO_BATCH, since, text)


def describe_running_tasks(spark: Any, run_id: str, tasks_by_partition: Mapping[int, Sequence[str]] | None) -> str:
    """Describe the running Spark tasks of a query; empty if there are none, or if Spark does not report them.

    Args:
        spark: the Spark session.
        run_id: run id of the query, which is the job group of its Spark jobs.
        tasks_by_partition: task ids by Spark partition of the operator of an application; None for other queries.
    """
    with contextlib.suppress(Py4JError):
        return _join(_list_running(spark.sparkContext._jsc.sc(), run_id, tasks_by_partition))
    return ""


def _list_running(context: Any, run_id: str, tasks_by_partition: Mapping[int, Sequence[str]] | None) -> Iterator[str]:
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(run_id):
        info = tracker.getJobInfo(job)
        if info.isEmpty() or info.get().status().toString() != "RUNNING":
            continue
        stages = list(info.get().stageIds())
        for stage in stages:
            running = context.statusStore().taskList(stage, 0, 1_000_000)
            for number in range(running.size()):
                task = running.apply(number)
                if task.status() != "RUNNING":
                    continue
                what = f"partition {task.partitionId()} of Spark stage {stage}"
                if tasks_by_partition is not None:
                    what = _describe_task(task.partitionId(), tasks_by_partition if stage == max(stages) else {})
                yield f"{what} on {task.host()}"


def _describe_task(partition: int, tasks_by_partition: Mapping[int, Sequence[str]]) -> str:
    tasks = tasks_by_partition.get(partition)  # empty for the stages before the operator
    return f"Spark partition {partition} of the source" if tasks is None else f"task {' or '.join(tasks)}"


def _join(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f" and {len(found) - _MAX_TASKS} more" if len(found) > _MAX_TASKS else ""
    return ", ".join(found[:_MAX_TASKS]) + more
