"""A task: the nodes and stores of a sub-topology, for one partition number of its topics.

Source: Kafka 3.9 StreamTask, ProcessorContextImpl and RecordCollectorImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar, NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.event_limits import log_unlogged
from zkconsumer.message import TopicPartition
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.declared.task_declaration import TaskDeclaration
from zkconsumer.topology.dropped_records import DroppedRecords, DropReason
from zkconsumer.topology.errors import FatalError
from zkconsumer.topology.loop.columns import SinkColumns, SourceColumns
from zkconsumer.topology.loop.native import NEVER, OutputColumns, RecordCache, run_rows
from zkconsumer.topology.loop.records import Record, SourceRecord
from zkconsumer.topology.processor import PunctuationType
from zkconsumer.topology.task.error_handling import ErrorHandling, describe_error, fatal_error
from zkconsumer.topology.task.partition_group import PartitionGroup
from zkconsumer.topology.task.punctuation import Schedule
from zkconsumer.topology.task.queues import UNKNOWN, RecordQueue, SourceBatch
from zkconsumer.topology.task.snapshot import Snapshot
from zkconsumer.topology.task.task_context import TaskContext
from zkconsumer.topology.task.task_nodes import TaskNodes
from zkconsumer.topology.task.task_runtime import TaskLifecycle, TaskRuntime, TaskState
from zkconsumer.topology.task.task_stores import TaskStores


class StreamTask:
    """Processes the records of its partitions one by one, in the order of the timestamps at the queue heads.

    A task must be used by a single thread. Unless a handler decides otherwise, an error ends the task: the stores are
    rolled back to the last commit, and every further call raises StreamsError, except ``close`` and calls that only
    return metrics, timestamps or counts. The runtime then creates a new task. The new task resumes from the last
    ``snapshot``, or the runtime adds records starting at the offsets that ``committable`` returned at the last commit.

    This class is the complete interface between a runtime and a task, so it has more methods than other classes.
    Queues, nodes, stores, schedules, snapshots and the interface for nodes (``TaskContext``) are separate classes.

    Args:
        declaration: nodes, stores and partitions of the task; see ``Subtopology.task``.
        config: settings of the application.
        runtime: clock, storage and global stores of the task.
        snapshot: result of ``snapshot`` from which the task resumes, or None.

    Attributes:
        task_id: sub-topology number and partition number, such as ``0_3``.
        stores: stores by name.

    Raises:
        StreamsError: a processor or store cannot be created, or the snapshot is rejected.
    """

    #: Class of the context that nodes use.
    context_type: ClassVar[type[TaskContext]] = TaskContext

    def __init__(
        self,
        declaration: TaskDeclaration,
        config: ApplicationConfig,
        runtime: TaskRuntime,
        snapshot: bytes | None = None,
    ) -> None:
        if runtime.cache is None:
            runtime = replace(runtime, cache=RecordCache(config.statestore_cache_max_bytes))
        self.task_id = declaration.task_id
        self._fingerprint = declaration.fingerprint
        saved = None
        if snapshot is not None:
            saved = Snapshot.decode(snapshot, self.task_id, self._fingerprint, runtime.continued)
            saved.check_partitions(declaration.sources)
        self._counts = {"processed": 0, "punctuated": 0, "dropped": 0, "enforced": 0}
        self._reported: dict[str, int] = {}
        self._context = self.context_type(self.task_id, config, runtime.clock, runtime.takes_snapshots)
        self._schedules, self._state = self._context.schedules, self._context.state
        self._clock = runtime.clock
        self._lifecycle = TaskLifecycle(self.task_id)
        self._output = OutputColumns()
        self._sequence = 0
        dropped = DroppedRecords(self.task_id, self._counts, config.application_id)
        self._errors = ErrorHandling(self.task_id, config, dropped, lambda record: self._output.append(*record))
        self._nodes = TaskNodes(declaration.nodes, self._context, self._errors, runtime, self._output)
        self._stores = TaskStores(
            self.task_id,
            (one.with_default_serdes(config.key_serde, config.value_serde) for one in declaration.stores),
            runtime,
            config.page_limits,
            lambda store: dropped.add(self._context.source_record, reason=DropReason.EXPIRED, store=store),
            self._state,
        )
        self.stores = self._stores.by_name
        self._sources = {partition: self._nodes.find_source(name) for partition, name in declaration.sources.items()}
        queues = [RecordQueue(partition, source) for partition, source in self._sources.items()]
        limits = runtime.max_waiting, runtime.max_waiting_bytes
        self._group = PartitionGroup(queues, config.max_task_idle_ms, runtime.lag_of, *limits)
        self._saved = saved

    # ---- lifecycle ----

    def initialize(self) -> None:
        """Open the stores and initialize the processors, parents first.

        Raises:
            StreamsError: ``initialize`` was called before, or a store or processor failed. After a failure, the stores
                and processors that were already initialized are closed; the one that failed is not.
        """
        self._lifecycle.require("initialize", TaskState.CREATED)
        try:
            self._stores.open()
            if self._saved is not None:
                self._restore(self._saved)
            self._nodes.initialize(self._stores, self._counts, self._schedules)
            self._context.update_due_time()
        except BaseException as error:
            try:
                self.close()
            except StreamsError as second:
                error.add_note(str(second))
            raise
        self._lifecycle.move(TaskState.RUNNING)

    def suspend(self) -> None:
        """Close the processors, which ``resume`` can initialize again. Changes made in ``close`` can be committed.

        Raises:
            StreamsError: a processor failed; all other processors were closed. Further errors are added as notes.
        """
        self._lifecycle.require("suspend", TaskState.RUNNING)
        errors = self._nodes.close()
        if errors:
            self._raise_fatal(_select_error(errors))
        self._lifecycle.move(TaskState.SUSPENDED)

    def resume(self) -> None:
        """Initialize the suspended processors. Their schedules continue.

        Raises:
            StreamsError: a processor failed, or a schedule cannot be restored.
        """
        self._lifecycle.require("resume", TaskState.SUSPENDED)
        try:
            self._schedules.restore(self._schedules.save())
            self._nodes.initialize(self._stores, self._counts, self._schedules)
            self._context.update_due_time()
        except BaseException as error:
            self._raise_fatal(error)
        self._lifecycle.move(TaskState.RUNNING)

    def commit(self) -> None:
        """Atomically commit the changes to all stores.

        An interrupt such as KeyboardInterrupt can arrive after the storage committed. Persistent stores then contain
        the new commit, and in-memory stores may contain the previous commit.

        Raises:
            StreamsError: the commit failed. All stores were rolled back to the last commit.
        """
        self._lifecycle.require("commit", TaskState.RUNNING, TaskState.SUSPENDED)
        try:
            self._stores.commit()
        except BaseException as error:
            self._raise_fatal(error, "commit failed: ")
        if self._lifecycle.state is TaskState.SUSPENDED:
            self._stores.clear_caches()
        self._context.commit_requested = False
        log_unlogged()

    def committable(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to process in each partition, to be saved with the store commit.

        Partitions without records so far are omitted, unless ``skip_to`` set their offset.
        Source: Kafka 3.9 StreamTask.committableOffsetsAndMetadata.
        """
        self._lifecycle.require("committable", TaskState.RUNNING, TaskState.SUSPENDED)
        return self._group.next_offsets()

    def skip_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets of partitions whose records have all been processed.

        Offsets that contain no record, such as transaction markers, aborted records and deleted records, are skipped.
        Source: KAFKA-6607.

        Args:
            offsets: offset by partition up to which all records were added.
        """
        self._lifecycle.require("skip_to", TaskState.RUNNING)
        self._group.skip_to(offsets)

    def snapshot(self) -> bytes:
        """Return the task state outside the stores, from which ``Subtopology.task`` can resume.

        The snapshot contains times, offsets, unprocessed records, schedules, values of ``ProcessorContext.remember``,
        metrics, and ``sequence``. It is valid only with the store commit that is made at the same time.

        Raises:
            StreamsError: a schedule or a remembered value cannot be saved.
        """
        self._lifecycle.require("snapshot", TaskState.RUNNING, TaskState.SUSPENDED)
        return Snapshot(
            task_id=self.task_id,
            fingerprint=self._fingerprint,
            stream_time_ms=self._state.stream_time_ms,
            queues={partition: queue.state() for partition, queue in self._group.queues.items()},
            order=tuple(self._group.heap_order()),
            deadlines=self._group.deadlines,
            schedules=self._schedules.save(),
            remembered=self._context.save_remembered(),
            metrics=self._counts,
            sequence=self._sequence + len(self._output),
        ).encode()

    def close(self) -> None:
        """Close the initialized processors and the stores. Uncommitted changes are discarded.

        Raises:
            StreamsError: a processor or store failed; all others were closed. Further errors are added as notes.
        """
        self._lifecycle.move(TaskState.CLOSED)
        errors = self._nodes.close() + self._stores.close()
        log_unlogged()
        if errors:
            raise _select_error(errors)

    def _restore(self, saved: Snapshot) -> None:
        self._schedules.restore(saved.schedules)
        self._group.restore(saved.queues, saved.order)
        self._group.deadlines.update(saved.deadlines)
        self._context.restore_remembered(saved.remembered)
        self._state.stream_time_ms = saved.stream_time_ms
        self._counts.update(saved.metrics)
        self._reported = dict(self._counts)
        self._sequence = saved.sequence

    def _raise_fatal(self, error: BaseException, what: str = "") -> NoReturn:
        """Roll back, and raise the error that ends the task."""
        failure = error
        if isinstance(error, Exception):
            failure = fatal_error(self.task_id, self._context.source_record, error, what)
        self._lifecycle.fail(failure)
        failed = self._stores.rollback()
        for name, second in failed:
            failure.add_note(f"rollback of {name} failed: {describe_error(second)}")
        raise _select_error([failure, *(second for _, second in failed if not isinstance(second, Exception))])

    # ---- records ----

    @property
    def partitions(self) -> Set[TopicPartition]:
        """The partitions that the task reads."""
        return self._sources.keys()

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far, in milliseconds; -1 before the first."""
        return self._context.stream_time_ms

    @property
    def commit_requested(self) -> bool:
        """Whether a processor has requested a commit since the last commit."""
        return self._context.commit_requested

    @property
    def queued(self) -> int:
        """Number of records that have not been processed yet."""
        return len(self._group)

    def add_records(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition, in offset order.

        Raises:
            StreamsError: the first record of the queue cannot be deserialized and the handler returned FAIL, or the
                timestamp extractor failed.
            KeyError: the task does not read the partition.
        """
        self._lifecycle.require("add_records", TaskState.RUNNING)
        for _, of_topic in groupby(records, lambda record: record.topic):
            self._add(partition, SourceColumns.from_records(list(of_topic)))

    def add_columns(self, partition: TopicPartition, columns: Any) -> None:
        """Append records of a partition, in offset order; see ``SourceColumns.from_arrow``.

        Args:
            partition: partition of the records.
            columns: an Arrow record batch or table.

        Raises:
            StreamsError: see ``add_records``.
            ValueError: a column is missing.
            KeyError: the task does not read the partition.
        """
        self._lifecycle.require("add_columns", TaskState.RUNNING)
        for batch in columns.to_batches() if hasattr(columns, "to_batches") else (columns,):
            self._add(partition, SourceColumns.from_arrow(*partition, batch))

    @property
    def metrics(self) -> dict[str, int]:
        """Metric totals by name. In the names below, ``node``, ``store`` and ``reason`` are placeholders.

        The metrics are ``processed``, ``punctuated``, ``dropped``, ``dropped/reason``, ``enforced`` (records processed
        even though a partition was empty), ``node/processed``, ``node/nanoseconds`` (estimated, including downstream
        nodes), ``store/gets``, ``store/puts``, ``store/pages_read``, ``store/pages_written``, and the counters of
        processors. The node metrics and store metrics listed here start at 0 in a task that resumes from a snapshot.
        """
        return {**self._counts, **self._nodes.metrics(), **self._stores.metrics()}

    def take_metrics(self) -> dict[str, int]:
        """Return the increase of each metric since the last call; unchanged metrics are omitted.

        A task that resumes from a snapshot does not return increases before the snapshot.
        """
        before, self._reported = self._reported, self.metrics
        changes = {name: number - before.get(name, 0) for name, number in self._reported.items()}
        return {name: change for name, change in changes.items() if change}

    @property
    def sequence(self) -> int:
        """Number of records that ``take_output`` has returned.

        In a task that resumes from a snapshot, the number includes all records that sinks wrote before the snapshot.
        """
        return self._sequence

    @property
    def has_output(self) -> bool:
        """Whether sinks have written records since the last ``take_output`` call."""
        return len(self._output) > 0

    def take_output(self) -> SinkColumns:
        """Return the records written by sinks since the last call."""
        self._lifecycle.require("take_output", TaskState.RUNNING, TaskState.SUSPENDED)
        taken = SinkColumns(self._output.take())
        self._sequence += len(taken)
        return taken

    def update_lags(self) -> None:
        """Update the partition lags, which determine how long the task waits for empty partitions."""
        self._lifecycle.require("update_lags", TaskState.RUNNING, TaskState.SUSPENDED)
        self._group.update_lags()

    def run(self, limit: int | None = None) -> int:
        """Process queued records until the task must wait for empty partitions, and call due stream-time punctuators.

        Args:
            limit: maximum number of records; None disables the limit.

        Returns:
            The number of processed records. It can include a record that was dropped during deserialization.

        Raises:
            StreamsError: a node failed, and the error handler returned FAIL.
        """
        self._lifecycle.require("run", TaskState.RUNNING)
        count = 0
        while (limit is None or count < limit) and self._group.is_ready(self._clock()):
            first = self._group.first()
            if first is None:
                break
            queue, before_ms = first
            batch = queue.batch
            if batch is None or not batch.keys:
                count += self.process()
            else:
                allowed = self._group.allowed if limit is None else min(self._group.allowed, limit - count)
                end = min(batch.columns.rows, queue.row + allowed)
                count += self._run_batch(queue, batch, end, NEVER if before_ms is None else before_ms)
            if self._state.stream_time_ms >= self._state.due_ms:
                self.punctuate_stream_time()
        return count

    def process(self) -> bool:
        """Process the next record, and return whether there was one.

        Raises:
            StreamsError: a node failed, and the error handler returned FAIL.
        """
        self._lifecycle.require("process", TaskState.RUNNING)
        try:
            polled = self._group.poll()
            if polled is None:
                return False
            partition, (source, record, timestamp) = polled
            self._state.stream_time_ms = max(self._state.stream_time_ms, timestamp)
            if record is None:
                return True
            self._counts["enforced"] += self._group.is_enforced
            self._context.enter(SourceColumns.from_records([source]), 0, record)
            self._sources[partition].process(record)
            self._counts["processed"] += 1
        except BaseException as error:
            self._raise_fatal(error)
        finally:
            self._context.leave()
        return True

    def _add(self, partition: TopicPartition, columns: SourceColumns) -> None:
        if partition not in self._sources:
            raise KeyError(partition)
        try:
            self._group.add(partition, columns)
        except BaseException as error:
            self._raise_fatal(error)

    def _run_batch(self, queue: RecordQueue, batch: SourceBatch, stop: int, before_ms: int) -> int:
        """Process consecutive records of a queue, and return the number of processed records."""
        state, first = self._state, queue.row
        state.partition_time_ms = queue.time_ms
        self._context.enter(batch.columns, first, None)
        try:
            rows = (batch.keys, batch.values, batch.timestamps, batch.headers)
            end = run_rows(state, rows, stop, before_ms, self._sources[queue.partition].children)
            queue.time_ms = state.partition_time_ms
            state.source = None
            self._group.skip(end - first)
        except BaseException as error:
            self._raise_fatal(error)
        finally:
            self._context.leave()
        self._counts["processed"] += end - first
        self._counts["enforced"] += (end - first) * self._group.is_enforced
        return end - first

    # ---- punctuation ----

    def punctuate_stream_time(self) -> bool:
        """Call all due stream-time punctuators, and return whether any was due.

        Raises:
            StreamsError: a punctuator failed, and the error handler returned FAIL.
        """
        self._lifecycle.require("punctuate_stream_time", TaskState.RUNNING)
        if self._state.stream_time_ms == UNKNOWN:
            return False
        return self._punctuate(PunctuationType.STREAM_TIME, self._state.stream_time_ms)

    def punctuate_wall_clock(self) -> bool:
        """Call all due wall-clock punctuators, and return whether any was due.

        Raises:
            StreamsError: a punctuator failed, and the error handler returned FAIL.
        """
        self._lifecycle.require("punctuate_wall_clock", TaskState.RUNNING)
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._clock())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        try:
            return self._schedules.queues[kind].punctuate(now_ms, self._call_punctuator)
        finally:
            self._context.update_due_time()

    def _call_punctuator(self, schedule: Schedule, now_ms: int) -> None:
        self._context.enter(None, 0, Record(None, None, now_ms))
        try:
            try:
                schedule.punctuator(now_ms)
                self._counts["punctuated"] += 1
            except FatalError:
                raise
            except Exception as error:
                self._errors.on_punctuation_error(schedule.key.node, now_ms, error)
        except BaseException as error:
            self._raise_fatal(error)
        finally:
            self._context.leave()


def _select_error(errors: list[BaseException]) -> BaseException:
    """Return the error to raise: an interrupt, or else the first error. The other errors are added as notes."""
    chosen = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for error in errors:
        if error is not chosen:
            chosen.add_note(describe_error(error))
    return chosen
