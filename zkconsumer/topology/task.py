"""A task: the nodes and stores of a sub-topology, for one partition of its topics.

Source: Kafka 3.9 StreamTask, ProcessorContextImpl and RecordCollectorImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer.errors import StreamsError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.topology import handlers
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.context import NodeContext
from zkconsumer.topology.handlers import ErrorContext, ErrorHandler, ErrorResponse
from zkconsumer.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.processor import Cancellable, PunctuationType, Punctuator
from zkconsumer.topology.punctuation import PunctuationQueue, Schedule
from zkconsumer.topology.queues import UNKNOWN, PartitionGroup, RecordQueue
from zkconsumer.topology.records import Record, RecordMetadata, SinkRecord, SourceRecord
from zkconsumer.topology.running import (
    FailedProcessingError,
    RunningNode,
    RunningProcessor,
    RunningSink,
    RunningSource,
)
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.stores.pages import PagedMap, PageStore

_log = get_logger(__name__)

#: Metadata of records that a punctuation forwards.
_PUNCTUATION = RecordMetadata(None, -1, -1)


class TaskIO:
    """What surrounds a task: clock, pages of its stores, lags of its partitions, and where its records go.

    Args:
        clock: returns the wall-clock time in milliseconds.
        pages: returns the pages of a store.
        send: takes the records of sinks.
        lag_of: returns the lag of a partition, or None if it is unknown.
        partition_count: returns the number of partitions of a topic, for the partitioners of sinks.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        pages: Callable[[StateStore], PageStore],
        send: Callable[[SinkRecord], object],
        lag_of: Callable[[TopicPartition], int | None] = lambda _partition: 0,
        partition_count: Callable[[str], int] = lambda _topic: 1,
    ) -> None:
        self.clock, self.pages, self.send = clock, pages, send
        self.lag_of, self.partition_count = lag_of, partition_count


class StreamTask:
    """Processes the records of its partitions one by one, in the order of the timestamps at the heads of their queues.

    A task belongs to one thread. After an error of ``process`` or of a punctuation, its stores contain what was
    committed last, and the record that failed counts as taken.

    Args:
        task_id: number of the sub-topology and of the partition, such as ``0_3``.
        nodes: the nodes of the sub-topology, parents before children.
        builders: the stores of the topology by name; those that are connected to the nodes are created.
        partitions: name of the source node of each partition.
        config: settings of the application.
        io: what surrounds the task.
        global_stores: the global stores by name.

    Attributes:
        metrics: numbers by name: ``processed``, ``punctuated``, ``dropped``, and the counters of processors.
        commit_requested: whether a processor has called ``commit`` since the last one.
        stores: the stores by name.
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
        self._io = io
        self._source_record: SourceRecord | None = None
        self._schedules = {kind: PunctuationQueue() for kind in PunctuationType}
        self._is_initializing = False
        self._maps: dict[str, PagedMap] = {}
        self._nodes: dict[str, RunningNode] = {}
        self.stores: dict[str, StateStore] = {}
        for node in nodes:
            self._add(node, builders)
        self._sources = {partition: self._source(name) for partition, name in partitions.items()}
        queues = [RecordQueue(partition, source.decode) for partition, source in self._sources.items()]
        self._group = PartitionGroup(queues, config.max_task_idle_ms, io.lag_of)

    # ---- life ----------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Open the stores and initialize the processors, parents first.

        Raises:
            StreamsError: a processor has failed.
        """
        for store in self.stores.values():
            store.init(self)
        self._is_initializing = True
        try:
            for node in self._nodes.values():
                if isinstance(node, RunningProcessor):
                    node.init_with(NodeContext(node, self))
        finally:
            self._is_initializing = False

    def commit(self) -> None:
        """Write all changes of the stores to their pages."""
        for store in self.stores.values():
            store.flush()
        for entries in self._maps.values():
            entries.flush()
        self.commit_requested = False

    def rollback(self) -> None:
        """Discard the changes of the stores since the last commit."""
        for entries in self._maps.values():
            entries.rollback()
        for store in self.stores.values():
            store.rollback()

    def close(self) -> None:
        """Close all processors.

        Raises:
            StreamsError: a processor has failed; the others were closed.
        """
        errors = []
        for node in self._nodes.values():
            try:
                node.close()
            except StreamsError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # ---- records -------------------------------------------------------------------------------------------

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records that were taken, in milliseconds; -1 before the first."""
        return self._group.stream_time_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read; None outside of ``process`` and punctuations."""
        source = self._source_record
        if source is None:
            return _PUNCTUATION if self.is_processing else None
        return RecordMetadata(source.topic, source.partition, source.offset)

    @property
    def queued(self) -> int:
        """Number of records that were not taken yet."""
        return len(self._group)

    def partition_times(self) -> dict[TopicPartition, int]:
        """Return the highest timestamp of the records that were taken, by partition, in milliseconds."""
        return self._group.times()

    def set_partition_times(self, times: Mapping[TopicPartition, int]) -> None:
        """Continue with the times that ``partition_times`` has returned in an earlier task."""
        self._group.set_times(times)

    def add_records(self, partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
        """Append records of a partition, in the order of their offsets.

        Raises:
            StreamsError: the first one cannot be deserialized, and the handler has answered FAIL.
            KeyError: the task does not have the partition.
        """
        self._group.add(partition, records)

    def update_lags(self) -> None:
        """Request the lags of the partitions, which decide how long the task waits for empty ones."""
        self._group.update_lags()

    def is_processable(self) -> bool:
        """Return whether ``process`` may be called: no partition whose records may be earlier has to be waited for."""
        return self._group.is_ready(self._io.clock())

    def process(self) -> bool:
        """Process the next record, and return whether there was one.

        Raises:
            StreamsError: a node has failed, and the handler has answered FAIL.
        """
        polled = self._group.poll()
        if polled is None:
            return False
        partition, (source, record, _) = polled
        if record is None:
            return True
        self._source_record = source
        self.system_time_ms = self._io.clock()
        self.is_processing = True
        try:
            self._sources[partition].process(record)
            self.metrics["processed"] += 1
        except FailedProcessingError as error:
            self.rollback()
            raise StreamsError(f"{error.context}: {_text(error.error)}") from error.error
        except Exception as error:
            self.rollback()
            where = f"topic {source.topic}, partition {source.partition}, offset {source.offset}"
            raise StreamsError(f"task {self.task_id}, {where}: {_text(error)}") from error
        finally:
            self._end()
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
            StreamsError: a punctuator has failed, and the handler has answered FAIL.
        """
        if self.stream_time_ms == UNKNOWN:
            return False
        return self._punctuate(PunctuationType.STREAM_TIME, self.stream_time_ms)

    def punctuate_wall_clock(self) -> bool:
        """Call the wall-clock schedules that are due, and return whether there was one.

        Raises:
            StreamsError: a punctuator has failed, and the handler has answered FAIL.
        """
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._io.clock())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        return self._schedules[kind].punctuate(now_ms, lambda schedule: self._call(schedule, now_ms))

    def _call(self, schedule: Schedule, now_ms: int) -> None:
        self.system_time_ms = self._io.clock()
        self.is_processing = True
        try:
            schedule.punctuator(now_ms)
            self.metrics["punctuated"] += 1
        except FailedProcessingError as error:
            self.rollback()
            raise StreamsError(f"{error.context}: {_text(error.error)}") from error.error
        except Exception as error:
            context = ErrorContext("punctuation", self.task_id, schedule.node, None, now_ms)
            if not self._handled(self.config.processing_handler, context, error):
                self.rollback()
                raise StreamsError(f"{context}: a punctuation has failed: {_text(error)}") from error
        finally:
            self._end()

    def _end(self) -> None:
        self.is_processing = False
        self._source_record = None

    # ---- errors --------------------------------------------------------------------------------------------

    def handle_unreadable(self, node: str, source: SourceRecord, error: Exception) -> None:
        """Let the handler decide about a record that cannot be deserialized."""
        context = ErrorContext("deserialization", self.task_id, node, source, source.timestamp)
        if not self._handled(self.config.deserialization_handler, context, error):
            raise StreamsError(f"{context}: the record cannot be deserialized: {_text(error)}") from error

    def handle_failed(self, node: str, timestamp: int, error: Exception) -> None:
        """Let the handler decide about an error of a processor."""
        context = ErrorContext("processing", self.task_id, node, self._source_record, timestamp)
        if not self._handled(self.config.processing_handler, context, error):
            raise FailedProcessingError(context, error) from error

    def handle_unserializable(self, node: str, topic: str, record: Record, error: Exception) -> None:
        """Let the handler decide about a record that cannot be serialized."""
        context = ErrorContext("production", self.task_id, node, self._source_record, record.timestamp)
        if not self._handled(self.config.production_handler, context, error):
            # The caller adds the task, and where the record was read.
            raise StreamsError(
                f"sink {node!r}: a record for topic {topic!r} cannot be serialized: {_text(error)}"
            ) from error

    def _handled(self, handler: ErrorHandler, context: ErrorContext, error: Exception) -> bool:
        try:
            response = handler(context, error)
        except Exception as second:
            raise FailedProcessingError(context, second) from error
        if not isinstance(response, ErrorResponse):
            raise FailedProcessingError(
                context, StreamsError(f"the handler must return an ErrorResponse, it returned {response!r}")
            ) from error
        if response is ErrorResponse.FAIL:
            return False
        if response is ErrorResponse.QUARANTINE:
            topic = self.config.quarantine_topic
            if topic is None:
                raise FailedProcessingError(
                    context, StreamsError("the handler answered QUARANTINE: set quarantine_topic")
                )
            self.send(handlers.quarantined(topic, context, error))
        self.metrics["dropped"] += 1
        _log.warning("record_dropped", task=self.task_id, node=context.node, reason=context.phase, error=_text(error))
        return True

    # ---- stores --------------------------------------------------------------------------------------------

    def byte_map(self, store: str) -> PagedMap:
        """Return the map of bytes of a store."""
        if store not in self._maps:
            self._maps[store] = PagedMap(self._io.pages(self.stores[store]))
        return self._maps[store]

    def count_expired(self, store: str) -> None:
        """Count and log an entry that a store has not accepted, because its time has expired."""
        self.drop("expired", store=store)

    def drop(self, reason: str, **where: object) -> None:
        """Count and log a record that was dropped without an error."""
        self.metrics["dropped"] += 1
        _log.warning("record_dropped", task=self.task_id, reason=reason, **where)

    # ---- nodes ---------------------------------------------------------------------------------------------

    def _add(self, node: Node, builders: Mapping[str, StoreBuilder]) -> None:
        running: RunningNode
        match node:
            case SourceNode():
                running = RunningSource(node, self)
            case ProcessorNode(stores=names):
                running = RunningProcessor(node, self)
                for name in names:
                    if name in builders and name not in self.stores:
                        self.stores[name] = builders[name].create()
            case SinkNode():
                running = RunningSink(node, self)
        self._nodes[node.name] = running
        for parent in node.parents:
            self._nodes[parent].add_child(running)

    def _source(self, name: str) -> RunningSource:
        source = self._nodes[name]
        assert isinstance(source, RunningSource)
        return source


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, StreamsError) else str(error)
