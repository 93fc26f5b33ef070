"""The nodes of a task while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology import owners, timestamps
from zkconsumer.topology.error_handling import ErrorHandling, FailedNodeError, describe_error
from zkconsumer.topology.errors import InvalidArgumentError, WrongTypeError
from zkconsumer.topology.nodes import Deserializer, ProcessorNode, Serializer, SinkNode, SourceNode
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.records import PUNCTUATION_METADATA, Record, SinkRecord, SourceRecord, copy_headers
from zkconsumer.topology.task_context import TaskContext
from zkconsumer.topology.task_runtime import TaskRuntime
from zkconsumer.topology.timestamps import TimestampExtractor

#: Partitions of a record if no partitioner selects one.
_PRODUCERS_CHOICE = (None,)


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

    def __init__(self, node: SourceNode, task: TaskContext, errors: ErrorHandling, clock: Callable[[], int]) -> None:
        super().__init__(node.name)
        config = task.config
        self._errors = errors
        self._key: Deserializer = node.key_deserializer or config.key_serde.deserialize
        self._value: Deserializer = node.value_deserializer or config.value_serde.deserialize
        extract = node.timestamp_extractor or config.timestamp_extractor
        self._extract: TimestampExtractor = (lambda *_: clock()) if extract is timestamps.wall_clock else extract

    def process(self, record: Record) -> None:
        """Forward a record to all children."""
        for process in self.children:
            process(record)

    def decode(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        """Return the deserialized record with its timestamp; None if it is dropped.

        Raises:
            FailedNodeError: the handler returned FAIL, or the timestamp extractor failed.
        """
        try:
            key, value = self._key(source.topic, source.key), self._value(source.topic, source.value)
        except Exception as error:
            self._errors.on_deserialization_error(self.name, source, error)
            return None
        try:
            timestamp = self._extract(source, key, value, partition_time_ms)
            if not isinstance(timestamp, int):
                raise WrongTypeError(f"expected milliseconds as int, got {timestamp!r}")
        except Exception as error:
            self._errors.on_timestamp_error(self.name, source, error)
        if timestamp < 0:
            self._errors.drop(source, reason="negative_timestamp", node=self.name)
            return None
        return Record(key, value, timestamp, source.headers)


class RunningSink(RunningNode):
    """Serializes records and sends them."""

    def __init__(self, node: SinkNode, task: TaskContext, errors: ErrorHandling, runtime: TaskRuntime) -> None:
        super().__init__(node.name)
        self._task, self._errors = task, errors
        self._send, self._partition_count = runtime.send, runtime.partition_count
        self._topic, self._extractor, self._partitioner = node.topic, node.extractor, node.partitioner
        self._key: Serializer = node.key_serializer or task.config.key_serde.serialize
        self._value: Serializer = node.value_serializer or task.config.value_serde.serialize

    def process(self, record: Record) -> None:
        """Send a record."""
        topic = self._topic
        try:
            if topic is None:
                topic = self._extract_topic(record)
            partitions = self._select_partitions(topic, record)
            headers = tuple(copy_headers(record.headers)) if record.headers else ()
        except Exception as error:
            # The caller adds the task, and where the record was read.
            raise StreamsError(f"sink {self.name!r}: {describe_error(error)}") from error
        if not partitions:
            self._errors.drop(self._task.source_record, reason="no_partition", node=self.name)
            return
        try:
            key, value = _check_bytes(self._key(topic, record.key)), _check_bytes(self._value(topic, record.value))
        except Exception as error:
            self._errors.on_production_error(self.name, self._task.source_record, topic, record, error)
            return
        for partition in partitions:
            self._send(SinkRecord(topic, partition, record.timestamp, key, value, headers))

    def _extract_topic(self, record: Record) -> str:
        assert self._extractor is not None
        source = self._task.source_record
        topic = self._extractor(record, PUNCTUATION_METADATA if source is None else source.metadata)
        if not isinstance(topic, str) or not topic:
            raise InvalidArgumentError(f"the topic extractor must return a non-empty str, got {topic!r}")
        return topic

    def _select_partitions(self, topic: str, record: Record) -> Sequence[int | None]:
        """Return the partitions of a record; None is the producer's choice. Source: KIP-837."""
        if self._partitioner is None:
            return _PRODUCERS_CHOICE
        count = self._partition_count(topic)
        selected = self._partitioner(topic, record.key, record.value, count)
        if selected is None:
            return _PRODUCERS_CHOICE
        partitions = set(selected) if isinstance(selected, Collection) else {selected}
        if not all(isinstance(partition, int) and 0 <= partition < count for partition in partitions):
            raise InvalidArgumentError(
                f"the partitioner must return None or partition numbers of topic {topic!r}, which are from 0 to "
                f"{count - 1}, got {selected!r}"
            )
        return sorted(partitions)


class RunningProcessor(RunningNode):
    """A node with a processor of the application."""

    def __init__(self, node: ProcessorNode, task: TaskContext, errors: ErrorHandling) -> None:
        super().__init__(node.name)
        self._task, self._errors = task, errors
        self.stores = frozenset(node.stores)
        self._processor = self._create_processor(node)
        self._process = self._processor.process
        self._is_initialized = False

    def init_with(self, context: ProcessorContext) -> None:
        """Initialize the processor. If that fails, ``close`` does not call it.

        Raises:
            StreamsError: the processor failed.
        """
        owner = owners.claim(self._processor, self._task.task_id)
        if owner is not None:
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r} belongs to task {owner}; its supplier must return "
                "a new object at each call"
            )
        try:
            self._processor.init(context)
        except BaseException as error:
            owners.release(self._processor)
            if not isinstance(error, Exception):
                raise
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r} failed in init: {describe_error(error)}"
            ) from error
        self._is_initialized = True

    def process(self, record: Record) -> None:
        """Process a record."""
        try:
            self._process(record)
        except FailedNodeError:
            raise
        except Exception as error:
            self._errors.on_processing_error(self.name, self._task.source_record, record, error)

    def close(self) -> None:
        """Close the processor.

        Raises:
            StreamsError: the processor failed.
        """
        if not self._is_initialized:
            return
        self._is_initialized = False
        owners.release(self._processor)
        try:
            self._processor.close()
        except Exception as error:
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r} failed in close: {describe_error(error)}"
            ) from error

    def _create_processor(self, node: ProcessorNode) -> Processor:
        try:
            return node.supplier()
        except Exception as error:
            raise StreamsError(
                f"task {self._task.task_id}: supplier of processor {self.name!r} failed: {describe_error(error)}"
            ) from error


def _check_bytes(data: Any) -> bytes | None:
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"the serializer must return bytes, got {type(data).__name__}")
    return data
