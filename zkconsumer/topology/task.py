"""A task: the nodes and stores of a sub-topology, for one partition of its topics.

Source: Kafka 3.9 StreamTask, ProcessorContextImpl and RecordCollectorImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.context import NodeContext
from zkconsumer.topology.failures import FailedNodeError, Failures, ending, text
from zkconsumer.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.processor import Cancellable, PunctuationType, Punctuator
from zkconsumer.topology.punctuation import PunctuationQueue, Schedule
from zkconsumer.topology.queues import UNKNOWN, PartitionGroup, RecordQueue
from zkconsumer.topology.records import RecordMetadata, SourceRecord
from zkconsumer.topology.running import RunningNode, RunningProcessor, RunningSink, RunningSource
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.task_io import TaskIO
from zkconsumer.topology.task_stores import TaskStores

#: Metadata of records that a punctuation forwards.
_PUNCTUATION = RecordMetadata(None, -1, -1)


class StreamTask:
    """Processes the records of its partitions one by one, in the order of the timestamps at the heads of their queues.

    A task belongs to one thread. After an error of ``add_records``, ``process``, a punctuation or ``commit``, its
    stores contain what was committed last, and the record that failed counts as processed.

    Args:
        task_id: number of the sub-topology and of the partition, such as ``0_3``.
        nodes: the nodes of the sub-topology, parents before children.
        builders: the stores of the topology by name; those that are connected to the nodes are created.
        partitions: name of the source node of each partition.
        config: settings of the application.
        io: interfaces that the task uses.
        global_stores: the global stores by name.

    Attributes:
        metrics: numbers by name: ``processed``, ``punctuated``, ``dropped``, and the counters of processors.
        commit_requested: whether a processor has called ``commit`` since the last one.
        stores: the stores by name.
        source_record: the record that is processed; None in punctuations.
        failures: calls the error handlers.

    Raises:
        StreamsError: a processor or store cannot be created, or belongs to another task.
    """

    def __init__(
        self,
        task_id: str,
        nodes: Iterable[Node],
        builders: Mapping[str, StoreBuilder],
        partitions: Mapping[TopicPartition, str],
        config: ApplicationConfig,
        io: TaskIO,
        global_stores: Mapping[str, StateStore] | None = None,
    ) -> None:
        self.task_id, self.config = task_id, config
        self.global_stores = {} if global_stores is None else global_stores
        self.metrics = {"processed": 0, "punctuated": 0, "dropped": 0}
        self.commit_requested = False
        self.is_processing = False
        self.system_time_ms = io.clock()
        self.send, self.partition_count = io.send, io.partition_count
        self.failures = Failures(task_id, config, self.metrics, io.send)
        self.source_record: SourceRecord | None = None
        self._io = io
        self._schedules = {kind: PunctuationQueue() for kind in PunctuationType}
        self._is_initializing = False
        self._stores = TaskStores(task_id, io, self._count_expired)
        self.stores = self._stores.by_name
        self._nodes: dict[str, RunningNode] = {}
        for node in nodes:
            self._add(node, builders)
        self._sources = {partition: self._source(name) for partition, name in partitions.items()}
        queues = [RecordQueue(partition, source.decode) for partition, source in self._sources.items()]
        self._group = PartitionGroup(queues, config.max_task_idle_ms, io.lag_of)

    # ---- lifecycle -----------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Open the stores and initialize the processors, parents first.

        Raises:
            StreamsError: a store or processor has failed. Those that were initialized are closed.
        """
        self._is_initializing = True
        try:
            self._stores.open()
            for node in self._nodes.values():
                if isinstance(node, RunningProcessor):
                    node.init_with(NodeContext(node, self))
        except StreamsError as error:
            try:
                self.close()
            except StreamsError as second:
                error.add_note(str(second))
            raise
        finally:
            self._is_initializing = False

    def commit(self) -> None:
        """Commit the changes of all stores, or none.

        Raises:
            StreamsError: the commit failed. All stores contain the last commit.
        """
        try:
            self._stores.commit()
        except BaseException as error:
            self.rollback()
            if not isinstance(error, Exception):
                raise
            raise StreamsError(f"task {self.task_id}: commit failed: {text(error)}") from error
        self.commit_requested = False

    def rollback(self) -> None:
        """Discard the changes of the stores since the last commit."""
        self._stores.rollback()

    def close(self) -> None:
        """Close the processors that were initialized, and the stores. Uncommitted changes are discarded.

        Raises:
            StreamsError: a processor or store has failed; the others were closed.
        """
        errors = []
        for node in self._nodes.values():
            try:
                node.close()
            except StreamsError as error:
                errors.append(error)
        errors += self._stores.close()
        if errors:
            raise errors[0]

    # ---- records -------------------------------------------------------------------------------------------

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far, in milliseconds; -1 before the first."""
        return self._group.stream_time_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read; None outside of ``process`` and punctuations."""
        source = self.source_record
        if source is None:
            return _PUNCTUATION if self.is_processing else None
        return RecordMetadata(source.topic, source.partition, source.offset)

    @property
    def queued(self) -> int:
        """Number of records that were not processed yet."""
        return len(self._group)

    def partition_times(self) -> dict[TopicPartition, int]:
        """Return the highest timestamp of the records processed so far, by partition, in milliseconds."""
        return self._group.times()

    def set_partition_times(self, times: Mapping[TopicPartition, int]) -> None:
        """Continue with the times that ``partition_times`` has returned in an earlier task."""
        self._group.set_times(times)

    def add_records(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition, in the order of their offsets.

        Raises:
            StreamsError: the first record of the queue cannot be deserialized and the handler has returned FAIL, or its
                timestamp extractor has failed.
            KeyError: the task does not have the partition.
        """
        try:
            self._group.add(partition, records)
        except (FailedNodeError, StreamsError) as error:
            self._end(error)

    def update_lags(self) -> None:
        """Request the lags of the partitions, which decide how long the task waits for empty ones."""
        self._group.update_lags()

    def is_processable(self) -> bool:
        """Return whether ``process`` may be called: no partition whose records may be earlier has to be waited for."""
        return self._group.is_ready(self._io.clock())

    def process(self) -> bool:
        """Process the next record, and return whether there was one.

        Raises:
            StreamsError: a node has failed, and the error handler has returned FAIL.
        """
        try:
            polled = self._group.poll()
            if polled is None:
                return False
            partition, (source, record, _) = polled
            if record is None:
                return True
            self.source_record = source
            self.system_time_ms = self._io.clock()
            self.is_processing = True
            self._sources[partition].process(record)
            self.metrics["processed"] += 1
        except Exception as error:
            self._end(error)
        finally:
            self.is_processing = False
            self.source_record = None
        return True

    # ---- punctuation ---------------------------------------------------------------------------------------

    def schedule(self, node: str, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Create a schedule; see ``ProcessorContext.schedule``."""
        if not (self.is_processing or self._is_initializing):
            raise StreamsError(f"task {self.task_id}: {node!r} can schedule only inside init, process and punctuations")
        due_ms = 0 if kind is PunctuationType.STREAM_TIME else self._io.clock() + interval_ms
        schedule = Schedule(node, due_ms, interval_ms, punctuator)
        self._schedules[kind].add(schedule)
        return schedule

    def punctuate_stream_time(self) -> bool:
        """Call the stream-time schedules that are due, and return whether there was one.

        Raises:
            StreamsError: a punctuator has failed, and the error handler has returned FAIL.
        """
        if self.stream_time_ms == UNKNOWN:
            return False
        return self._punctuate(PunctuationType.STREAM_TIME, self.stream_time_ms)

    def punctuate_wall_clock(self) -> bool:
        """Call the wall-clock schedules that are due, and return whether there was one.

        Raises:
            StreamsError: a punctuator has failed, and the error handler has returned FAIL.
        """
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._io.clock())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        return self._schedules[kind].punctuate(now_ms, lambda schedule: self._call(schedule, now_ms))

    def _call(self, schedule: Schedule, now_ms: int) -> None:
        self.system_time_ms = self._io.clock()
        self.is_processing = True
        try:
            self._punctuate_guarded(schedule, now_ms)
        except Exception as error:
            self._end(error)
        finally:
            self.is_processing = False

    def _punctuate_guarded(self, schedule: Schedule, now_ms: int) -> None:
        try:
            schedule.punctuator(now_ms)
            self.metrics["punctuated"] += 1
        except FailedNodeError:
            raise
        except Exception as error:
            self.failures.failed_punctuation(schedule.node, now_ms, error)

    def _end(self, error: Exception) -> NoReturn:
        """Roll back, and raise the error that ends the task."""
        self.rollback()
        failure, cause = ending(self.task_id, self.source_record, error)
        raise failure from cause

    # ---- stores --------------------------------------------------------------------------------------------

    def set_read_only(self, is_read_only: bool) -> None:
        """Let changes of the stores raise an error, or allow them."""
        self._stores.set_read_only(is_read_only)

    def _count_expired(self, store: str) -> None:
        self.failures.drop("expired", self.source_record, store=store)

    # ---- nodes ---------------------------------------------------------------------------------------------

    def _add(self, node: Node, builders: Mapping[str, StoreBuilder]) -> None:
        running: RunningNode
        match node:
            case SourceNode():
                running = RunningSource(node, self)
            case ProcessorNode(stores=names):
                running = RunningProcessor(node, self)
                for name in names:
                    if name in builders:
                        self._stores.create(builders[name])
            case SinkNode():
                running = RunningSink(node, self)
        self._nodes[node.name] = running
        for parent in node.parents:
            self._nodes[parent].add_child(running)

    def _source(self, name: str) -> RunningSource:
        source = self._nodes[name]
        assert isinstance(source, RunningSource)
        return source
