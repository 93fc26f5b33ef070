"""``KStream``: a stream of records.

Source: Kafka 3.9 org.apache.kafka.streams.kstream.KStream and KStreamImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Unpack

from zkconsumer.topology.checks import check_supplier
from zkconsumer.topology.dsl import stateless
from zkconsumer.topology.dsl.branches import BranchedKStream
from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, Serdes, SinkGraphNode
from zkconsumer.topology.dsl.graph import GraphNode, ProcessorGraphNode
from zkconsumer.topology.dsl.grouped_stream import KGroupedStream
from zkconsumer.topology.dsl.join_kinds import JoinKind
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.operations import SourceOperation
from zkconsumer.topology.dsl.stateless import Action, Predicate
from zkconsumer.topology.dsl.step_graph import FILTER, SINK, StepGraph, unite
from zkconsumer.topology.dsl.stream_joins import Joinable, JoinArguments, join
from zkconsumer.topology.dsl.table import KTable
from zkconsumer.topology.nodes import Partitioner, TopicExtractor
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder


class KStream:
    """A stream of records. Methods add a step to the builder, and return the stream of its output.

    Names of steps are optional, must be unique, and have letters, digits, dots, underscores or hyphens.

    Args:
        graph: the steps of the builder.
        node: the step whose output this is.
        name: name of the node from which later steps receive records.
        serdes: serdes of the records, as far as they are known.
        sources: names of the sources from which the records come.
        is_rekeyed: whether the keys may differ from those by which the topics are partitioned.
    """

    def __init__(
        self,
        graph: StepGraph,
        node: GraphNode,
        name: str,
        serdes: Serdes,
        sources: frozenset[str],
        is_rekeyed: bool = False,
    ) -> None:
        self.graph, self.node, self.name = graph, node, name
        self.serdes, self.sources, self.is_rekeyed = serdes, sources, is_rekeyed
        self._repartition: RepartitionGraphNode | None = None

    # ---- steps without state ----

    def filter(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep the records for which a function of key and value returns true."""
        return self._append(FILTER, name, partial(stateless.Filter, predicate, False), self.serdes)

    def filter_not(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep the records for which a function of key and value returns false."""
        return self._append(FILTER, name, partial(stateless.Filter, predicate, True), self.serdes)

    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]], *, name: str | None = None) -> KStream:
        """Replace each record by the key and value that a function of key and value returns."""
        return self._append("KSTREAM-MAP-", name, partial(stateless.Map, mapper), Serdes(), changes_key=True)

    def select_key(self, mapper: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Replace the key of each record by the result of a function of key and value."""
        serdes = Serdes(None, self.serdes.value)
        return self._append("KSTREAM-KEY-SELECT-", name, partial(stateless.SelectKey, mapper), serdes, changes_key=True)

    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]], *, name: str | None = None) -> KStream:
        """Replace each record by the keys and values that a function of key and value returns."""
        return self._append("KSTREAM-FLATMAP-", name, partial(stateless.FlatMap, mapper), Serdes(), changes_key=True)

    def map_values(self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None) -> KStream:
        """Replace the value of each record by the result of a function.

        Args:
            mapper: function of the value, or of key and value.
            with_key: whether it is a function of key and value.
            name: name of the step.
        """
        kind = stateless.MapValuesWithKey if with_key else stateless.MapValues
        return self._append_values("KSTREAM-MAPVALUES-", name, partial(kind, mapper))

    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream:
        """Replace each record by the values that a function returns; the arguments are those of ``map_values``."""
        kind = stateless.FlatMapValuesWithKey if with_key else stateless.FlatMapValues
        return self._append_values("KSTREAM-FLATMAPVALUES-", name, partial(kind, mapper))

    def peek(self, action: Action, *, name: str | None = None) -> KStream:
        """Call a function with key and value of each record, and keep the record."""
        return self._append("KSTREAM-PEEK-", name, partial(stateless.Peek, action), self.serdes)

    def foreach(self, action: Action, *, name: str | None = None) -> None:
        """Call a function with key and value of each record."""
        self._append("KSTREAM-FOREACH-", name, partial(stateless.ForEach, action), self.serdes)

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """Merge two streams. The order within each stream is kept; there is no order between them."""
        chosen = self.graph.names.choose(name, "KSTREAM-MERGE-")
        node = ProcessorGraphNode(chosen, lambda: stateless.PassThrough)
        node.is_merge = True
        self.graph.add(node, self.node, other.node)
        is_rekeyed = self.is_rekeyed or other.is_rekeyed
        return KStream(self.graph, node, chosen, Serdes(), unite(self.sources, other.sources), is_rekeyed)

    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Split the stream into branches by predicates."""
        return BranchedKStream(self, name)

    def process(
        self,
        supplier: ProcessorSupplier,
        *connected: str,
        stores: Iterable[StoreBuilder] = (),
        name: str | None = None,
    ) -> KStream:
        """Process the records with a ``Processor``.

        Args:
            supplier: a class or function that returns a new processor at each call.
            connected: names of stores of the builder that it uses.
            stores: stores to add for this processor.
            name: name of the step.
        """
        prefix = "KSTREAM-PROCESSOR-"
        # As in Kafka Streams, a named process() does not increment the counter.
        chosen = self.graph.names.generate(prefix) if name is None else check_name(name)
        node = ProcessorGraphNode(chosen, lambda: supplier, connected, tuple(stores).__iter__)
        return self.append(node, Serdes(), is_rekeyed=True)

    def process_values(
        self,
        supplier: ProcessorSupplier,
        *connected: str,
        stores: Iterable[StoreBuilder] = (),
        name: str | None = None,
    ) -> KStream:
        """Process the records with a ``Processor`` that must not change keys; see ``process``.

        Later steps do not repartition the stream, so forwarded records must have keys of records that were received.
        """
        prefix = "KSTREAM-PROCESSVALUES-"
        chosen = self.graph.names.generate(prefix) if name is None else check_name(name)
        check_supplier(chosen, supplier)
        node = ProcessorGraphNode(chosen, lambda: supplier, connected, tuple(stores).__iter__)
        return self.append(node, Serdes(self.serdes.key))

    # ---- topics ----

    def to(
        self,
        topic: str | TopicExtractor,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic.

        Args:
            topic: the topic, or a function that returns the topic of a record.
            key_serde: serde of keys; None for that of the stream, or of the application.
            value_serde: serde of values; None for that of the stream, or of the application.
            partitioner: selects the partition; None for the producer's choice.
            name: name of the step.
        """
        chosen = self.graph.names.choose(name, SINK)
        serdes = self.serdes.override(key_serde, value_serde)
        self.graph.add(SinkGraphNode(chosen, topic, serdes, partitioner), self.node)

    def repartition(
        self,
        *,
        partitions: int | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> KStream:
        """Write the records to an internal topic by their keys, and read them again.

        Args:
            partitions: number of partitions; None for that of the largest topic from which it is written.
            key_serde: see ``to``.
            value_serde: see ``to``.
            partitioner: see ``to``.
            name: name of the topic, without the application id and ``-repartition``.
        """
        chosen = self.graph.names.generate("KSTREAM-REPARTITION-") if name is None else check_name(name)
        serdes = self.serdes.override(key_serde, value_serde)
        node = RepartitionGraphNode(
            self.graph.name_repartition(chosen),
            serdes,
            partitions=partitions,
            partitioner=partitioner,
            is_optimizable=False,
        )
        self.graph.add(node, self.node)
        return KStream(self.graph, node, node.names.source, serdes, frozenset({node.name}))

    # ---- tables and groups ----

    def to_table(self, *, store: StoreSettings = None, name: str | None = None) -> KTable:
        """Return the table of the last value of each key. A value of None deletes the key.

        Args:
            store: name or settings of its store, which it has if it is named or a later step needs it.
            name: name of the step.
        """
        chosen = self.graph.names.choose(name, "KSTREAM-TOTABLE-")
        settings = TableStoreSettings.create(store, self.graph.names, "KSTREAM-TOTABLE-", self.serdes)
        stream = self._repartition_as(chosen, settings.serdes) if self.is_rekeyed else self
        operation = SourceOperation(settings.name, settings.is_named)
        node = ProcessorGraphNode(
            chosen,
            operation.create_supplier,
            stores=lambda: [settings.build_key_value()] if operation.is_materialized else [],
        )
        node.is_versioned = settings.materialized.is_versioned
        self.graph.add(node, stream.node)
        history_ms = settings.materialized.history_ms
        return KTable(self.graph, node, settings.serdes, stream.sources, operation, history_ms)

    def group_by_key(
        self, *, key_serde: Serde | None = None, value_serde: Serde | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Group the records by key.

        Args:
            key_serde: see ``to``; for the repartition topic, if one is needed, and for stores.
            value_serde: see ``to``.
            name: name of the repartition topic, without the application id and ``-repartition``.
        """
        serdes = self.serdes.override(key_serde, value_serde)
        return KGroupedStream(self.graph, self.node, serdes, self.sources, self.is_rekeyed, name)

    def group_by(
        self,
        mapper: Callable[[Any, Any], Any],
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedStream:
        """Group the records by the result of a function of key and value; see ``group_by_key``."""
        stream = self.select_key(mapper, name=name)
        serdes = stream.serdes.override(key_serde, value_serde)
        return KGroupedStream(self.graph, stream.node, serdes, self.sources, True, name)

    # ---- joins ----

    def join(self, other: Joinable, joiner: Callable[..., Any], **arguments: Unpack[JoinArguments]) -> KStream:
        """Join this stream with another stream or a table. Records without a match are dropped.

        Args:
            other: a stream, which needs ``windows``; a table; or a global table, which needs ``key``.
            joiner: function of both values, or with ``with_key`` of the key and both values.
            arguments: see ``JoinArguments``.

        Raises:
            TopologyError: an argument is missing, unknown, or not supported for the other side.
        """
        return join(self, other, joiner, JoinKind.INNER, arguments)

    def left_join(self, other: Joinable, joiner: Callable[..., Any], **arguments: Unpack[JoinArguments]) -> KStream:
        """Join as ``join``, and keep the records without a match: the joiner is called with None for the other value.

        In a join of two streams, a record without a match is forwarded after its window closes.
        """
        return join(self, other, joiner, JoinKind.LEFT, arguments)

    def outer_join(self, other: KStream, joiner: Callable[..., Any], **arguments: Unpack[JoinArguments]) -> KStream:
        """Join as ``left_join``, and keep the records of the other stream without a match, too."""
        return join(self, other, joiner, JoinKind.OUTER, arguments)

    # ---- for other steps ----

    def repartition_for_join(self, prefix: str, serdes: Serdes) -> KStream:
        """Return the stream, repartitioned by key if the keys may have changed.

        Args:
            prefix: name of the topic without its suffix.
            serdes: serdes of the records.
        """
        if not self.is_rekeyed:
            return self
        names = self.graph.name_repartition(prefix)
        if self._repartition is None or prefix != self.name:
            self._repartition = RepartitionGraphNode(names, serdes)
            self.graph.add(self._repartition, self.node)
        return KStream(self.graph, self._repartition, names.source, serdes, frozenset({self._repartition.name}))

    def append(
        self,
        node: ProcessorGraphNode,
        serdes: Serdes,
        *,
        sources: frozenset[str] | None = None,
        is_rekeyed: bool | None = None,
    ) -> KStream:
        """Add a step, and return its output.

        Args:
            node: the step.
            serdes: serdes of the output.
            sources: sources of the output; None for those of this stream.
            is_rekeyed: whether keys may have changed; None if they are those of this stream.
        """
        self.graph.add(node, self.node)
        return KStream(
            self.graph,
            node,
            node.name,
            serdes,
            self.sources if sources is None else sources,
            self.is_rekeyed if is_rekeyed is None else is_rekeyed,
        )

    def _append(
        self, prefix: str, name: str | None, supplier: ProcessorSupplier, serdes: Serdes, *, changes_key: bool = False
    ) -> KStream:
        node = ProcessorGraphNode(self.graph.names.choose(name, prefix), lambda: supplier)
        node.changes_key = changes_key
        return self.append(node, serdes, is_rekeyed=self.is_rekeyed or changes_key)

    def _append_values(self, prefix: str, name: str | None, supplier: ProcessorSupplier) -> KStream:
        node = ProcessorGraphNode(self.graph.names.choose(name, prefix), lambda: supplier)
        node.changes_value = True
        return self.append(node, Serdes(self.serdes.key))

    def _repartition_as(self, prefix: str, serdes: Serdes) -> KStream:
        node = RepartitionGraphNode(self.graph.name_repartition(prefix), serdes)
        self.graph.add(node, self.node)
        return KStream(self.graph, node, node.name, serdes, frozenset({node.name}))
