"""The task that updates a global store.

Source: Kafka 3.9 GlobalStateUpdateTask and GlobalProcessorContextImpl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import handlers, timestamps
from zkconsumer.topology.config import IDLE_DISABLED, ApplicationConfig
from zkconsumer.topology.declared.nodes import SourceNode
from zkconsumer.topology.declared.task_declaration import TaskDeclaration
from zkconsumer.topology.loop.records import SourceRecord
from zkconsumer.topology.processor import Processor, PunctuationType, Punctuator
from zkconsumer.topology.task.task import StreamTask
from zkconsumer.topology.task.task_context import TaskContext
from zkconsumer.topology.task.task_runtime import TaskRuntime


class GlobalTaskContext(TaskContext):
    """Context for the processor of a global store, without stream time and punctuation."""

    @property
    def stream_time_ms(self) -> int:
        """Not available: a global store has no stream time."""
        raise StreamsError("current_stream_time_ms is not available to the processor of a global store")

    def schedule(
        self,
        node: str,
        processor: Processor | None,  # noqa: ARG002
        interval_ms: int,  # noqa: ARG002
        kind: PunctuationType,  # noqa: ARG002
        punctuator: Punctuator,  # noqa: ARG002
    ) -> NoReturn:
        """Not available: a global store has no punctuators."""
        raise StreamsError(f"processor {node!r}: schedule() is not available to the processor of a global store")


class GlobalTask(StreamTask):
    """Updates a global store, which is read-only between updates.

    Args:
        declaration: source, processor, store, and the topic's partitions.
        config: settings of the application.
        runtime: clock and storage of the task.
        snapshot: see ``StreamTask``.
    """

    context_type = GlobalTaskContext

    def __init__(
        self,
        declaration: TaskDeclaration,
        config: ApplicationConfig,
        runtime: TaskRuntime,
        snapshot: bytes | None = None,
    ) -> None:
        # As in Kafka Streams, a global store has no timestamp extractor and no cache, and an error in its processor
        # ends the task.
        nodes = tuple(
            replace(node, timestamp_extractor=None) if isinstance(node, SourceNode) else node
            for node in declaration.nodes
        )
        config = replace(
            config,
            timestamp_extractor=timestamps.require_timestamp,
            processing_handler=handlers.fail,
            max_task_idle_ms=IDLE_DISABLED,  # never wait for records of other partitions
        )
        stores = tuple(replace(store, caching=False) for store in declaration.stores)
        super().__init__(declaration._replace(nodes=nodes, stores=stores), config, runtime, snapshot)

    def initialize(self) -> None:
        """Open the store, initialize the processor, and commit; see ``StreamTask.initialize``."""
        super().initialize()
        self.commit()
        self._stores.set_read_only(True)

    def update_columns(self, partition: TopicPartition, columns: Any) -> None:
        """Process records of a partition, and commit; see ``StreamTask.add_columns``.

        Raises:
            StreamsError: a record has no timestamp, the deserialization handler failed or returned FAIL, or the
                processor or the commit failed.
        """
        self._stores.set_read_only(False)
        try:
            self.add_columns(partition, columns)
            self.run()
            self.commit()
        finally:
            self._stores.set_read_only(True)

    def update(self, record: SourceRecord) -> None:
        """Process a record, and commit.

        Raises:
            StreamsError: the record has no timestamp, the deserialization handler failed or returned FAIL, or the
                processor or the commit failed.
        """
        self._stores.set_read_only(False)
        try:
            self.add_records(TopicPartition(record.topic, record.partition), [record])
            self.process()
            self.commit()
        finally:
            self._stores.set_read_only(True)
