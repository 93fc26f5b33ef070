"""A task: the nodes and stores of a sub-topology, for one partition of its topics.

Source: Kafka 3.9 StreamTask, ProcessorContextImpl and RecordCollectorImpl.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Set
from typing import NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.error_handling import ErrorHandling, FailedNodeError, describe_error, fatal_error
from zkconsumer.topology.processor import Cancellable, PunctuationType, Punctuator
from zkconsumer.topology.punctuation import PunctuationQueue, Schedule
from zkconsumer.topology.queues import UNKNOWN, PartitionGroup, RecordQueue
from zkconsumer.topology.records import SourceRecord
from zkconsumer.topology.stores.pages import PageLimits
from zkconsumer.topology.task_declaration import TaskDeclaration
from zkconsumer.topology.task_nodes import TaskNodes
from zkconsumer.topology.task_runtime import TaskRuntime
from zkconsumer.topology.task_stores import TaskStores


class _State(enum.Enum):
    """State of a task; the value completes the error about a call that it rejects.

    ``initialize`` leads from CREATED to RUNNING, an error from RUNNING to FAILED, ``close`` from every state to CLOSED.
    """

    CREATED = "before initialize()"
    RUNNING = "while the task was running"
    FAILED = "after the task failed; close it, and create a new one, which continues from the last commit"
    CLOSED = "after close()"


class StreamTask:
    """Processes the records of its partitions one by one, in the order of the timestamps at the heads of their queues.

    A task belongs to one thread. An error of ``add_records``, ``process``, a punctuation or ``commit`` ends it: its
    stores then contain the last commit, and every further call but ``close`` raises StreamsError. Its owner creates a
    new task, and adds the records from the offsets that ``committable`` returned at the last commit.

    Args:
        declaration: nodes, stores and partitions of the task; see ``Subtopology.task``.
        config: settings of the application.
        runtime: clock, storage, output and global stores of the task.

    Attributes:
        metrics: numbers by name: ``processed``, ``punctuated``, ``dropped``, and the counters of processors.
        commit_requested: whether a processor called ``commit`` since the last one.
        stores: the stores by name.
        is_processing: whether a node is called that may forward records.
        system_time_ms: wall-clock time in milliseconds at which the current record or punctuation started.
        source_record: the record that is processed; None in punctuations.

    Raises:
        StreamsError: a processor or store cannot be created, or belongs to another task.
    """

    def __init__(self, declaration: TaskDeclaration, config: ApplicationConfig, runtime: TaskRuntime) -> None:
        task_id = declaration.task_id
        self.task_id, self.config = task_id, config
        self.metrics = {"processed": 0, "punctuated": 0, "dropped": 0}
        self.commit_requested = False
        self.is_processing = False
        self.system_time_ms = runtime.clock()
        self.source_record: SourceRecord | None = None
        self._clock = runtime.clock
        self._errors = ErrorHandling(task_id, config, self.metrics, runtime.send)
        self._schedules = {kind: PunctuationQueue() for kind in PunctuationType}
        self._state = _State.CREATED
        self._failure: BaseException | None = None
        self._nodes = TaskNodes(declaration.nodes, self, self._errors, runtime)
        self._stores = TaskStores(
            task_id,
            declaration.stores,
            runtime,
            PageLimits(config.page_bytes, config.page_memory_bytes),
            lambda store: self._errors.drop(self.source_record, reason="expired", store=store),
        )
        self.stores = self._stores.by_name
        self._sources = {partition: self._nodes.find_source(name) for partition, name in declaration.sources.items()}
        queues = [RecordQueue(partition, source.decode) for partition, source in self._sources.items()]
        self._group = PartitionGroup(queues, config.max_task_idle_ms, runtime.lag_of)

    # ---- lifecycle ----

    def initialize(self) -> None:
        """Open the stores and initialize the processors, parents first.

        Raises:
            StreamsError: a store or processor failed, or the call is not the first one. Those that were initialized
                before are closed; the one that failed is not.
        """
        self._require(_State.CREATED, "initialize")
        try:
            self._stores.open()
            self._nodes.initialize(self._stores, self.metrics)
        except BaseException as error:
            try:
                self.close()
            except StreamsError as second:
                error.add_note(str(second))
            raise
        self._state = _State.RUNNING

    def commit(self) -> None:
        """Commit the changes of all stores, or none.

        Raises:
            StreamsError: the commit failed. All stores contain the last commit.

        An interrupt, such as KeyboardInterrupt, can arrive after the storage has committed. All stores in the storage
        then contain the new commit, and stores in memory may contain the one before.
        """
        self._require(_State.RUNNING, "commit")
        try:
            self._stores.commit()
        except BaseException as error:
            self._raise_fatal(error, "commit failed: ")
        self.commit_requested = False

    def committable(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to process by partition, to be stored with the commit of the stores.

        Partitions that have not had a record are missing. Source: Kafka 3.9 StreamTask.committableOffsetsAndMetadata.
        """
        self._require(_State.RUNNING, "committable")
        return self._group.next_offsets()

    def close(self) -> None:
        """Close the processors that were initialized, and the stores. Uncommitted changes are discarded.

        Raises:
            StreamsError: a processor or store failed; the others were closed, and their errors are its notes.
        """
        self._state = _State.CLOSED
        errors = self._nodes.close() + self._stores.close()
        if errors:
            raise _select_error(errors)

    def _require(self, state: _State, call: str) -> None:
        if self._state is not state:
            raise StreamsError(f"task {self.task_id}: {call}() was called {self._state.value}") from self._failure

    def _raise_fatal(self, error: BaseException, what: str = "") -> NoReturn:
        """Roll back, and raise the error that ends the task."""
        self._state, failure = _State.FAILED, error
        if isinstance(error, Exception):
            failure = fatal_error(self.task_id, self.source_record, error, what)
        self._failure = failure
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
        return self._group.stream_time_ms

    @property
    def queued(self) -> int:
        """Number of records that were not processed yet."""
        return len(self._group)

    def partition_times(self) -> dict[TopicPartition, int]:
        """Return the highest timestamp of the records processed so far, by partition, in milliseconds."""
        return self._group.times()

    def set_partition_times(self, times: Mapping[TopicPartition, int]) -> None:
        """Continue with the times that ``partition_times`` returned in an earlier task."""
        self._group.set_times(times)

    def add_records(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition, in the order of their offsets.

        Raises:
            StreamsError: the first record of the queue cannot be deserialized and the handler returned FAIL, or its
                timestamp extractor failed.
            KeyError: the task does not have the partition.
        """
        self._require(_State.RUNNING, "add_records")
        if partition not in self._sources:
            raise KeyError(partition)
        try:
            self._group.add(partition, records)
        except BaseException as error:
            self._raise_fatal(error)

    def update_lags(self) -> None:
        """Request the lags of the partitions, which decide how long the task waits for empty ones."""
        self._group.update_lags()

    def is_processable(self) -> bool:
        """Return whether ``process`` may be called: no partition whose records may be earlier has to be waited for."""
        return self._group.is_ready(self._clock())

    def process(self) -> bool:
        """Process the next record, and return whether there was one.

        Raises:
            StreamsError: a node failed, and the error handler returned FAIL.
        """
        self._require(_State.RUNNING, "process")
        try:
            polled = self._group.poll()
            if polled is None:
                return False
            partition, (source, record, _) = polled
            if record is None:
                return True
            self.source_record = source
            self.system_time_ms = self._clock()
            self.is_processing = True
            self._sources[partition].process(record)
            self.metrics["processed"] += 1
        except BaseException as error:
            self._raise_fatal(error)
        finally:
            self.is_processing = False
            self.source_record = None
        return True

    # ---- punctuation ----

    def schedule(self, node: str, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Create a schedule; see ``ProcessorContext.schedule``."""
        if not (self.is_processing or self._state is _State.CREATED):
            raise StreamsError(f"processor {node!r}: schedule() was called outside init(), process() and punctuators")
        due_ms = 0 if kind is PunctuationType.STREAM_TIME else self._clock() + interval_ms
        schedule = Schedule(node, due_ms, interval_ms, punctuator)
        self._schedules[kind].add(schedule)
        return schedule

    def punctuate_stream_time(self) -> bool:
        """Call the stream-time schedules that are due, and return whether there was one.

        Raises:
            StreamsError: a punctuator failed, and the error handler returned FAIL.
        """
        self._require(_State.RUNNING, "punctuate_stream_time")
        if self.stream_time_ms == UNKNOWN:
            return False
        return self._schedules[PunctuationType.STREAM_TIME].punctuate(self.stream_time_ms, self._call_punctuator)

    def punctuate_wall_clock(self) -> bool:
        """Call the wall-clock schedules that are due, and return whether there was one.

        Raises:
            StreamsError: a punctuator failed, and the error handler returned FAIL.
        """
        self._require(_State.RUNNING, "punctuate_wall_clock")
        return self._schedules[PunctuationType.WALL_CLOCK_TIME].punctuate(self._clock(), self._call_punctuator)

    def _call_punctuator(self, schedule: Schedule, now_ms: int) -> None:
        self.system_time_ms = self._clock()
        self.is_processing = True
        try:
            try:
                schedule.punctuator(now_ms)
                self.metrics["punctuated"] += 1
            except FailedNodeError:
                raise
            except Exception as error:
                self._errors.on_punctuation_error(schedule.node, now_ms, error)
        except BaseException as error:
            self._raise_fatal(error)
        finally:
            self.is_processing = False


def _select_error(errors: list[BaseException]) -> BaseException:
    """Return the error to raise, which is an interrupt or the first one, with the others as its notes."""
    chosen = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for error in errors:
        if error is not chosen:
            chosen.add_note(describe_error(error))
    return chosen
