"""Steps that read and write topics.

Source: Kafka 3.9 StreamSourceNode, TableSourceNode, GlobalStoreNode, StreamSinkNode and BaseRepartitionNode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.errors import TopologyError
from zkconsumer.topology import timestamps
from zkconsumer.topology.declared.nodes import Partitioner, TopicExtractor
from zkconsumer.topology.dsl.graph import GraphNode, SupplierFactory
from zkconsumer.topology.dsl.stateless import DropNullKeys, PassThrough
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.serdes import Deserializer, Serde, Serializer
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.timestamps import TimestampExtractor
from zkconsumer.topology.windowed_serdes import find_partitioner

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology


class Serdes(NamedTuple):
    """The key and value serdes of a stream; None uses the application's default."""

    key: Serde | None = None
    value: Serde | None = None

    def override(self, key: Serde | None, value: Serde | None) -> Serdes:
        """Return a copy with the given serdes; a serde of None does not replace the existing one."""
        return Serdes(key or self.key, value or self.value)


@dataclass(frozen=True)
class Consumed:
    """Settings of a source, like ``Consumed`` in Kafka Streams.

    Attributes:
        serdes: key and value serdes.
        timestamp_extractor: function that returns a record's timestamp; None uses the application's extractor.
        offset_reset: start position of a new application, ``earliest`` or ``latest``; None means ``earliest``.
    """

    serdes: Serdes
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


class SourceGraphNode(GraphNode):
    """A step that reads the given topics, or all topics that match a pattern."""

    def __init__(self, name: str, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> None:
        super().__init__(name)
        self.topics, self.pattern, self._consumed = topics, pattern, consumed

    def merge(self, other: SourceGraphNode) -> None:
        """Move the children of ``other`` to this step. Both steps must read the same topics.

        Raises:
            TopologyError: the steps have different ``offset_reset`` values.
        """
        resets = (self._consumed.offset_reset, other._consumed.offset_reset)
        if resets[0] != resets[1]:
            raise TopologyError(
                f"sources {self.name!r} and {other.name!r} read the same topics with different offset_reset values: "
                f"{resets[0]!r} and {resets[1]!r}"
            )
        for child in list(other.children):
            other.remove_child(child)
            self.add_child(child)

    def write(self, topology: Topology) -> None:
        """Add the source to ``topology``."""
        _add_source(topology, self.name, self.topics, self._consumed, self.pattern)


class TableSourceGraphNode(GraphNode):
    """A step that reads a topic as a table.

    Args:
        name: name of the processor.
        source: name of the source.
        topic: topic to read.
        consumed: settings of the source.
        supplier: function that returns the processor supplier.
        store: function that returns the builder of the table's store, or None if the table needs no store.
    """

    def __init__(
        self,
        name: str,
        source: str,
        topic: str,
        consumed: Consumed,
        supplier: SupplierFactory,
        store: Callable[[], StoreBuilder | None],
    ) -> None:
        super().__init__(name)
        self._source, self._topic, self._consumed = source, topic, consumed
        self._supplier, self._store = supplier, store

    def write(self, topology: Topology) -> None:
        """Add the source and the processor to ``topology``, and the store if the table needs one."""
        _add_source(topology, self._source, (self._topic,), self._consumed)
        topology.add_processor(self.name, self._supplier(), self._source)
        store = self._store()
        if store is not None:
            topology.add_state_store(store, self.name)


class GlobalStoreGraphNode(GraphNode):
    """A global store, and the processor that updates it from a topic."""

    def __init__(
        self, name: str, source: str, topic: str, consumed: Consumed, supplier: ProcessorSupplier, store: StoreBuilder
    ) -> None:
        super().__init__(name)
        self._source, self._topic, self._consumed = source, topic, consumed
        self._supplier, self._store = supplier, store

    def write(self, topology: Topology) -> None:
        """Add the global store to ``topology``."""
        topology.add_global_store(
            self._store,
            self._source,
            self._topic,
            self.name,
            self._supplier,
            timestamp_extractor=self._consumed.timestamp_extractor,
            key_deserializer=_deserializer(self._consumed.serdes.key),
            value_deserializer=_deserializer(self._consumed.serdes.value),
        )


class SinkGraphNode(GraphNode):
    """A step that writes to a topic."""

    def __init__(self, name: str, topic: str | TopicExtractor, serdes: Serdes, partitioner: Partitioner | None) -> None:
        super().__init__(name)
        self._topic, self._serdes, self._partitioner = topic, serdes, partitioner

    def write(self, topology: Topology) -> None:
        """Add the sink to ``topology``."""
        topology.add_sink(
            self.name,
            self._topic,
            *self._parent_names(),
            key_serializer=_serializer(self._serdes.key),
            value_serializer=_serializer(self._serdes.value),
            partitioner=self._partitioner or find_partitioner(self._serdes.key),
        )


class RepartitionNames(NamedTuple):
    """Names of a repartition topic and the nodes that write and read it.

    Attributes:
        topic: topic name, without the application id.
        sink: name of the sink that writes to the topic.
        source: name of the source that reads the topic.
        filter: name of the processor between the parent step and the sink; None if there is none.
    """

    topic: str
    sink: str
    source: str
    filter: str | None = None


class RepartitionGraphNode(GraphNode):
    """A step that repartitions records: it writes them to an internal topic and reads them back.

    Args:
        names: names of the topic and its nodes.
        serdes: key and value serdes.
        partitions: number of partitions; None derives it from upstream and co-partitioned topics.
        partitioner: function that selects the partition; None uses the producer's partitioner.
        is_optimizable: whether the optimizer may merge the topic with other repartition topics.

    Attributes:
        names: same as the argument.
        serdes: same as the argument.
        is_optimizable: same as the argument.
        drops_null_keys: whether the processor ``names.filter`` drops records without a key.
    """

    def __init__(
        self,
        names: RepartitionNames,
        serdes: Serdes,
        *,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        is_optimizable: bool = True,
    ) -> None:
        super().__init__(names.source)
        self.names, self.serdes, self.is_optimizable = names, serdes, is_optimizable
        self._partitions, self._partitioner, self.drops_null_keys = partitions, partitioner, False

    def write(self, topology: Topology) -> None:
        """Add the topic, the sink and the source to ``topology``, and the processor before the sink if there is one."""
        names = self.names
        parents = self._parent_names()
        topology.add_internal_topic(names.topic, self._partitions)
        if names.filter is not None:
            topology.add_processor(names.filter, DropNullKeys if self.drops_null_keys else PassThrough, *parents)
            parents = [names.filter]
        topology.add_sink(
            names.sink,
            names.topic,
            *parents,
            key_serializer=_serializer(self.serdes.key),
            value_serializer=_serializer(self.serdes.value),
            partitioner=self._partitioner,
        )
        _add_source(topology, names.source, (names.topic,), Consumed(self.serdes, timestamps.fail_on_invalid))


def _add_source(
    topology: Topology, name: str, topics: tuple[str, ...], consumed: Consumed, pattern: str | None = None
) -> None:
    topology.add_source(
        name,
        topics,
        pattern=pattern,
        offset_reset=consumed.offset_reset,
        timestamp_extractor=consumed.timestamp_extractor,
        key_deserializer=_deserializer(consumed.serdes.key),
        value_deserializer=_deserializer(consumed.serdes.value),
    )


def _serializer(serde: Serde | None) -> Serializer | None:
    return None if serde is None else serde.serialize


def _deserializer(serde: Serde | None) -> Deserializer | None:
    return None if serde is None else serde.deserialize
