"""``StreamsBuilder``: builds a ``Topology`` from operations on streams and tables.

Source: Kafka 3.9 org.apache.kafka.streams.StreamsBuilder and InternalStreamsBuilder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.errors import TopologyError
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.checks import check_text, to_tuple
from zkconsumer.topology.declared.nodes import SourceNode, check_global_store, check_offset_reset, check_supplier
from zkconsumer.topology.declared.patterns import check_pattern
from zkconsumer.topology.dsl.endpoints import (
    Consumed,
    GlobalStoreGraphNode,
    Serdes,
    SourceGraphNode,
    TableSourceGraphNode,
)
from zkconsumer.topology.dsl.graph import GraphNode, StateStoreGraphNode
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings
from zkconsumer.topology.dsl.operations import SourceOperation
from zkconsumer.topology.dsl.optimizer import Optimization, optimize
from zkconsumer.topology.dsl.step_graph import SOURCE, StepGraph
from zkconsumer.topology.dsl.stream import KStream
from zkconsumer.topology.dsl.table import GlobalKTable, KTable
from zkconsumer.topology.dsl.tables import TableSource
from zkconsumer.topology.loop.java_order import PriorityQueue
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.timestamps import TimestampExtractor
from zkconsumer.topology.type_variables import K, V

_TABLE_SOURCE = "KTABLE-SOURCE-"


class StreamsBuilder:
    """Builds a topology from operations on streams and tables.

    ::

        builder = StreamsBuilder()
        lines = builder.stream("lines", value_serde=serdes.STRING)
        words = lines.flat_map_values(str.split).group_by(lambda key, word: word, key_serde=serdes.STRING)
        words.count(store="counts").to_stream().to("word-counts")
        topology = builder.build()

    Nodes, stores and internal topics have the same names and the same order as in Kafka Streams.
    """

    def __init__(self) -> None:
        self._graph = StepGraph(KStream, KTable)

    @check_arguments
    def stream(
        self,
        topics: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Read one or more topics as a stream.

        Args:
            topics: one or more topic names.
            pattern: Java regular expression for topic names; an alternative to ``topics``.
            key_serde: key serde; None uses the application's default.
            value_serde: value serde; None uses the application's default.
            timestamp_extractor: function that returns a record's timestamp; None uses the application's extractor.
            offset_reset: start position of a new application, ``earliest`` or ``latest``; None means ``earliest``.
            name: name of the source.

        Raises:
            TopologyError: both or neither of ``topics`` and ``pattern`` are given, or ``name`` is not a valid name.
                Conflicts with other steps are detected by ``build``.
        """
        names = (topics,) if isinstance(topics, str) else to_tuple("topics of a stream", topics)
        for topic in names:
            check_text("topic", topic)
        names = tuple(dict.fromkeys(names))
        check_offset_reset("stream()", offset_reset)
        if bool(names) is (pattern is not None):
            raise TopologyError(
                f"stream() requires exactly one of topics and pattern, got topics={names!r} and pattern={pattern!r}"
            )
        chosen = self._graph.names.choose(name, SOURCE)
        if pattern is not None:
            check_pattern(chosen, pattern, (), set())
        serdes = Serdes(key_serde, value_serde)
        node = SourceGraphNode(chosen, names, pattern, Consumed(serdes, timestamp_extractor, offset_reset))
        self._graph.add(node)
        return KStream(self._graph, node, chosen, serdes, frozenset({chosen}))

    @check_arguments
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Read a topic as a table: a record sets the value of its key, and a value of None deletes the key.

        Args:
            topic: topic to read.
            key_serde: see ``stream``.
            value_serde: see ``stream``.
            timestamp_extractor: see ``stream``.
            offset_reset: see ``stream``.
            store: name or settings of the store. Without a name, a store is created only if a downstream step needs it.
            name: name of the step.
        """
        check_offset_reset("table()", offset_reset)
        graph, serdes = self._graph, Serdes(key_serde, value_serde)
        settings = TableStoreSettings.create(store, graph.names, f"{topic}-", serdes)
        source, chosen = self._choose_names(name)
        operation = SourceOperation(settings.name, settings.is_named)
        node = TableSourceGraphNode(
            chosen,
            source,
            topic,
            Consumed(settings.serdes, timestamp_extractor, offset_reset),
            operation.create_supplier,
            lambda: settings.build_key_value() if operation.is_materialized else None,
        )
        node.is_versioned = settings.materialized.is_versioned
        graph.add(node)
        history_ms = settings.materialized.history_ms
        return KTable(graph, node, settings.serdes, frozenset({source}), operation, history_ms)

    @check_arguments
    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """Read all partitions of a topic into a table that every task can access.

        Args:
            topic: topic to read.
            key_serde: see ``stream``.
            value_serde: see ``stream``.
            store: name or settings of the store.
            name: name of the step.

        Raises:
            TopologyError: ``store`` is versioned, which global tables do not support.
        """
        graph = self._graph
        settings = TableStoreSettings.create(store, graph.names, f"{topic}-", Serdes(key_serde, value_serde))
        if settings.materialized.is_versioned:
            raise TopologyError(f"global table {settings.name!r} cannot be versioned; remove history_ms")
        source, chosen = self._choose_names(name)
        supplier = partial(TableSource, settings.name, False)
        builder = settings.build_key_value(is_global=True)
        graph.add(GlobalStoreGraphNode(chosen, source, topic, Consumed(settings.serdes), supplier, builder))
        return GlobalKTable(settings.name, graph)

    @check_arguments
    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """Add a state store, to which ``process`` and ``process_values`` can connect their processors."""
        self._graph.add(StateStoreGraphNode(builder))
        return self

    @check_arguments
    def add_global_store(
        self,
        builder: StoreBuilder,
        topic: str,
        supplier: ProcessorSupplier,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a global store; see ``Topology.add_global_store``.

        Args:
            builder: builder of the store; it must have ``logging=False``.
            topic: topic to read.
            supplier: class or function that returns a new processor on each call; the processor maintains the store.
            key_serde: see ``stream``.
            value_serde: see ``stream``.
            name: name of the step.
        """
        source, chosen = self._choose_names(name)
        check_supplier(chosen, supplier)
        check_global_store(builder)
        consumed = Consumed(Serdes(key_serde, value_serde))
        self._graph.add(GlobalStoreGraphNode(chosen, source, topic, consumed, supplier, builder))
        return self

    @check_arguments
    def build(self, optimization: Optimization = Optimization.NONE) -> Topology:
        """Build the topology.

        Args:
            optimization: optimizations to apply.

        Raises:
            TopologyError: the steps conflict; for example, two of them have the same name.
        """
        optimize(self._graph, optimization)
        return _write(self._graph)

    def _choose_names(self, name: str | None) -> tuple[str, str]:
        names = self._graph.names
        return names.choose(name, SOURCE, "-source"), names.choose(name, _TABLE_SOURCE)


def _write(graph: StepGraph) -> Topology:
    """Return a topology that contains all steps.

    Steps are written in priority order, but parents are always written before their children.
    """
    topology, written = Topology(), {graph.root}
    queue: PriorityQueue[GraphNode] = PriorityQueue(lambda node: node.priority)
    for child in graph.root.children:
        queue.add(child)
    while (node := queue.poll()) is not None:
        if node not in written and written.issuperset(node.parents):
            node.write(topology)
            written.add(node)
        for child in node.children:
            queue.add(child)
    for names in graph.copartitioned:
        sources = [name for name in topology.nodes if name in names and isinstance(topology.nodes[name], SourceNode)]
        if len(sources) > 1:
            topology.copartition(*sources)
    return topology
