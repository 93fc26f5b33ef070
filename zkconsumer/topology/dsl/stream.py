"""``KStream``: a stream of records.

Source: Kafka 3.9 org.apache.kafka.streams.kstream.KStream and KStreamImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Literal, Unpack, overload

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.topology.declared.nodes import Partitioner, TopicExtractor, check_supplier
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
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder, to_builders
from zkconsumer.topology.type_variables import KR, VO, VR, K, V


class KStream(Generic[K, V]):
    """A stream of records. Operations such as ``filter`` add a step to the builder, and return the resulting stream.

    ``K`` and ``V`` are the types of keys and values that are not None.

    Step names are optional and must be unique. They can contain letters, digits, dots, underscores and hyphens.

    Args:
        graph: steps of the ``StreamsBuilder``.
        node: step that produces the stream.
        name: name of the node from which downstream steps receive records.
        serdes: key and value serdes, if known.
        sources: names of the sources that the records come from.
        is_rekeyed: whether keys may have changed, so that the stream must be repartitioned before grouping or joining.
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

    # ---- stateless operations ----

    @check_arguments
    def filter(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is true."""
        return self._append(FILTER, name, partial(stateless.Filter, predicate, False), self.serdes)

    @check_arguments
    def filter_not(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is false."""
        return self._append(FILTER, name, partial(stateless.Filter, predicate, True), self.serdes)

    @check_arguments
    def map(self, mapper: Callable[[K, V], tuple[KR | None, VR | None]], *, name: str | None = None) -> KStream[KR, VR]:
        """Replace each record with the key-value pair that ``mapper(key, value)`` returns."""
        return self._append("KSTREAM-MAP-", name, partial(stateless.Map, mapper), Serdes(), changes_key=True)

    @check_arguments
    def select_key(self, mapper: Callable[[K, V], KR | None], *, name: str | None = None) -> KStream[KR, V]:
        """Replace the key of each record with the result of ``mapper(key, value)``."""
        serdes = Serdes(None, self.serdes.value)
        return self._append("KSTREAM-KEY-SELECT-", name, partial(stateless.SelectKey, mapper), serdes, changes_key=True)

    @check_arguments
    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[KR | None, VR | None]]], *, name: str | None = None
    ) -> KStream[KR, VR]:
        """Replace each record with the key-value pairs that ``mapper(key, value)`` returns."""
        return self._append("KSTREAM-FLATMAP-", name, partial(stateless.FlatMap, mapper), Serdes(), changes_key=True)

    @overload
    def map_values(
        self, mapper: Callable[[V], VR | None], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], VR | None], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, VR]: ...

    @check_arguments
    def map_values(
        self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, Any]:
        """Replace the value of each record with the result of ``mapper``.

        Args:
            mapper: function of the value, or of key and value if ``with_key`` is true; returns the new value.
            with_key: whether ``mapper`` is called with key and value.
            name: name of the step.
        """
        kind = stateless.MapValuesWithKey if with_key else stateless.MapValues
        return self._append_values("KSTREAM-MAPVALUES-", name, partial(kind, mapper))

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[VR | None]], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[VR | None]], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, VR]: ...

    @check_arguments
    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, Any]:
        """Replace each record with one record per value that ``mapper`` returns.

        Args:
            mapper: function of the value, or of key and value if ``with_key`` is true; returns any number of values.
            with_key: whether ``mapper`` is called with key and value.
            name: name of the step.
        """
        kind = stateless.FlatMapValuesWithKey if with_key else stateless.FlatMapValues
        return self._append_values("KSTREAM-FLATMAPVALUES-", name, partial(kind, mapper))

    @check_arguments
    def peek(self, action: Action[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Call ``action(key, value)`` for each record, and forward the record unchanged."""
        return self._append("KSTREAM-PEEK-", name, partial(stateless.Peek, action), self.serdes)

    @check_arguments
    def foreach(self, action: Action[K, V], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record."""
        self._append("KSTREAM-FOREACH-", name, partial(stateless.ForEach, action), self.serdes)

    @check_arguments
    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Merge this stream and ``other``. Order is preserved within each stream, but not across the streams."""
        self.graph.check_same_builder("merge(): other", other.graph)
        chosen = self.graph.names.choose(name, "KSTREAM-MERGE-")
        node = ProcessorGraphNode(chosen, lambda: stateless.PassThrough)
        node.is_merge = True
        self.graph.add(node, self.node, other.node)
        is_rekeyed = self.is_rekeyed or other.is_rekeyed
        return KStream(self.graph, node, chosen, Serdes(), unite(self.sources, other.sources), is_rekeyed)

    @check_arguments
    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches; see ``BranchedKStream``."""
        return BranchedKStream(self, name)

    @check_arguments
    def process(
        self,
        supplier: ProcessorSupplier,
        *connected: str,
        stores: Iterable[StoreBuilder] = (),
        name: str | None = None,
    ) -> KStream:
        """Process the records with a ``Processor``.

        Args:
            supplier: class or function that returns a new processor on each call.
            connected: names of the stores that the processor uses and that are added with
                ``StreamsBuilder.add_state_store``.
            stores: stores to add for this processor.
            name: name of the step.
        """
        prefix = "KSTREAM-PROCESSOR-"
        # As in Kafka Streams, a named process() does not increment the name counter.
        chosen = self.graph.names.generate(prefix) if name is None else check_name(name)
        check_supplier(chosen, supplier)
        node = ProcessorGraphNode(chosen, lambda: supplier, connected, to_builders(chosen, stores).__iter__)
        return self.append(node, Serdes(), is_rekeyed=True)

    @check_arguments
    def process_values(
        self,
        supplier: ProcessorSupplier,
        *connected: str,
        stores: Iterable[StoreBuilder] = (),
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Process the records with a ``Processor`` that must not change keys; see ``process``.

        This step does not cause a repartition downstream, so forwarded records must have the same keys as the received
        records. If ``process`` forwards another key, it fails.
        """
        prefix = "KSTREAM-PROCESSVALUES-"
        chosen = self.graph.names.generate(prefix) if name is None else check_name(name)
        check_supplier(chosen, supplier)
        builders = to_builders(chosen, stores)
        node = ProcessorGraphNode(chosen, lambda: supplier, connected, builders.__iter__, keeps_keys=True)
        return self.append(node, Serdes(self.serdes.key))

    # ---- topics ----

    @check_arguments
    def to(
        self,
        topic: str | TopicExtractor,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic.

        Args:
            topic: topic name, or a function that returns the topic name for a record.
            key_serde: key serde; None uses the stream's serde, or else the application's default.
            value_serde: value serde; None uses the stream's serde, or else the application's default.
            partitioner: function that selects the partition; None uses the producer's partitioner, or the hash of
                the inner key for windowed keys.
            name: name of the step.
        """
        chosen = self.graph.names.choose(name, SINK)
        serdes = self.serdes.override(key_serde, value_serde)
        self.graph.add(SinkGraphNode(chosen, topic, serdes, partitioner), self.node)

    @check_arguments
    def repartition(
        self,
        *,
        partitions: int | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Repartition the records by key, through an internal topic.

        Args:
            partitions: number of partitions; None derives it from upstream and co-partitioned topics.
            key_serde: see ``to``.
            value_serde: see ``to``.
            partitioner: function that selects the partition; None uses the producer's partitioner.
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

    @check_arguments
    def to_table(self, *, store: StoreSettings = None, name: str | None = None) -> KTable[K, V]:
        """Convert the stream to a table with the latest value for each key. A value of None deletes the key.

        Args:
            store: name or settings of the store. Without a name, a store is created only if a downstream step needs it.
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

    @check_arguments
    def group_by_key(
        self, *, key_serde: Serde[K] | None = None, value_serde: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Group the records by key.

        Args:
            key_serde: key serde of the stores and any repartition topic; None uses the stream's serde, or else the
                application's default.
            value_serde: value serde of any repartition topic; None uses the stream's serde, or else the application's
                default.
            name: name of the repartition topic, without the application id and ``-repartition``.
        """
        serdes = self.serdes.override(key_serde, value_serde)
        return KGroupedStream(self.graph, self.node, serdes, self.sources, self.is_rekeyed, name)

    @check_arguments
    def group_by(
        self,
        mapper: Callable[[K, V], KR | None],
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group the records by the result of ``mapper(key, value)``; see ``group_by_key``."""
        stream = self.select_key(mapper, name=name)
        serdes = stream.serdes.override(key_serde, value_serde)
        return KGroupedStream(self.graph, stream.node, serdes, self.sources, True, name)

    # ---- joins ----

    @overload
    def join(
        self,
        other: Joinable[K, VO],
        joiner: Callable[[V, VO], VR | None],
        *,
        with_key: Literal[False] = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: Joinable[K, VO],
        joiner: Callable[[K, V, VO], VR | None],
        *,
        with_key: Literal[True],
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    def join(
        self,
        other: Joinable[K, Any],
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, Any]:
        """Join this stream with a stream, table or global table. Records without a match are dropped.

        Args:
            other: stream (requires ``windows``), table, or global table (requires ``key``) to join with.
            joiner: function of both values, or of the key and both values if ``with_key`` is true; returns the join
                result.
            with_key: whether ``joiner`` is called with the key in addition to both values.
            arguments: see ``JoinArguments``.

        Raises:
            TopologyError: an argument is missing, unknown, or not supported for the type of ``other``.
        """
        return join(self, other, joiner, JoinKind.INNER, with_key, arguments)

    @overload
    def left_join(
        self,
        other: Joinable[K, VO],
        joiner: Callable[[V, VO | None], VR | None],
        *,
        with_key: Literal[False] = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: Joinable[K, VO],
        joiner: Callable[[K, V, VO | None], VR | None],
        *,
        with_key: Literal[True],
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    def left_join(
        self,
        other: Joinable[K, Any],
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, Any]:
        """Like ``join``, but keep records without a match: ``joiner`` is then called with None as the other value.

        In a stream-stream join, a record without a match is forwarded after its window closes.
        """
        return join(self, other, joiner, JoinKind.LEFT, with_key, arguments)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], VR | None],
        *,
        with_key: Literal[False] = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], VR | None],
        *,
        with_key: Literal[True],
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, VR]: ...

    def outer_join(
        self,
        other: KStream[K, Any],
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        **arguments: Unpack[JoinArguments],
    ) -> KStream[K, Any]:
        """Like ``left_join``, but also keep the records of ``other`` that have no match."""
        return join(self, other, joiner, JoinKind.OUTER, with_key, arguments)

    # ---- called by other steps ----

    def repartition_for_join(self, prefix: str, serdes: Serdes) -> KStream[K, V]:
        """Return the stream, repartitioned by key if the keys may have changed.

        Args:
            prefix: name of the repartition topic, without its suffix.
            serdes: key and value serdes.
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
        """Add a step, and return its output stream.

        Args:
            node: step to add.
            serdes: key and value serdes of the output.
            sources: names of the output's sources; None inherits the sources of this stream.
            is_rekeyed: whether keys may have changed; None inherits the flag of this stream.
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
