"""The running nodes of a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology import timestamps
from zkconsumer.topology.declared.nodes import ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.errors import FatalError, InvalidArgumentError, WrongTypeError
from zkconsumer.topology.loop.columns import SourceColumns, deserialize_column
from zkconsumer.topology.loop.native import Guarded, OutputColumns, Process, SinkWriter, has_negative
from zkconsumer.topology.loop.records import PUNCTUATION_METADATA, Record, SourceRecord, copy_headers
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.serdes import (
    Deserializer,
    Serializer,
    choose_deserializer,
    choose_serializer,
    complete,
    deserializer_codec,
    serializer_codec,
)
from zkconsumer.topology.task import owners
from zkconsumer.topology.task.error_handling import ErrorHandling, describe_error
from zkconsumer.topology.task.task_context import TaskContext
from zkconsumer.topology.task.task_runtime import TaskRuntime
from zkconsumer.topology.timestamps import TimestampExtractor
from zkconsumer.topology.windowed_serdes import PartitionByInnerKey, WindowedKeys, key_codec

#: Result of ``_select_partitions`` if the producer selects the partition.
_PRODUCERS_CHOICE = (None,)

#: Extractors that return the record's own timestamp unless it is negative.
_PLAIN_EXTRACTORS = (
    timestamps.fail_on_invalid,
    timestamps.skip_on_invalid,
    timestamps.partition_time_on_invalid,
    timestamps.require_timestamp,
)


class RunningNode:
    """A node with its children.

    Attributes:
        name: name of the node.
        process: function that processes a record.
        children: ``process`` functions of the child nodes, which receive forwarded records.
        child_by_name: ``process`` functions of the child nodes, by node name.
    """

    def __init__(self, name: str, process: Process) -> None:
        self.name, self.process = name, process
        self.children: list[Process] = []
        self.child_by_name: dict[str, Process] = {}

    def add_child(self, child: RunningNode) -> None:
        """Add a child node, which receives forwarded records."""
        self.children.append(child.process)
        self.child_by_name[child.name] = child.process

    def close(self) -> None:
        """Release resources."""


class RunningSource(RunningNode):
    """Deserializes records and forwards them."""

    def __init__(self, node: SourceNode, task: TaskContext, errors: ErrorHandling, clock: Callable[[], int]) -> None:
        super().__init__(node.name, self._forward)
        config = task.config
        self._errors = errors
        self._key: Deserializer = choose_deserializer(node.key_deserializer, config.key_serde)
        self._value: Deserializer = choose_deserializer(node.value_deserializer, config.value_serde)
        self._key_codec, self._value_codec = deserializer_codec(self._key), deserializer_codec(self._value)
        extract = node.timestamp_extractor or config.timestamp_extractor
        self._extract: TimestampExtractor = (lambda *_: clock()) if extract is timestamps.wall_clock else extract
        self._is_plain = extract in _PLAIN_EXTRACTORS

    def _forward(self, record: Record) -> None:
        for process in self.children:
            process(record)

    def deserialize_columns(self, columns: SourceColumns) -> tuple[list[Any], list[Any]] | None:
        """Return all keys and values, or None if the records must be deserialized one by one."""
        if not self._is_plain or has_negative(columns.load_timestamps()):
            return None
        try:
            keys = deserialize_column(self._key_codec, self._key, columns.topic, columns.keys)
            return keys, deserialize_column(self._value_codec, self._value, columns.topic, columns.values)
        except Exception:
            return None

    def deserialize(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        """Return the deserialized record with its timestamp, or None if the record was dropped.

        Raises:
            FailedNodeError: the handler failed or returned FAIL, or the timestamp extractor failed.
        """
        try:
            key, value = self._key(source.topic, source.key), self._value(source.topic, source.value)
        except Exception as error:
            self._errors.on_deserialization_error(self.name, source, error)
            return None
        try:
            timestamp = self._extract(source, key, value, partition_time_ms)
            if not isinstance(timestamp, int):
                raise WrongTypeError(f"the timestamp must be an integer in milliseconds, got {timestamp!r}")
        except Exception as error:
            self._errors.on_timestamp_error(self.name, source, error)
        if timestamp < 0:
            self._errors.dropped.add(source, reason=DropReason.NEGATIVE_TIMESTAMP, node=self.name)
            return None
        return Record(key, value, timestamp, source.headers)


class RunningSink(RunningNode):
    """Serializes records and sends them."""

    def __init__(
        self, node: SinkNode, task: TaskContext, errors: ErrorHandling, runtime: TaskRuntime, output: OutputColumns
    ) -> None:
        self._task, self._errors, self._output = task, errors, output
        self._partition_count = runtime.partition_count
        self._topic, self._extractor, partitioner = node.topic, node.extractor, node.partitioner
        self._partitioner = None if partitioner is None else complete(partitioner, task.config.key_serde)
        self._key: Serializer = choose_serializer(node.key_serializer, task.config.key_serde)
        self._value: Serializer = choose_serializer(node.value_serializer, task.config.value_serde)
        super().__init__(node.name, self._create_writer())

    def _create_writer(self) -> Process:
        """Return a SinkWriter, or ``_send`` if the sink has a topic extractor or a partitioner of the application."""
        key, partitioner = self._key, self._partitioner
        if self._topic is None:
            return self._send
        codecs = key_codec(key), serializer_codec(self._value)
        if partitioner is None:
            return SinkWriter(self._output, self._topic, *codecs, self._send)
        if (
            isinstance(partitioner, PartitionByInnerKey)
            and isinstance(key, WindowedKeys)
            and partitioner.inner == key.inner
        ):
            return SinkWriter(self._output, self._topic, *codecs, self._send, self._partition_count)
        return self._send

    def _send(self, record: Record) -> None:
        topic = self._topic
        try:
            if topic is None:
                topic = self._extract_topic(record)
            partitions = self._select_partitions(topic, record)
            headers = tuple(copy_headers(record.headers)) if record.headers else ()
        except Exception as error:
            # The caller adds task, topic, partition and offset to the message.
            raise StreamsError(f"sink {self.name!r}: {describe_error(error)}") from error
        if not partitions:
            self._errors.dropped.add(self._task.source_record, reason=DropReason.NO_PARTITION, node=self.name)
            return
        what = "key"
        try:
            key = _check_bytes(self._key(topic, record.key))
            what = "value"
            value = _check_bytes(self._value(topic, record.value))
        except Exception as error:
            self._errors.on_production_error(self.name, self._task.source_record, topic, what, record, error)
            return
        for partition in partitions:
            self._output.append(topic, partition, record.timestamp, key, value, headers)

    def _extract_topic(self, record: Record) -> str:
        assert self._extractor is not None
        source = self._task.source_record
        topic = self._extractor(record, PUNCTUATION_METADATA if source is None else source.metadata)
        if not isinstance(topic, str) or not topic:
            raise InvalidArgumentError(f"the topic extractor must return a non-empty str, got {topic!r}")
        return topic

    def _select_partitions(self, topic: str, record: Record) -> Sequence[int | None]:
        """Return a record's partitions: ``(None,)`` if the producer selects one, empty to drop it. Source: KIP-837."""
        if self._partitioner is None:
            return _PRODUCERS_CHOICE
        count = self._partition_count(topic)
        selected = self._partitioner(topic, record.key, record.value, count)
        if selected is None:
            return _PRODUCERS_CHOICE
        partitions = set(selected) if isinstance(selected, Collection) else {selected}
        if not all(isinstance(partition, int) and 0 <= partition < count for partition in partitions):
            raise InvalidArgumentError(
                f"topic {topic!r}: the partitioner must return None or partition numbers between 0 and {count - 1}, "
                f"got {selected!r}"
            )
        return sorted(partitions)


class RunningProcessor(RunningNode):
    """A node that runs a processor of the application."""

    def __init__(self, node: ProcessorNode, task: TaskContext, errors: ErrorHandling) -> None:
        self._task, self._errors = task, errors
        self.stores, self.keeps_keys = frozenset(node.stores), node.keeps_keys
        self._is_initialized = False
        self.name = node.name
        self.processor = self._create_processor(node)
        self.calls = Guarded(self.processor.process, self._handle_error)
        super().__init__(node.name, self.calls)

    @property
    def is_initialized(self) -> bool:
        """Whether ``init`` has returned and ``close`` has not been called since."""
        return self._is_initialized

    def initialize(self, context: ProcessorContext) -> None:
        """Initialize the processor. If its ``init`` fails, its ``close`` is not called.

        Raises:
            StreamsError: the processor failed, or belongs to another task.
        """
        owner = owners.claim(self.processor, self._task.task_id)
        if owner is not None:
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r} belongs to task {owner}; its supplier must return "
                "a new object on each call"
            )
        try:
            self.processor.init(context)
        except BaseException as error:
            owners.release(self.processor)
            if not isinstance(error, Exception):
                raise
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r}: init() failed: {describe_error(error)}"
            ) from error
        self._is_initialized = True
        self.calls.process = self.processor.process  # ``init`` may have replaced ``process``

    def drop(self, reason: str) -> None:
        """Count and log the current record as dropped."""
        self._errors.dropped.add(self._task.source_record, reason=reason, node=self.name)

    def _handle_error(self, record: Record, error: Exception) -> None:
        if isinstance(error, FatalError):
            raise error
        self._errors.on_processing_error(self.name, self._task.source_record, record, error)

    def close(self) -> None:
        """Close the processor.

        Raises:
            StreamsError: the processor failed.
        """
        if not self._is_initialized:
            return
        self._is_initialized = False
        owners.release(self.processor)
        try:
            self.processor.close()
        except Exception as error:
            raise StreamsError(
                f"task {self._task.task_id}: processor {self.name!r}: close() failed: {describe_error(error)}"
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
        raise TypeError(f"the serializer must return bytes or None, got {type(data).__name__}")
    return data
