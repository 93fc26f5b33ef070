"""A task of a scenario that runs in memory and is never rebuilt, and the state that must equal the one on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.programs import PARTITIONS, sent_records
from oracle.store_calls import contents

from zkconsumer.message import TopicPartition
from zkconsumer.topology import StreamTask, TaskRuntime
from zkconsumer.topology.subtopology import Subtopology
from zkconsumer.topology.task.snapshot import Snapshot

from .steps import Step

Json = Any

#: Metrics that a task keeps when it is rebuilt.
METRICS = ("processed", "punctuated", "dropped", "enforced")


class TaskState(NamedTuple):
    """What a task has after its last batch.

    Attributes:
        batches: number of its batches.
        now_ms: its wall clock, in milliseconds.
        snapshot: the decoded snapshot, without records.
        queued: records that were not processed, by partition.
        metrics: metrics by name.
        stores: entries of each store that has some, by its name.
    """

    batches: int
    now_ms: int
    snapshot: Snapshot
    queued: dict[TopicPartition, list[Any]]
    metrics: dict[str, int]
    stores: dict[str, list[str]]


class TaskInMemory:
    """A task without Spark.

    Args:
        subtopology: its sub-topology.
        partition: its partition number.
    """

    def __init__(self, subtopology: Subtopology, partition: int) -> None:
        self._now_ms = self._batches = 0
        self._partition = partition
        self._lags: dict[str, int] = {}
        self._fingerprint = subtopology.fingerprint
        runtime = TaskRuntime(
            clock=lambda: self._now_ms,
            pages=lambda _: None,
            partition_count=lambda _topic: PARTITIONS,
            lag_of=lambda one: self._lags.get(one.topic),
            takes_snapshots=True,
        )
        self._task = subtopology.task(partition, None, runtime)  # type: ignore[arg-type]  # it has a configuration

    @property
    def stores(self) -> Mapping[str, Any]:
        """The stores by name."""
        return self._task.stores

    def process(self, step: Step) -> Json:
        """Process a batch, commit, and return the output.

        Raises:
            StreamsError: the task failed.
        """
        task = self._task
        self._now_ms = max(self._now_ms, step.tick_ms or 0)
        if self._batches == 0:
            task.initialize()
        self._batches += 1
        self._lags.update(step.lags)
        for topic, records in step.by_topic().items():
            task.add_records(TopicPartition(topic, records[0].partition), records)
        task.update_lags()
        task.run()
        if step.tick_ms is not None:
            task.punctuate_wall_clock()
        ends = {**dict.fromkeys(step.lags, 0), **step.ends}
        task.skip_to({TopicPartition(topic, self._partition): end for topic, end in ends.items()})
        task.commit()
        task._stores.clear_caches()  # a task on Spark starts each batch with empty record caches
        return sent_records(task.take_output().records())

    def save(self, kinds: dict[str, str], probes: Json) -> TaskState:
        """Return the state; see ``create_state``."""
        return create_state(self._task, self._fingerprint, (self._batches, self._now_ms), kinds, probes)

    def close(self) -> None:
        """Close the task."""
        self._task.close()


def create_state(
    task: StreamTask, fingerprint: str, progress: tuple[int, int], kinds: dict[str, str], probes: Json
) -> TaskState:
    """Return the state of a running task.

    Args:
        task: the task.
        fingerprint: fingerprint of its sub-topology.
        progress: number of its batches, and its wall clock.
        kinds: kinds of its stores.
        probes: keys and times at which versioned stores are read.
    """
    snapshot = Snapshot.decode(task.snapshot(), task.task_id, fingerprint)
    queued = {
        partition: [row for columns in state.columns for row in _list_rows(columns)]
        for partition, state in snapshot.queues.items()
    }
    queues = {partition: state._replace(columns=()) for partition, state in snapshot.queues.items()}
    stores = {name: contents(kinds[name], store, probes) for name, store in sorted(task.stores.items())}
    return TaskState(
        *progress,
        replace(snapshot, queues=queues),
        queued,
        {name: task.metrics[name] for name in METRICS},
        {name: lines for name, lines in stores.items() if lines},
    )


def _list_rows(columns: Any) -> list[Any]:
    topic, partition, *lists, headers = columns.to_lists()
    of_rows = [()] * columns.rows if headers is None else [tuple(of_row) for of_row in headers]
    return [(topic, partition, *row) for row in zip(*lists, of_rows, strict=True)]
