"""Declaration of a sub-topology, from which its tasks are created."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.declared.nodes import Node, SinkNode, SourceNode
from zkconsumer.topology.declared.task_declaration import TaskDeclaration
from zkconsumer.topology.function_names import qualified_name
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.task.global_task import GlobalTask
from zkconsumer.topology.task.task import StreamTask
from zkconsumer.topology.task.task_runtime import TaskRuntime

#: Task id of the tasks that update global stores.
_GLOBAL_TASK_ID = "global"


@dataclass(frozen=True, kw_only=True)
class Subtopology:
    """The nodes, stores and topics of a sub-topology, from which its tasks are created.

    Attributes:
        number: number of the sub-topology in ``Topology.describe``.
        nodes: nodes, parents before children.
        stores: stores that are connected to the nodes.
        topics_of: topics of each source, by source name.
        partition_counts: number of partitions by topic; topics with an unknown number are omitted.
        internal_topics: topics whose names are prefixed with the application id at run time.
        is_global: whether the sub-topology updates a global store, so that a single task reads all partitions.
    """

    number: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...]
    topics_of: Mapping[str, tuple[str, ...]]
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    internal_topics: frozenset[str] = frozenset()
    is_global: bool = False

    @property
    def source_topics(self) -> frozenset[str]:
        """All topics that the sources read."""
        return frozenset(topic for topics in self.topics_of.values() for topic in topics)

    @property
    def sink_topics(self) -> frozenset[str]:
        """The topics that the sinks write, except topics that a topic extractor selects."""
        return frozenset(node.topic for node in self.nodes if isinstance(node, SinkNode) and node.topic is not None)

    @property
    def has_topic_extractor(self) -> bool:
        """Whether a topic extractor selects the topic of a sink."""
        return any(isinstance(node, SinkNode) and node.extractor is not None for node in self.nodes)

    @property
    def offset_resets(self) -> dict[str, str]:
        """Offset reset policy (``earliest`` or ``latest``) by topic; topics whose source declares none are omitted."""
        sources = [node for node in self.nodes if isinstance(node, SourceNode) and node.offset_reset is not None]
        return {topic: str(node.offset_reset) for node in sources for topic in self.topics_of[node.name]}

    @property
    def task_count(self) -> int:
        """Number of tasks: the highest partition count of the source topics."""
        return max((self.partition_counts.get(topic, 0) for topic in self.source_topics), default=0)

    @property
    def fingerprint(self) -> str:
        """The declarations as JSON. A runtime compares them to detect topology changes.

        The JSON contains nodes, stores with their kinds and parameters, topics as declared, and the names of functions
        and classes with any ``functools.partial`` arguments, but not their code.
        """
        data = {
            "number": self.number,
            "nodes": list(map(_describe, self.nodes)),
            "stores": list(map(_describe, self.stores)),
        }
        return json.dumps(data, sort_keys=True)

    def task(
        self, partition: int, config: ApplicationConfig, runtime: TaskRuntime, snapshot: bytes | None = None
    ) -> StreamTask:
        """Return a new task, which processes partition ``partition`` of all source topics that have it.

        Args:
            partition: partition number.
            config: settings of the application.
            runtime: clock, storage and global stores of the task.
            snapshot: result of ``StreamTask.snapshot`` from which the task resumes, or None.

        Raises:
            StreamsError: a processor or store cannot be created, or the snapshot is corrupt, belongs to another task
                or topology, or was taken by a newer release.
        """
        declaration = self._declare_task(f"{self.number}_{partition}", [partition], config)
        return StreamTask(declaration, config, runtime, snapshot)

    def global_task(
        self,
        partitions: Iterable[int],
        config: ApplicationConfig,
        runtime: TaskRuntime,
        snapshot: bytes | None = None,
    ) -> GlobalTask:
        """Return a new task, which updates the global store of this sub-topology.

        Args:
            partitions: partition numbers of the topic.
            config: see ``task``.
            runtime: see ``task``.
            snapshot: see ``task``.
        """
        return GlobalTask(self._declare_task(_GLOBAL_TASK_ID, partitions, config), config, runtime, snapshot)

    def _declare_task(self, task_id: str, partitions: Iterable[int], config: ApplicationConfig) -> TaskDeclaration:
        names = {topic: name_internal_topic(config.application_id, topic) for topic in self.internal_topics}
        return TaskDeclaration(
            task_id,
            tuple(_rename_topic(node, names) for node in self.nodes),
            self.stores,
            {
                TopicPartition(names.get(topic, topic), partition): source
                for partition in partitions
                for source, topics in self.topics_of.items()
                for topic in topics
                if partition < self.partition_counts.get(topic, partition + 1)
            },
            self.fingerprint,
        )


def name_internal_topic(application_id: str, topic: str) -> str:
    """Return the Kafka name of an internal topic."""
    return f"{application_id}-{topic}"


def _rename_topic(node: Node, names: Mapping[str, str]) -> Node:
    if isinstance(node, SinkNode) and node.topic is not None:
        return replace(node, topic=names.get(node.topic, node.topic))
    return node


def _describe(value: Any) -> Any:
    """Convert a declaration to objects that JSON can represent."""
    match value:
        case enum.Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case Serde():
            return [qualified_name(value.serialize), qualified_name(value.deserialize)]
        case partial():
            arguments = [*map(_describe, value.args)], _describe(value.keywords)
            return {"type": qualified_name(value.func), "arguments": [one for one in arguments if one]}
        case tuple() | list():
            return list(map(_describe, value))
        case Mapping():
            return {str(key): _describe(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        described = {
            item.name: _describe(getattr(value, item.name))
            for item in fields(value)
            if item.metadata.get("is_fingerprinted", True)
        }
        return {"type": type(value).__name__, **described}
    return qualified_name(value)
