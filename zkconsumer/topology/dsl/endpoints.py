"""Steps that read and write topics.

Source: Kafka 3.9 StreamSourceNode, TableSourceNode, GlobalStoreNode, StreamSinkNode and BaseRepartitionNode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.errors import TopologyError
from zkconsumer.topology import timestamps
from zkconsumer.topology.dsl.graph import GraphNode, SupplierFactory
from zkconsumer.topology.dsl.stateless import DropNullKeys, PassThrough
from zkconsumer.topology.dsl.windowed_serdes import find_partitioner
from zkconsumer.topology.nodes import Partitioner, TopicExtractor
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.serdes import Deserializer, Serde, Serializer
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.timestamps import TimestampExtractor

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology


class Serdes(NamedTuple):
    """The serdes of keys and values of a stream; None for those of the application."""

    key: Serde | None = None
    value: Serde | None = None

    def override(self, key: Serde | None, value: Serde | None) -> Serdes:
        """Return these serdes, or the given ones where they are not None."""
        return Serdes(key or self.key, value or self.value)


@dataclass(frozen=True)
class Consumed:
    """How topics are read.

    Attributes:
        serdes: serdes of the records.
        timestamp_extractor: returns the timestamp of a record; None for that of the application.
        offset_reset: ``earliest`` or ``latest``; None for the setting of the application.
    """

    serdes: Serdes
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


class SourceGraphNode(GraphNode):
    """A step that reads topics, or those that match a pattern."""

    def __init__(self, name: str, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> None:
        super().__init__(name)
        self.topics, self.pattern, self._consumed = topics, pattern, consumed

    def merge(self, other: SourceGraphNode) -> None:
        """Take over the children of another step that reads the same topics.

        Raises:
            TopologyError: the offset resets differ.
        """
        resets = (self._consumed.offset_reset, other._consumed.offset_reset)
        if resets[0] != resets[1]:
            raise TopologyError(
                f"sources {self.name!r} and {other.name!r} read the same topics with different offset_reset: "
                f"{resets[0]!r} and {resets[1]!r}"
            )
        for child in list(other.children):
            other.remove_child(child)
            self.add_child(child)

    def write(self, topology: Topology) -> None:
        """Add the source."""
        _add_source(topology, self.name, self.topics, self._consumed, self.pattern)


class TableSourceGraphNode(GraphNode):
    """A step that reads a table.

    Args:
        name: name of the processor.
        source: name of the source.
        topic: the topic.
        consumed: how it is read.
        supplier: returns the supplier of the processor.
        store: returns the store, or None if the table needs none.
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
        """Add the source, the processor, and its store."""
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
        """Add the global store."""
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
    """A step that writes a topic."""

    def __init__(self, name: str, topic: str | TopicExtractor, serdes: Serdes, partitioner: Partitioner | None) -> None:
        super().__init__(name)
        self._topic, self._serdes, self._partitioner = topic, serdes, partitioner

    def write(self, topology: Topology) -> None:
        """Add the sink."""
        topology.add_sink(
            self.name,
            self._topic,
            *self._parent_names(),
            key_serializer=_serializer(self._serdes.key),
            value_serializer=_serializer(self._serdes.value),
            partitioner=self._partitioner or find_partitioner(self._serdes.key),
        )


class RepartitionNames(NamedTuple):
    """Names of an internal topic and of the nodes around it.

    Attributes:
        topic: the topic, without the application id.
        sink: the node that writes it.
        source: the node that reads it.
        filter: the node before the sink; None if there is none.
    """

    topic: str
    sink: str
    source: str
    filter: str | None = None


class RepartitionGraphNode(GraphNode):
    """A step that writes records to an internal topic and reads them again.

    Args:
        names: names of its nodes and its topic.
        serdes: serdes of the records.
        partitions: number of partitions; None for that of the largest topic from which it is written.
        partitioner: selects the partition; None for the producer's choice.
        is_optimizable: whether steps with the same keys can share the topic.

    Attributes:
        names: see above.
        serdes: see above.
        is_optimizable: see above.
        drops_null_keys: whether the filter drops records without a key.
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
        """Add the topic, the filter, the sink and the source."""
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
