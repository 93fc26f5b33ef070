"""The Processor API of Kafka Streams in Python: processors, state stores and the test driver.

The package starts no threads or processes. A ``StreamTask`` or ``TopologyTestDriver`` must be used by a single thread;
a ``Topology`` can be shared by all tasks of a process. The public API consists of the names in this module and in its
submodules ``dsl``, ``handlers``, ``serdes``, ``stores``, ``timestamps`` and ``windows``.

::

    class Count(Processor):
        def init(self, context):
            self.context, self.counts = context, context.get_state_store("counts")

        def process(self, record):
            count = (self.counts.get(record.key) or 0) + 1
            self.counts.put(record.key, count)
            self.context.forward(record.with_value(count))

    topology = (
        Topology()
        .add_source("clicks", "clicks-in")
        .add_processor("count", Count, "clicks", stores=[stores.key_value("counts", serdes.STRING, serdes.LONG)])
        .add_sink("out", "counts-out", "count")
    )
"""

from __future__ import annotations

from zkconsumer.topology import handlers, serdes, stores, timestamps, windows
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.declared.nodes import GlobalStore, ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.handlers import ErrorContext, ErrorResponse
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle
from zkconsumer.topology.loop.records import Change, Record, RecordMetadata, SinkRecord, SourceRecord
from zkconsumer.topology.processor import Cancellable, Processor, ProcessorContext, PunctuationType, Remembered
from zkconsumer.topology.resolved import ResolvedTopology, TopicGroup
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.subtopology import Subtopology
from zkconsumer.topology.task.task import StreamTask
from zkconsumer.topology.task.task_runtime import TaskRuntime
from zkconsumer.topology.testing.driver import TopologyTestDriver
from zkconsumer.topology.testing.driver_topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = [
    "ApplicationConfig",
    "ApplicationState",
    "Cancellable",
    "Change",
    "ErrorContext",
    "ErrorResponse",
    "GlobalStore",
    "Lifecycle",
    "Processor",
    "ProcessorContext",
    "ProcessorNode",
    "PunctuationType",
    "Record",
    "RecordMetadata",
    "Remembered",
    "ResolvedTopology",
    "Serde",
    "SinkNode",
    "SinkRecord",
    "SourceNode",
    "SourceRecord",
    "StreamTask",
    "Subtopology",
    "TaskRuntime",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopicGroup",
    "Topology",
    "TopologyTestDriver",
    "handlers",
    "serdes",
    "stores",
    "timestamps",
    "windows",
]
