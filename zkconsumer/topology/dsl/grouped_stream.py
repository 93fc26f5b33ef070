"""``KGroupedStream``: aggregates a stream by key.

Source: Kafka 3.9 KGroupedStreamImpl and GroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from functools import partial
from typing import Generic

from zkconsumer.checked_arguments import check_arguments
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
from zkconsumer.topology.type_variables import A, K, V
from zkconsumer.topology.windows import SlidingWindows


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key. Its methods aggregate the records into a table.

    Args:
        graph: steps of the ``StreamsBuilder``.
        node: parent step.
        serdes: key and value serdes.
        sources: names of the sources that the records come from.
        is_rekeyed: whether the records must be repartitioned.
        topic: name of the repartition topic, without the application id and ``-repartition``; None uses the store name.
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

    @check_arguments
    def count(self, *, store: StoreSettings = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key. Records whose value is None are ignored.

        Args:
            store: name or settings of the store. Its default value serde is ``serdes.LONG``.
            name: name of the step.
        """
        settings = self.count_settings(store)
        return self._aggregate(self.graph.names.choose(name, AGGREGATE), settings, zero, add_one)

    @check_arguments
    def reduce(self, reducer: Reducer[V], *, store: StoreSettings = None, name: str | None = None) -> KTable[K, V]:
        """Combine the values of each key. Records whose value is None are ignored.

        Args:
            reducer: function that returns the new result, given the current result and a value. The first value of a
                key becomes its first result.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = TableStoreSettings.create(store, self.graph.names, REDUCE, self.serdes)
        chosen = self.graph.names.choose(name, REDUCE)
        return self._aggregate(chosen, settings, None, partial(reduce_values, reducer))

    @check_arguments
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Aggregator[K, V, A],
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each key. Records whose value is None are ignored.

        Args:
            initializer: function that returns the initial aggregate of a key.
            aggregator: function that returns the new aggregate, given the key, value and current aggregate.
                A result of None deletes the key.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = TableStoreSettings.create(store, self.graph.names, AGGREGATE, Serdes(self.serdes.key))
        return self._aggregate(self.graph.names.choose(name, AGGREGATE), settings, initializer, aggregator)

    @check_arguments
    def windowed_by(self, windows: Windows, *, emit: Emit = Emit.ON_UPDATE) -> WindowedKStream[K, V]:
        """Also group the records by window.

        Args:
            windows: time windows, sliding windows or session windows.
            emit: emit strategy; see ``Emit``.
        """
        return WindowedKStream(self, windows, emit)

    @check_arguments
    def cogroup(self, aggregator: Aggregator[K, V, A]) -> CogroupedKStream[K, A]:
        """Start an aggregation of several grouped streams into one table.

        Args:
            aggregator: function that returns the new aggregate, given the key, value and current aggregate.
        """
        cogrouped: CogroupedKStream[K, A] = CogroupedKStream(self.graph)
        return cogrouped.cogroup(self, aggregator)

    # ---- called by other steps ----

    def count_settings(self, store: StoreSettings, windows: Windows | None = None) -> TableStoreSettings:
        """Return the store settings for ``count``, with or without windows."""
        if isinstance(store, Materialized) and store.store is None and not isinstance(windows, SlidingWindows):
            self.graph.names.generate_store(AGGREGATE)  # as in Kafka Streams, this increments the name counter
        return TableStoreSettings.create(store, self.graph.names, AGGREGATE, Serdes(self.serdes.key, standard.LONG))

    def _find_parent(self, store: str) -> tuple[GraphNode, frozenset[str]]:
        """Return the step whose output is partitioned by key, and its source names.

        Args:
            store: name of the store, which is also the default name of the repartition topic.
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
        """Add the steps of an aggregation, and return the resulting table.

        Args:
            name: name of the step.
            operation: aggregation that the step performs.
            settings: settings of the aggregation's store.
            windows: windows of the aggregation; None if it is not windowed.
        """
        parent, sources = self._find_parent(settings.name)
        node = create_aggregate_node(name, operation, settings, windows)
        self.graph.add(node, parent)
        serdes, history_ms = create_windowed_serdes(settings.serdes, windows), settings.materialized.history_ms
        return KTable(self.graph, node, serdes, sources, operation, history_ms)

    def _aggregate(
        self,
        name: str,
        settings: TableStoreSettings,
        initializer: Initializer[A] | None,
        aggregator: Aggregator[K, V, A],
    ) -> KTable[K, A]:
        create = partial(Aggregate, settings.name, initializer, aggregator)
        return self.build(name, AggregateOperation(StoreView(settings.name), create), settings)
