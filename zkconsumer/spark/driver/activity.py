"""Detects that a query makes no progress, and which of its tasks are running."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

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
        finished_tasks: for each running Spark job of the query in which a task has finished, the job's number and the
            number of finished tasks.
    """

    message: str = "the query is starting"
    is_active: bool = True
    last_batch: int = -1
    finished_tasks: Set[tuple[int, int]] = frozenset()


class QueryActivity:
    """Watches whether the batches of a query make progress. One thread updates it; any thread may read it.

    Args:
        trigger_s: interval between batch starts, in seconds.
        describe_tasks: function that describes the running tasks; see ``describe_running_tasks``. It is called by
            ``update``, because it is slow: the health may be read often, and by several threads.
    """

    def __init__(self, trigger_s: float, describe_tasks: Callable[[], str]) -> None:
        self._watch = ProgressWatch(trigger_s)
        self._describe_tasks = describe_tasks
        self._status, self._tasks = QueryStatus(), ""

    def update(self, status: QueryStatus, *, lag: int = 0, idle_plannings: int = 0) -> None:
        """Record the state of the query.

        Args:
            status: current state of the query.
            lag: number of unread records after the last batch, without those that are to be read later.
            idle_plannings: number that increases if planning finds no records for a batch. This is progress unless
                there are unread records.
        """
        position = status.last_batch, status.finished_tasks, 0 if lag else idle_plannings
        self._watch.update(position, has_work=status.is_active or lag > 0)
        is_stalled = status.message == _RUNNING and self._watch.find_stall() is not None
        self._tasks = self._describe_tasks() if is_stalled else ""
        self._status = status

    def end(self) -> None:
        """Record that the query ended."""
        self._watch.update(None, has_work=False)

    def health_reasons(self, prefix: str = "") -> Iterator[HealthReason]:
        """Yield the reason if a running batch made no progress, or no batch was run, for too long.

        Args:
            prefix: beginning of the message, which identifies the query.
        """
        waited_s = self._watch.find_stall()
        if waited_s is None:
            return
        status, since = self._status, time.time() - waited_s
        if status.message == _RUNNING:
            text = f"{prefix}batch {status.last_batch + 1} is running, but no task has finished for {waited_s:.0f} s"
            tasks = self._tasks
            yield HealthReason(HealthState.STALLED, BATCH_RUNNING, since, f"{text}: {tasks}" if tasks else text)
        else:
            text = f"{prefix}no batch was finished for {waited_s:.0f} s; status of the query: {status.message}"
            yield HealthReason(HealthState.STALLED, NO_BATCH, since, text)


def read_status(spark: Any, query: Any, last_batch: int) -> QueryStatus:
    """Return the current state of a streaming query.

    Args:
        spark: the Spark session.
        query: the streaming query.
        last_batch: number of the last finished batch; -1 if there is none.
    """
    found = query.status
    message, tasks = str(found["message"]), frozenset[tuple[int, int]]()
    if message == _RUNNING:
        with contextlib.suppress(Exception):  # the session is being stopped
            tasks = frozenset((job.jobId(), job.numCompletedTasks()) for job in _list_jobs(spark, query.runId))
    return QueryStatus(message, bool(found["isTriggerActive"]), last_batch, frozenset(one for one in tasks if one[1]))


def describe_running_tasks(spark: Any, run_id: str, tasks_by_partition: Mapping[int, Sequence[str]] | None) -> str:
    """Describe the running Spark tasks of a query; empty if there are none, or if Spark does not report them.

    Args:
        spark: the Spark session.
        run_id: run id of the query, which is the job group of its Spark jobs.
        tasks_by_partition: task ids by Spark partition of the operator of an application; None for other queries.
    """
    with contextlib.suppress(Exception):  # the session is being stopped
        return _describe(spark, run_id, tasks_by_partition)
    return ""


def _list_jobs(spark: Any, run_id: str) -> Iterator[Any]:
    """Yield the running Spark jobs of a query. Finished jobs, of which there can be many, are not transferred."""
    context = spark.sparkContext._jsc.sc()
    for number in context.statusTracker().getActiveJobIds():
        job = context.statusStore().job(number)
        if job.jobGroup().isDefined() and job.jobGroup().get() == run_id:
            yield job


def _describe(spark: Any, run_id: str, tasks_by_partition: Mapping[int, Sequence[str]] | None) -> str:
    context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
    running = jvm.java.util.List.of(jvm.org.apache.spark.status.api.v1.TaskStatus.RUNNING)
    texts: list[str] = []
    count = 0
    for job in _list_jobs(spark, run_id):
        stages = [job.stageIds().apply(number) for number in range(job.stageIds().size())]
        for stage in stages:
            info = context.statusTracker().getStageInfo(stage)
            if info.isEmpty() or not info.get().numActiveTasks():
                continue
            wanted, attempt = _MAX_TASKS - len(texts), info.get().currentAttemptId()
            found = context.statusStore().taskList(stage, attempt, 0, wanted, jvm.scala.Option.empty(), True, running)
            is_complete = found.size() < wanted
            count += found.size() if is_complete else max(found.size(), info.get().numActiveTasks())
            for task in (found.apply(number) for number in range(found.size())):
                what = f"partition {task.partitionId()} of Spark stage {stage}"
                if tasks_by_partition is not None:
                    what = _describe_task(task.partitionId(), tasks_by_partition if stage == max(stages) else {})
                texts.append(f"{what} on {task.host()}")
    more = f" and {count - len(texts)} more" if count > len(texts) and texts else ""
    return ", ".join(texts) + more


def _describe_task(partition: int, tasks_by_partition: Mapping[int, Sequence[str]]) -> str:
    tasks = tasks_by_partition.get(partition)  # empty for the stages before the operator
    return f"Spark partition {partition} of the source" if tasks is None else f"task {' or '.join(tasks)}"
