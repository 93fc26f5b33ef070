"""``TopologyTestDriver``: runs a topology in a test, without Kafka and without Spark.

Source: Kafka 3.9 org.apache.kafka.streams.TopologyTestDriver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zkconsumer.errors import ClosedError, StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.checks import check_functions
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.error_handling import describe_error
from zkconsumer.topology.global_task import GlobalTask
from zkconsumer.topology.nodes import Deserializer, Serializer, SourceNode
from zkconsumer.topology.patterns import create_filter
from zkconsumer.topology.records import SinkRecord, SourceRecord
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.stores.pages import MemoryPages, PageStore
from zkconsumer.topology.task import StreamTask
from zkconsumer.topology.task_runtime import TaskRuntime
from zkconsumer.topology.test_driver_topics import TestInputTopic, TestOutputTopic

if TYPE_CHECKING:
    from zkconsumer.rebalance.topic_filter import TopicFilter


class TopologyTestDriver:
    """Runs all sub-topologies of a topology as one task ``0_0``, with one partition for each topic.

    Each record is processed completely when it is written, with the stream-time schedules that are due and a commit
    after it. Records that a sink writes to a source topic are processed after it. The wall clock stands still between
    calls of ``advance_wall_clock_time``.

    An error of a task stops the driver, as it ends the task. Records processed before are committed; the changes and
    output of the record that failed, and of punctuations called with it, are discarded, and queued records are not
    processed. Output topics and stores can still be read; other calls raise StreamsError. A new driver with the same
    ``state_file`` continues from the last commit.

    Args:
        topology: the topology.
        config: settings of the application.
        now_ms: initial wall-clock time in milliseconds.
        state_file: file of the persistent stores. A driver that is created later with the same file continues with
            their entries. None keeps all stores in memory.

    Raises:
        StreamsError: a processor failed in ``init``, or the file cannot be opened.
    """

    __test__ = False  # not a test class of pytest

    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig | None = None,
        now_ms: int = 0,
        *,
        state_file: str | PathLike[str] | None = None,
    ) -> None:
        self._topology = topology
        self._config = config or ApplicationConfig()
        self._now_ms = now_ms
        self._offsets: dict[TopicPartition, int] = {}
        self._sent: list[SinkRecord] = []
        self._to_sources: deque[SinkRecord] = deque()
        self._produced: set[str] = set()
        self._outputs: dict[str, deque[SinkRecord]] = {}
        self._patterns: dict[TopicPartition, TopicFilter] = {}
        self._state = None if state_file is None else StateFile(state_file)
        self._is_open = True
        self._failure: BaseException | None = None
        self._global_tasks: dict[str, GlobalTask] = {}
        self._closing = ExitStack()
        if self._state is not None:
            self._closing.callback(self._state.close)
        try:
            self._start(self._create_runtime())
        except BaseException as error:
            try:
                self._closing.close()
            except StreamsError as second:
                error.add_note(str(second))
            raise

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all processors. A second call has no effect.

        Raises:
            StreamsError: a processor failed in ``close``.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._closing.close()

    def create_input_topic(
        self,
        topic: str,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        start_ms: int = 0,
        auto_advance_ms: int = 0,
    ) -> TestInputTopic:
        """Return an object that writes to a topic.

        Args:
            topic: the topic.
            key_serializer: for keys; None for that of the application.
            value_serializer: for values; None for that of the application.
            start_ms: timestamp of the first record without one, in milliseconds.
            auto_advance_ms: milliseconds from one such record to the next one.
        """
        check_functions(f"topic {topic!r}", key_serializer=key_serializer, value_serializer=value_serializer)
        key = key_serializer or self._config.key_serde.serialize
        value = value_serializer or self._config.value_serde.serialize
        return TestInputTopic(self._pipe, topic, (key, value), start_ms, auto_advance_ms)

    def create_output_topic(
        self, topic: str, key_deserializer: Deserializer | None = None, value_deserializer: Deserializer | None = None
    ) -> TestOutputTopic:
        """Return an object that reads what sinks wrote to a topic.

        Args:
            topic: the topic.
            key_deserializer: for keys; None for that of the application.
            value_deserializer: for values; None for that of the application.
        """
        check_functions(f"topic {topic!r}", key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        key = key_deserializer or self._config.key_serde.deserialize
        value = value_deserializer or self._config.value_serde.deserialize
        return TestOutputTopic(self._outputs.setdefault(topic, deque()), topic, (key, value))

    def advance_wall_clock_time(self, advance_ms: int) -> None:
        """Advance the wall clock, and call the schedules that are due.

        Raises:
            ValueError: ``advance_ms`` is negative.
            StreamsError: a node failed, and the error handler returned FAIL, now or in an earlier call.
        """
        self._check_running()
        if advance_ms < 0:
            raise ValueError(f"advance_ms must not be negative, got {advance_ms}")
        self._now_ms += advance_ms
        with self._stopping_after_error():
            self._task.punctuate_wall_clock()
            self._task.commit()
            self._run()

    def get_state_store(self, name: str) -> Any:
        """Return a store of the task, or a global store; None if there is none."""
        store = self._task.stores.get(name)
        return store if store is not None else self._global_stores.get(name)

    def get_all_state_stores(self) -> dict[str, StateStore]:
        """Return all stores by name."""
        return {**self._global_stores, **self._task.stores}

    @property
    def metrics(self) -> dict[str, int]:
        """Numbers by name; see ``StreamTask``. Those of global stores are added."""
        total: dict[str, int] = {}
        for task in (self._task, *self._global_tasks.values()):
            for name, number in task.metrics.items():
                total[name] = total.get(name, 0) + number
        return total

    def produced_topics(self) -> set[str]:
        """Return the topics to which sinks wrote."""
        return set(self._produced)

    # ---- tasks ----

    def _create_runtime(self) -> TaskRuntime:
        commit, rollback = (_do_nothing, _do_nothing)  # for pages in memory
        if self._state is not None:
            commit, rollback = self._state.commit, self._state.rollback
        return TaskRuntime(
            clock=self._read_clock, pages=self._create_pages, send=self._sent.append, commit=commit, rollback=rollback
        )

    def _start(self, runtime: TaskRuntime) -> None:
        for store in self._topology.global_stores.values():
            task = self._global_tasks[store.source.topics[0]] = GlobalTask(store, [0], self._config, runtime)
            self._closing.callback(task.close)
            task.initialize()
        tasks = self._global_tasks.values()
        self._global_stores = {name: store for task in tasks for name, store in task.stores.items()}
        self._task = self._create_task(replace(runtime, global_stores=self._global_stores))
        self._closing.callback(self._task.close)
        self._task.initialize()
        self._task.commit()

    def _read_clock(self) -> int:
        return self._now_ms

    def _create_pages(self, store: StateStore) -> PageStore:
        return self._state.pages(store.name) if self._state is not None and store.is_persistent else MemoryPages()

    def _create_task(self, runtime: TaskRuntime) -> StreamTask:
        global_nodes = {node.name for store in self._topology.global_stores.values() for node in store[1:]}
        nodes = [node for name, node in self._topology.nodes.items() if name not in global_nodes]
        partitions: dict[TopicPartition, str] = {}
        for node in nodes:
            if isinstance(node, SourceNode):
                # All topics of a pattern share one queue, as in the driver of Kafka Streams.
                partitions |= {TopicPartition(topic, 0): node.name for topic in node.topics or (str(node.pattern),)}
                if node.pattern is not None:
                    self._patterns[TopicPartition(node.pattern, 0)] = create_filter(node.pattern)
        self._partitions = partitions
        return StreamTask("0_0", nodes, self._topology.stores, partitions, self._config, runtime)

    def _find_queue(self, topic: str) -> TopicPartition | None:
        partition = TopicPartition(topic, 0)
        if partition in self._partitions and partition not in self._patterns:
            return partition
        matching = (queue for queue, pattern in self._patterns.items() if pattern.is_topic_allowed(topic, False))
        return next(matching, None)

    def _pipe(self, record: SinkRecord) -> None:
        self._check_running()
        if self._find_queue(record.topic) is None and record.topic not in self._global_tasks:
            topics = ", ".join([*(p.topic for p in self._partitions), *self._global_tasks]) or "none"
            raise ValueError(f"no source reads topic {record.topic!r}; the sources read: {topics}")
        with self._stopping_after_error():
            self._to_sources.append(record)
            self._run()

    @contextmanager
    def _stopping_after_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failure = error
            self._sent.clear()
            raise

    def _run(self) -> None:
        self._deliver()
        self._task.update_lags()
        while self._task.queued and self._task.is_processable() and self._task.process():
            self._task.punctuate_stream_time()
            self._task.commit()
            self._deliver()

    def _deliver(self) -> None:
        """Move what sinks sent to the output topics, and to the sources that read them."""
        while self._sent or self._to_sources:
            for record in self._sent:
                self._outputs.setdefault(record.topic, deque()).append(record)
                self._produced.add(record.topic)
            self._to_sources.extend(self._sent)
            self._sent.clear()
            if self._to_sources:
                self._read(self._to_sources.popleft())  # may send records to the quarantine topic

    def _read(self, record: SinkRecord) -> None:
        """Add a record to the tasks whose sources read its topic."""
        partition = self._find_queue(record.topic)
        if partition is not None:
            self._task.add_records(partition, [self._to_source_record(partition, record)])
        task = self._global_tasks.get(record.topic)
        if task is not None:
            task.update(self._to_source_record(TopicPartition(record.topic, 0), record))

    def _to_source_record(self, partition: TopicPartition, record: SinkRecord) -> SourceRecord:
        offset = self._offsets.get(partition, -1) + 1
        self._offsets[partition] = offset
        return SourceRecord(record.topic, 0, offset, record.timestamp, record.key, record.value, record.headers)

    def _check_running(self) -> None:
        if not self._is_open:
            raise ClosedError("the TopologyTestDriver is closed; create a new one")
        if self._failure is not None:
            raise StreamsError(
                f"the TopologyTestDriver was stopped by an earlier error ({describe_error(self._failure)}); create a "
                "new one"
            ) from self._failure


def _do_nothing() -> None:
    pass
