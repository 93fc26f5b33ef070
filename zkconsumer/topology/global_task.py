"""The task that updates a global store.

Source: Kafka 3.9 GlobalStateUpdateTask and GlobalProcessorContextImpl.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import handlers, timestamps
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.error_handling import GLOBAL_TASK_ID
from zkconsumer.topology.nodes import GlobalStore
from zkconsumer.topology.processor import PunctuationType, Punctuator
from zkconsumer.topology.records import SourceRecord
from zkconsumer.topology.task import StreamTask
from zkconsumer.topology.task_runtime import TaskRuntime


class GlobalTask(StreamTask):
    """Updates a global store, which is read-only between two updates.

    Args:
        store: the global store.
        partitions: partition numbers of its topic.
        config: settings of the application.
        runtime: clock, storage and output of the task.
    """

    def __init__(
        self, store: GlobalStore, partitions: Iterable[int], config: ApplicationConfig, runtime: TaskRuntime
    ) -> None:
        # As in Kafka Streams, a global store has no timestamp extractor, and errors of its processor end the task.
        source = replace(store.source, timestamp_extractor=None)
        config = replace(config, timestamp_extractor=timestamps.fail_on_invalid, processing_handler=handlers.fail)
        super().__init__(
            GLOBAL_TASK_ID,
            [source, store.processor],
            {store.builder.name: store.builder},
            {TopicPartition(source.topics[0], partition): source.name for partition in partitions},
            config,
            runtime,
        )

    def initialize(self) -> None:
        """Open the store, initialize the processor, and commit; see ``StreamTask.initialize``."""
        super().initialize()
        self.commit()
        self._stores.set_read_only(True)

    def update(self, record: SourceRecord) -> None:
        """Process a record, and commit.

        Raises:
            StreamsError: the record cannot be deserialized, or the processor or the commit failed.
        """
        self._stores.set_read_only(False)
        try:
            self.add_records(TopicPartition(record.topic, record.partition), [record])
            self.process()
            self.commit()
        finally:
            self._stores.set_read_only(True)

    @property
    def stream_time_ms(self) -> int:
        """Not available: a global store has no stream time."""
        raise StreamsError("current_stream_time_ms is not available to the processor of a global store")

    def schedule(
        self,
        node: str,
        interval_ms: int,  # noqa: ARG002
        kind: PunctuationType,  # noqa: ARG002
        punctuator: Punctuator,  # noqa: ARG002
    ) -> NoReturn:
        """Not available: a global store has no punctuation."""
        raise StreamsError(f"processor {node!r}: schedule() is not available to the processor of a global store")
