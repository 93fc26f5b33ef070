"""The tasks of a ``TopologyTestDriver``, and which of them reads a topic."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from zkconsumer.message import TopicPartition
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.global_task import GlobalTask
from zkconsumer.topology.nodes import SourceNode
from zkconsumer.topology.patterns import create_filter
from zkconsumer.topology.records import SinkRecord, SourceRecord
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.task import StreamTask
from zkconsumer.topology.task_runtime import TaskRuntime

if TYPE_CHECKING:
    from zkconsumer.rebalance.topic_filter import TopicFilter


class DriverTasks:
    """Task ``0_0`` with all sub-topologies, and a task for each global store. Every topic has one partition.

    Args:
        topology: the topology.
        config: settings of the application.
        runtime: clock, storage and output of the tasks.
        closing: closes the tasks that were created, the last one first.

    Attributes:
        main: the task ``0_0``.
        global_stores: the global stores by name.

    Raises:
        StreamsError: a processor or store failed.
    """

    def __init__(self, topology: Topology, config: ApplicationConfig, runtime: TaskRuntime, closing: ExitStack) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._partitions: tuple[TopicPartition, ...] = ()
        self._patterns: dict[TopicPartition, TopicFilter] = {}
        self._global: dict[str, GlobalTask] = {}
        self.global_stores: dict[str, StateStore] = {}
        for one in topology.resolve().subtopologies.values():
            if not one.is_global:
                continue
            [topic] = one.source_topics
            task = self._global[topic] = one.global_task([0], config, runtime)
            closing.callback(task.close)
            task.initialize()
            self.global_stores |= task.stores
        self.main = self._create_main(topology, config, replace(runtime, global_stores=self.global_stores))
        closing.callback(self.main.close)
        self.main.initialize()
        self.main.commit()

    @property
    def topics(self) -> list[str]:
        """The topics and patterns that the tasks read."""
        return [*(partition.topic for partition in self._partitions), *self._global]

    @property
    def metrics(self) -> dict[str, int]:
        """Numbers of all tasks, added by name."""
        total: dict[str, int] = {}
        for task in (self.main, *self._global.values()):
            for name, number in task.metrics.items():
                total[name] = total.get(name, 0) + number
        return total

    def reads(self, topic: str) -> bool:
        """Return whether a task reads a topic."""
        return topic in self._global or self._find_queue(topic) is not None

    def add_record(self, record: SinkRecord) -> None:
        """Add a record to the tasks that read its topic. Those of global stores process it.

        Raises:
            StreamsError: a task failed.
        """
        partition = self._find_queue(record.topic)
        if partition is not None:
            self.main.add_records(partition, [self._to_source_record(partition, record)])
        task = self._global.get(record.topic)
        if task is not None:
            task.update(self._to_source_record(TopicPartition(record.topic, 0), record))

    def _create_main(self, topology: Topology, config: ApplicationConfig, runtime: TaskRuntime) -> StreamTask:
        combined = topology.combine()
        for node in combined.nodes:
            # All topics of a pattern share one queue, as in the driver of Kafka Streams.
            if isinstance(node, SourceNode) and node.pattern is not None:
                self._patterns[TopicPartition(node.pattern, 0)] = create_filter(node.pattern)
        main = combined.task(0, config, runtime)
        self._partitions = tuple(main.partitions)
        return main

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
