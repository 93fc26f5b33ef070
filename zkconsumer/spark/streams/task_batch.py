"""Runs a task for one batch of the query: processes records and ticks, and updates the saved state."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.fetching import FetchRange
from zkconsumer.spark.streams.global_stores import GlobalStoresOfWorker
from zkconsumer.spark.streams.markers import NO_OFFSET, GlobalTick, decode_offsets, encode_offsets
from zkconsumer.spark.streams.output import TaskOutput, restore_timestamps
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.spark.streams.plan import ApplicationPlan, TaskNumber
from zkconsumer.spark.streams.state_pages import PageState, StatePages
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.pages import PageStore
from zkconsumer.topology.task.task import StreamTask
from zkconsumer.topology.task.task_runtime import TaskRuntime

#: Metric with the number of records that a task wrote to topics that the application reads.
LOOPED = "looped"

#: Maximum size of a task's output in a batch, in bytes: an Arrow value and a row of Spark are limited to 2 GiB.
_MAX_OUTPUT_BYTES = 2_000_000_000

#: The global stores of this worker process.
_global_stores = GlobalStoresOfWorker()


class SavedTask(NamedTuple):
    """The saved state of a task, without store pages.

    Attributes:
        snapshot: see ``StreamTask.snapshot``.
        now_ms: wall-clock time of the task (last tick time or planning time), in milliseconds.
        stores: numbers of the stores that have pages, as JSON.
        lags: last known lag of each partition, as JSON; see ``markers.encode_offsets``.
        global_ends: end offsets of the global store topics; see ``markers.GlobalTick``. "" if there are none.
    """

    snapshot: bytes
    now_ms: int
    stores: str
    lags: str
    global_ends: str


@dataclass
class BatchInput:
    """The input rows of a task in one batch.

    Attributes:
        ranges: the non-empty ranges, by partition.
        lags: number of unread records after the batch, by partition.
        ends: end of the range of each partition in the batch.
        planned_ms: time when the batch was planned, in milliseconds; 0 if the batch contains no partition of the task.
        tick_ms: time of the newest tick, in milliseconds; None if there is no tick.
        global_ends: end offsets of the global store topics in the newest tick; see ``markers.GlobalTick``.
    """

    ranges: dict[TopicPartition, FetchRange] = field(default_factory=dict)
    lags: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    planned_ms: int = 0
    tick_ms: int | None = None
    global_ends: str | None = None

    @classmethod
    def from_rows(cls, rows: Iterable[Any]) -> BatchInput:
        """Create the input from the operator's rows, which can be in any order."""
        found = cls()
        for row in rows:
            if row.topic is None:
                found.add_tick(row)
                continue
            partition = TopicPartition(row.topic, row.partition)
            found.lags[partition] = row.lag
            found.ends[partition] = row.until
            found.planned_ms = row.first_offset
            if row.blob is not None:
                found.ranges[partition] = pickle.loads(row.blob)
        return found

    def find_time(self, *, has_ticks: bool, is_first: bool) -> int:
        """Return the time of the batch in milliseconds; 0 if the time of an earlier batch applies.

        The time of the batch is the time of its tick. Without a tick, it is the planning time if batches have no ticks,
        or if this is the first batch of the task.
        """
        if self.tick_ms is not None:
            return self.tick_ms
        return self.planned_ms if is_first or not has_ticks else 0

    def add_tick(self, row: Any) -> None:
        """Add the tick in ``row``, unless there is a newer tick."""
        if self.tick_ms is None or row.first_offset > self.tick_ms:
            self.tick_ms = row.first_offset
            self.global_ends = None if row.blob is None else bytes(row.blob).decode()


class BatchResult(NamedTuple):
    """The result of a task in a batch.

    Attributes:
        saved: state of the task after the batch.
        output: output of the task.
        metrics: changes of the task metrics, by name.
    """

    saved: SavedTask
    output: TaskOutput
    metrics: Mapping[str, int]


def run_batch(
    plan: ApplicationPlan, number: TaskNumber, state: PageState, saved: SavedTask | None, batch: BatchInput
) -> BatchResult:
    """Process the records of a batch, and then run the wall-clock punctuators that are due.

    The wall-clock time of processors is the time of the newest tick in this or an earlier batch. If there are no ticks,
    it is the planning time of the batch. Therefore, a batch that Spark repeats has the same results.

    Args:
        plan: the tasks of the application.
        number: number of the task.
        state: store pages of the task.
        saved: saved state before the batch; None in the first batch.
        batch: input of the task.

    Raises:
        StreamsError: the task failed; none of its changes may be committed.
    """
    batch_ms = batch.find_time(has_ticks=plan.has_ticks, is_first=saved is None)
    now_ms = max(batch_ms, 0 if saved is None else saved.now_ms)
    global_ends = batch.global_ends or ("" if saved is None else saved.global_ends)
    subtopology = plan.subtopologies[number.subtopology]
    in_order = {store.name: index for index, store in enumerate(subtopology.stores)}
    pages = _Pages(plan.stores.get(number.subtopology, in_order), state, saved)
    lags = {**({} if saved is None else decode_offsets(saved.lags)), **batch.lags}
    runtime = TaskRuntime(
        lag_of=lags.get,
        max_waiting=plan.max_records,
        max_waiting_bytes=plan.max_bytes,
        global_stores=_open_global_stores(plan, global_ends),
        clock=lambda: now_ms,
        pages=pages.create,
        partition_count=plan.count_partitions,
        continued=plan.earlier.get(number.subtopology, frozenset()),
        takes_snapshots=True,
    )
    task = subtopology.task(number.partition, plan.config, runtime, None if saved is None else saved.snapshot)
    task.initialize()
    try:
        _add_records(task, plan.fetcher.fetch(batch.ranges), plan.internal_topics)
        task.update_lags()
        task.run(_find_limit(plan))
        if batch.tick_ms is not None or not plan.has_ticks:
            task.punctuate_wall_clock()
        task.skip_to(batch.ends)
        task.commit()
        output, looped = _take_output(task, plan.source_topics)
        after = SavedTask(task.snapshot(), now_ms, pages.to_json(), encode_offsets(lags), global_ends)
        metrics = {**task.take_metrics(), **({LOOPED: looped} if looped else {})}
    except BaseException as error:
        try:
            task.close()
        except StreamsError as second:
            error.add_note(str(second))
        raise
    task.close()
    return BatchResult(after, output, metrics)


def _find_limit(plan: ApplicationPlan) -> int | None:
    """Return the maximum number of records that a task processes in a batch; None for no limit.

    It is not exceeded unless ``max_records`` was reduced after the batch was planned. The other records are processed
    in the next batches. Without ticks, there may be no next batch.
    """
    return None if plan.max_records is None or not plan.has_ticks else 2 * plan.max_records


def _open_global_stores(plan: ApplicationPlan, ends: str) -> Mapping[str, StateStore]:
    if plan.global_stores is None:
        return {}
    if not ends:
        raise StreamsError("global stores cannot be opened: the task has received no tick with their end offsets")
    return _global_stores.open(plan.global_stores, GlobalTick.decode(ends))


def _take_output(task: StreamTask, source_topics: Collection[str]) -> tuple[TaskOutput, int]:
    """Return the output of a task, and the number of its records in topics that the application reads."""
    # If the task has not received a range yet, the batch only changes the marker of the committed offsets.
    offsets = task.committable() or dict.fromkeys(task.partitions, NO_OFFSET)
    sequence, records = task.sequence, task.take_output()
    if not len(records):
        return TaskOutput(task.task_id, sequence, encode_offsets(offsets), None), 0
    batch = records.to_arrow()
    if batch.nbytes > _MAX_OUTPUT_BYTES:
        raise StreamsError(
            f"task {task.task_id}: the output of a batch must be at most {_MAX_OUTPUT_BYTES} bytes, got {batch.nbytes} "
            f"bytes in {len(records)} records; reduce QuerySettings.max_records_per_task, and restart the application"
        )
    topics = batch.column("topic").value_counts().to_pylist()
    looped = sum(topic["counts"] for topic in topics if topic["values"] in source_topics)
    return TaskOutput(task.task_id, sequence, encode_offsets(offsets), to_blob(batch)), looped


def _add_records(
    task: StreamTask, fetched: Mapping[TopicPartition, pa.Table], internal_topics: Collection[str]
) -> None:
    for partition in sorted(fetched):
        # Combine the chunks, because the order of records with equal timestamps depends on chunk boundaries, and a
        # repeated batch can be fetched in different chunks.
        table = fetched[partition].combine_chunks()
        task.add_columns(partition, restore_timestamps(table) if partition.topic in internal_topics else table)


class _Pages:
    """Creates the store pages of a task."""

    def __init__(self, numbers: Mapping[str, int], state: PageState, saved: SavedTask | None) -> None:
        self._state = state
        self._numbers = numbers
        self._known: set[int] = set() if saved is None else set(json.loads(saved.stores))
        self._created: dict[int, StatePages] = {}

    def create(self, store: StateStore) -> PageStore | None:
        """Create the pages of a store, even if it is not persistent, because a task lasts only one batch."""
        number = self._numbers[store.name]
        self._created[number] = StatePages(self._state, number, store.name, number not in self._known)
        return self._created[number]

    def to_json(self) -> str:
        """Return the numbers of the stores that have pages, as JSON."""
        used = {number for number, pages in self._created.items() if not pages.is_new}
        return json.dumps(sorted(used | (self._known - self._created.keys())))
