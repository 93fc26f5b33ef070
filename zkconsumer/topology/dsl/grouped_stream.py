"""``KGroupedStream``: aggregations of a stream by key.

Source: Kafka 3.9 KGroupedStreamImpl and GroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from functools import partial

from zkconsumer.topology import serdes as standard
from zkconsumer.topology.dsl.aggregate_steps import AGGREGATE, REDUCE, create_aggregate_node, create_windowed_serdes
from zkconsumer.topology.dsl.aggregates import Aggregate, Aggregator, Initializer, Reducer, add_one, reduce_values, zero
from zkconsumer.topology.dsl.cogrouped_stream import CogroupedKStream
from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, Serdes
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.materialized import Materialized, StoreSettings, TableStoreSettings, Windows
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.operations import AggregateOperation
from zkconsumer.topology.dsl.step_graph import StepGraph
from zkconsumer.topology.dsl.table import KTable
from zkconsumer.topology.dsl.views import StoreView
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.dsl.windowed_stream import WindowedKStream
from zkconsumer.topology.windows import SlidingWindows


class KGroupedStream:
    """Records by key. Methods aggregate them to a table.

    Args:
        graph: the steps of the builder.
        node: the step before.
        serdes: serdes of the records.
        sources: names of the sources from which the records come.
        is_rekeyed: whether the records must be repartitioned.
        topic: name of the repartition topic; None for that of the store.
    """

    def __init__(
        self,
        graph: StepGraph,
        node: GraphNode,
        serdes: Serdes,
        sources: frozenset[str],
        is_rekeyed: bool,
        topic: str | None,
    ) -> None:
        self.graph, self.node, self.serdes, self.sources = graph, node, serdes, sources
        self.is_rekeyed, self.topic = is_rekeyed, None if topic is None else check_name(topic)
        self._repartition: RepartitionGraphNode | None = None

    def count(self, *, store: StoreSettings = None, name: str | None = None) -> KTable:
        """Count the records of each key, except those whose value is None.

        Args:
            store: name or settings of the store. Default serde of its values: ``serdes.LONG``.
            name: name of the step.
        """
        settings = self.count_settings(store)
        return self._aggregate(self.graph.names.choose(name, AGGREGATE), settings, zero, add_one)

    def reduce(self, reducer: Reducer, *, store: StoreSettings = None, name: str | None = None) -> KTable:
        """Combine the values of each key. Values of None are ignored.

        Args:
            reducer: function of the result so far and a value. The first value of a key is the first result.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = TableStoreSettings.create(store, self.graph.names, REDUCE, self.serdes)
        chosen = self.graph.names.choose(name, REDUCE)
        return self._aggregate(chosen, settings, None, partial(reduce_values, reducer))

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key. Values of None are ignored.

        Args:
            initializer: returns the aggregate before the first record of a key.
            aggregator: function of key, value and aggregate; returns the new aggregate, or None to delete the key.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = TableStoreSettings.create(store, self.graph.names, AGGREGATE, Serdes(self.serdes.key))
        return self._aggregate(self.graph.names.choose(name, AGGREGATE), settings, initializer, aggregator)

    def windowed_by(self, windows: Windows, *, emit: Emit = Emit.ON_UPDATE) -> WindowedKStream:
        """Group the records also by window.

        Args:
            windows: time windows, sliding windows or sessions.
            emit: when results are forwarded.
        """
        return WindowedKStream(self, windows, emit)

    def cogroup(self, aggregator: Aggregator) -> CogroupedKStream:
        """Return an object that aggregates the records of several grouped streams to one table.

        Args:
            aggregator: function of key, value and aggregate; returns the new aggregate.
        """
        return CogroupedKStream(self.graph).cogroup(self, aggregator)

    # ---- for other steps ----

    def count_settings(self, store: StoreSettings, windows: Windows | None = None) -> TableStoreSettings:
        """Return the settings of the store of a count, by window or not."""
        if isinstance(store, Materialized) and store.store is None and not isinstance(windows, SlidingWindows):
            self.graph.names.generate_store(AGGREGATE)  # as in Kafka Streams, the counter is incremented
        return TableStoreSettings.create(store, self.graph.names, AGGREGATE, Serdes(self.serdes.key, standard.LONG))

    def _find_parent(self, store: str) -> tuple[GraphNode, frozenset[str]]:
        """Return the step whose output is partitioned by key, and its sources.

        Args:
            store: name of the store, and of the repartition topic if the user gave none.
        """
        if not self.is_rekeyed:
            return self.node, self.sources
        names = self.graph.name_repartition(self.topic or store)
        if self._repartition is None or self.topic is None:
            self._repartition = RepartitionGraphNode(names, self.serdes)
        self.graph.add(self._repartition, self.node)
        return self._repartition, frozenset({names.source})

    def build(
        self, name: str, operation: AggregateOperation, settings: TableStoreSettings, windows: Windows | None = None
    ) -> KTable:
        """Add the steps of an aggregation, and return its table.

        Args:
            name: name of the step.
            operation: the aggregation.
            settings: settings of its store.
            windows: the windows, or None.
        """
        parent, sources = self._find_parent(settings.name)
        node = create_aggregate_node(name, operation, settings, windows)
        self.graph.add(node, parent)
        serdes, history_ms = create_windowed_serdes(settings.serdes, windows), settings.materialized.history_ms
        return KTable(self.graph, node, serdes, sources, operation, history_ms)

    def _aggregate(
        self, name: str, settings: TableStoreSettings, initializer: Initializer | None, aggregator: Aggregator
    ) -> KTable:
        create = partial(Aggregate, settings.name, initializer, aggregator)
        return self.build(name, AggregateOperation(StoreView(settings.name), create), settings)
