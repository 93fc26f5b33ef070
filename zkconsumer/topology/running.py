"""The nodes of a task while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.handlers import ErrorContext
from zkconsumer.topology.nodes import Deserializer, ProcessorNode, Serializer, SinkNode, SourceNode
from zkconsumer.topology.processor import Cancellable, Processor, ProcessorContext, PunctuationType, Punctuator
from zkconsumer.topology.records import Record, RecordMetadata, SinkRecord, SourceRecord
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.timestamps import TimestampExtractor


class Host(Protocol):
    """What a task provides to its nodes; ``StreamTask`` describes it."""

    task_id: str
    config: ApplicationConfig
    metrics: dict[str, int]
    stores: dict[str, StateStore]
    global_stores: Mapping[str, StateStore]
    commit_requested: bool
    is_processing: bool
    system_time_ms: int
    send: Callable[[SinkRecord], object]
    partition_count: Callable[[str], int]

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read."""

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records that were taken."""

    def schedule(self, node: str, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Create a schedule."""

    def handle_unreadable(self, node: str, source: SourceRecord, error: Exception) -> None:
        """Let the handler decide about a record that cannot be deserialized."""

    def handle_failed(self, node: str, timestamp: int, error: Exception) -> None:
        """Let the handler decide about an error of a processor."""

    def handle_unserializable(self, node: str, topic: str, record: Record, error: Exception) -> None:
        """Let the handler decide about a record that cannot be serialized."""

    def drop(self, reason: str, **where: object) -> None:
        """Count and log a record that was dropped without an error."""


class FailedProcessingError(Exception):
    """An error of a node for which its handler has answered FAIL. No other handler sees it."""

    def __init__(self, context: ErrorContext, error: Exception) -> None:
        super().__init__(context, error)
        self.context, self.error = context, error


class RunningNode:
    """A node with its children."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: list[Callable[[Record], None]] = []
        self.child_by_name: dict[str, Callable[[Record], None]] = {}

    def add_child(self, child: RunningNode) -> None:
        """Add a node that receives the records which this one forwards."""
        self.children.append(child.process)
        self.child_by_name[child.name] = child.process

    def process(self, record: Record) -> None:
        """Process a record."""
        raise NotImplementedError

    def close(self) -> None:
        """Release resources."""


class RunningSource(RunningNode):
    """Deserializes records and forwards them."""

    def __init__(self, node: SourceNode, task: Host) -> None:
        super().__init__(node.name)
        config = task.config
        self._task = task
        self._key: Deserializer = node.key_deserializer or config.key_serde.deserialize
        self._value: Deserializer = node.value_deserializer or config.value_serde.deserialize
        self._extract: TimestampExtractor = node.timestamp_extractor or config.timestamp_extractor

    def process(self, record: Record) -> None:
        """Hand a record to all children."""
        for process in self.children:
            process(record)

    def decode(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        """Return the deserialized record with its timestamp; None if it is dropped.

        Raises:
            StreamsError: the handler has answered FAIL, or the timestamp extractor has failed.
        """
        try:
            key, value = self._key(source.topic, source.key), self._value(source.topic, source.value)
        except Exception as error:
            self._task.handle_unreadable(self.name, source, error)
            return None
        try:
            timestamp = self._extract(source, key, value, partition_time_ms)
        except Exception as error:
            where = ErrorContext("deserialization", self._task.task_id, self.name, source, source.timestamp)
            raise StreamsError(f"{where}: the timestamp extractor has failed: {error}") from error
        if timestamp < 0:
            self._task.drop("negative_timestamp", topic=source.topic, partition=source.partition, offset=source.offset)
            return None
        return Record(key, value, timestamp, source.headers)


class RunningSink(RunningNode):
    """Serializes records and sends them."""

    def __init__(self, node: SinkNode, task: Host) -> None:
        super().__init__(node.name)
        self._task = task
        self._topic, self._extractor, self._partitioner = node.topic, node.extractor, node.partitioner
        self._key: Serializer = node.key_serializer or task.config.key_serde.serialize
        self._value: Serializer = node.value_serializer or task.config.value_serde.serialize

    def process(self, record: Record) -> None:
        """Send a record."""
        task = self._task
        topic, partition = self._topic, None
        try:
            if topic is None:
                topic = self._extracted(record)
            if self._partitioner is not None:
                partition = self._selected(topic, record)
        except Exception as error:
            # The caller adds the task, and where the record was read.
            raise StreamsError(f"sink {self.name!r}: {type(error).__name__}: {error}") from error
        try:
            key, value = _bytes(self._key(topic, record.key)), _bytes(self._value(topic, record.value))
        except Exception as error:
            task.handle_unserializable(self.name, topic, record, error)
            return
        task.send(SinkRecord(topic, partition, record.timestamp, key, value, tuple(record.headers)))

    def _extracted(self, record: Record) -> str:
        assert self._extractor is not None
        topic = self._extractor(record, self._task.record_metadata or RecordMetadata(None, -1, -1))
        if not isinstance(topic, str) or not topic:
            raise ValueError(f"the topic extractor must return a str that is not empty, it returned {topic!r}")
        return topic

    def _selected(self, topic: str, record: Record) -> int | None:
        assert self._partitioner is not None
        partition = self._partitioner(topic, record.key, record.value, self._task.partition_count(topic))
        if partition is not None and (not isinstance(partition, int) or partition < 0):
            raise ValueError(f"the partitioner must return None or a partition number, it returned {partition!r}")
        return partition


class RunningProcessor(RunningNode):
    """A node with a processor of the application."""

    def __init__(self, node: ProcessorNode, task: Host) -> None:
        super().__init__(node.name)
        self._task = task
        self.stores = frozenset(node.stores)
        self._processor: Processor = node.supplier()
        self._process = self._processor.process

    def init_with(self, context: ProcessorContext) -> None:
        """Initialize the processor.

        Raises:
            StreamsError: the processor has failed.
        """
        try:
            self._processor.init(context)
        except Exception as error:
            raise StreamsError(f"task {self._task.task_id}: processor {self.name!r} failed in init: {error}") from error

    def process(self, record: Record) -> None:
        """Process a record."""
        try:
            self._process(record)
        except FailedProcessingError:
            raise
        except Exception as error:
            self._task.handle_failed(self.name, record.timestamp, error)

    def close(self) -> None:
        """Close the processor.

        Raises:
            StreamsError: the processor has failed.
        """
        try:
            self._processor.close()
        except Exception as error:
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r} failed in close: {error}"
            ) from error


def _bytes(data: Any) -> bytes | None:
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"the serializer returned {type(data).__name__} instead of bytes")
    return data
