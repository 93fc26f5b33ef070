"""The tasks of a ``TopologyTestDriver``, to which records are routed by topic."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from zkconsumer.message import TopicPartition
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.declared.nodes import SourceNode
from zkconsumer.topology.declared.patterns import create_filter
from zkconsumer.topology.loop.records import SinkRecord, SourceRecord
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.subtopology import Subtopology, name_internal_topic
from zkconsumer.topology.task.global_task import GlobalTask
from zkconsumer.topology.task.task import StreamTask
from zkconsumer.topology.task.task_runtime import TaskRuntime
from zkconsumer.topology.testing.driver_state import MAIN, DriverState

if TYPE_CHECKING:
    from zkconsumer.topic_filter import TopicFilter


class DriverTasks:
    """Task ``0_0`` with all sub-topologies, plus one task per global store. Every topic has one partition.

    Args:
        topology: topology to run.
        config: settings of the application.
        runtime: clock and storage of the tasks.
        state: state from which the tasks resume; None if the driver does not save its state.
        closing: exit stack that closes the tasks in reverse order of creation.

    Attributes:
        main: task ``0_0``.
        global_stores: global stores by name.
        sink_topics: topics to which the sinks can write, and the quarantine topic; None if a topic extractor can
            select any topic.

    Raises:
        StreamsError: a processor or store failed.
    """

    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig,
        runtime: TaskRuntime,
        state: DriverState | None,
        closing: ExitStack,
    ) -> None:
        self._offsets: dict[TopicPartition, int] = {} if state is None else state.offsets
        self._partitions: tuple[TopicPartition, ...] = ()
        self._queues: dict[str, TopicPartition | None] = {}  # topic -> result of _find_queue()
        self._patterns: dict[TopicPartition, TopicFilter] = {}
        self._global: dict[str, GlobalTask] = {}
        self.global_stores: dict[str, StateStore] = {}
        subtopologies = topology.resolve().subtopologies.values()
        self.sink_topics = _find_sink_topics(subtopologies, config)
        for one in subtopologies:
            if not one.is_global:
                continue
            [topic] = one.source_topics
            name = f"global store of {topic}"
            snapshot = None if state is None else state.read_snapshot(name)
            task = self._global[topic] = one.global_task([0], config, runtime, snapshot)
            closing.callback(task.close)
            task.initialize()
            if state is not None:
                state.tasks[name] = task
            self.global_stores |= task.stores
        runtime = replace(runtime, global_stores=self.global_stores)
        self.main = self._create_main(topology, config, runtime, None if state is None else state.read_snapshot(MAIN))
        closing.callback(self.main.close)
        self.main.initialize()
        self._all = (self.main, *self._global.values())
        if state is not None:
            state.tasks[MAIN] = self.main
        self.main.commit()

    @property
    def topics(self) -> list[str]:
        """The topic names and patterns of the tasks' sources."""
        return [*(partition.topic for partition in self._partitions), *self._global]

    @property
    def metrics(self) -> dict[str, int]:
        """Metrics by name, summed over all tasks."""
        total: dict[str, int] = {}
        for task in (self.main, *self._global.values()):
            for name, number in task.metrics.items():
                total[name] = total.get(name, 0) + number
        return total

    def take_output(self) -> list[SinkRecord]:
        """Return the records written by the sinks of all tasks since the last call."""
        found: list[SinkRecord] = []
        for task in self._all:
            if task.has_output:
                found += task.take_output().records()
        return found

    def suspend(self) -> None:
        """Close the processors of ``main``, and commit their changes.

        Raises:
            StreamsError: a processor or the commit failed.
        """
        self.main.suspend()
        self.main.commit()

    def reads(self, topic: str) -> bool:
        """Return whether a task reads ``topic``."""
        return topic in self._global or self._queue_of(topic) is not None

    def add_record(self, record: SinkRecord) -> None:
        """Add a record to the tasks that read its topic. Global store tasks process it immediately.

        Raises:
            StreamsError: a task failed.
        """
        partition = self._queue_of(record.topic)
        if partition is not None:
            self.main.add_records(partition, [self._to_source_record(partition, record)])
        task = self._global.get(record.topic)
        if task is not None:
            task.update(self._to_source_record(TopicPartition(record.topic, 0), record))

    def _create_main(
        self, topology: Topology, config: ApplicationConfig, runtime: TaskRuntime, snapshot: bytes | None
    ) -> StreamTask:
        combined = topology.combine()
        for node in combined.nodes:
            # All topics of a pattern share one queue, as in the test driver of Kafka Streams.
            if isinstance(node, SourceNode) and node.pattern is not None:
                self._patterns[TopicPartition(node.pattern, 0)] = create_filter(node.pattern)
        main = combined.task(0, config, runtime, snapshot)
        self._partitions = tuple(main.partitions)
        return main

    def _queue_of(self, topic: str) -> TopicPartition | None:
        if topic not in self._queues:
            self._queues[topic] = self._find_queue(topic)
        return self._queues[topic]

    def _find_queue(self, topic: str) -> TopicPartition | None:
        partition = TopicPartition(topic, 0)
        if partition in self._partitions and partition not in self._patterns:
            return partition
        matching = (queue for queue, pattern in self._patterns.items() if pattern.is_topic_allowed(topic, False))
        return next(matching, None)

    def _to_source_record(self, partition: TopicPartition, record: SinkRecord) -> SourceRecord:
        offset = self._offsets.get(partition, -1) + 1
        self._offsets[partition] = offset
        return SourceRecord(record.topic, 0, offset, record.timestamp, record.key, record.value, record.headers)


def _find_sink_topics(subtopologies: Iterable[Subtopology], config: ApplicationConfig) -> frozenset[str] | None:
    found = {config.quarantine_topic} if config.quarantine_topic is not None else set()
    for one in subtopologies:
        if one.has_topic_extractor:
            return None
        found |= one.sink_topics - one.internal_topics
        found |= {name_internal_topic(config.application_id, topic) for topic in one.sink_topics & one.internal_topics}
    return frozenset(found)
