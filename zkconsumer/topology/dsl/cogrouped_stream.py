"""``CogroupedKStream``: aggregates several grouped streams into one table.

Source: Kafka 3.9 CogroupedKStreamImpl and CogroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.topology.dsl.aggregate_steps import (
    check_merger,
    create_aggregate_node,
    create_windowed_operation,
    create_windowed_serdes,
)
from zkconsumer.topology.dsl.aggregates import Aggregate, Aggregator, Initializer
from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, Serdes
from zkconsumer.topology.dsl.graph import GraphNode, ProcessorGraphNode
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings, Windows
from zkconsumer.topology.dsl.operations import AggregateOperation, TableOperation
from zkconsumer.topology.dsl.session_aggregates import Merger
from zkconsumer.topology.dsl.stateless import PassThrough
from zkconsumer.topology.dsl.step_graph import StepGraph, unite
from zkconsumer.topology.dsl.table import KTable
from zkconsumer.topology.dsl.views import StoreView, View
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.type_variables import VO, A, K

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.grouped_stream import KGroupedStream

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"


class CogroupedKStream(Generic[K, A]):
    """Several grouped streams, each with its own aggregator, that are aggregated into one table.

    Args:
        graph: steps of the ``StreamsBuilder``.
        windows: windows of the aggregation; None if it is not windowed.
    """

    def __init__(self, graph: StepGraph, windows: Windows | None = None) -> None:
        self._graph, self._windows = graph, windows
        self._aggregators: dict[KGroupedStream, Aggregator] = {}
        self._parents: dict[KGroupedStream, GraphNode] = {}

    @check_arguments
    def cogroup(self, grouped: KGroupedStream[K, VO], aggregator: Aggregator[K, VO, A]) -> CogroupedKStream[K, A]:
        """Add a grouped stream.

        Args:
            grouped: grouped stream to add.
            aggregator: function that returns the new aggregate, given the key, value and current aggregate.
        """
        self._graph.check_same_builder("cogroup(): grouped", grouped.graph)
        self._aggregators[grouped] = aggregator
        return self

    @check_arguments
    def windowed_by(self, windows: Windows) -> CogroupedKStream[Windowed[K], A]:
        """Also group the records by window."""
        windowed = CogroupedKStream(self._graph, windows)
        windowed._aggregators, windowed._parents = self._aggregators, self._parents
        return windowed

    @check_arguments
    def aggregate(
        self,
        initializer: Initializer[A],
        merger: Merger[Any, A] | None = None,
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Aggregate the values of all streams into one table.

        Args:
            initializer: function that returns the initial aggregate.
            merger: function that returns the merged aggregate of two sessions, given the key and both aggregates.
                Required for session windows, and supported only for them.
            store: name or settings of the store.
            name: prefix of the step names.

        Raises:
            TopologyError: ``merger`` is missing for session windows, or given without them.
        """
        check_merger(self._windows, merger)
        names = self._graph.names
        settings = TableStoreSettings.create(store, names, _AGGREGATE, Serdes())
        sources = self._add_repartitions(settings.name)
        nodes: list[ProcessorGraphNode] = []
        operations: list[AggregateOperation] = []
        for number, (grouped, aggregator) in enumerate(self._aggregators.items()):
            operation = self._create_operation(settings.name, initializer, aggregator, merger)
            chosen = names.choose(name, _AGGREGATE, f"-cogroup-agg-{number}")
            node = create_aggregate_node(chosen, operation, settings, self._windows, has_store=not nodes)
            self._graph.add(node, self._parents[grouped])
            nodes.append(node)
            operations.append(operation)
        chosen = names.choose(name, _MERGE, "-cogroup-merge")
        merged = MergedOperation(operations)
        merge = ProcessorGraphNode(chosen, merged.create_supplier)
        self._graph.add(merge, *nodes)
        serdes = create_windowed_serdes(settings.serdes, self._windows)
        return KTable(self._graph, merge, serdes, sources, merged)

    def _add_repartitions(self, store: str) -> frozenset[str]:
        """Repartition the streams whose keys may have changed, and return the source names of all streams."""
        sources = []
        for grouped in self._aggregators:
            if not grouped.is_rekeyed:
                self._parents[grouped] = grouped.node
                sources.append(grouped.sources)
                continue
            names = self._graph.name_repartition(grouped.topic or store)
            if grouped not in self._parents:
                node = self._parents[grouped] = RepartitionGraphNode(names, grouped.serdes)
                self._graph.add(node, grouped.node)
            sources.append(frozenset({self._parents[grouped].name}))
        self._graph.copartitioned.append(unite(*sources))
        return self._graph.copartitioned[-1]

    def _create_operation(
        self, store: str, initializer: Initializer, aggregator: Aggregator, merger: Merger | None
    ) -> AggregateOperation:
        if self._windows is None:
            return AggregateOperation(StoreView(store), partial(Aggregate, store, initializer, aggregator))
        return create_windowed_operation(self._windows, store, Emit.ON_UPDATE, initializer, aggregator, merger)


class MergedOperation(TableOperation):
    """Merges the changes from aggregations that share a store."""

    def __init__(self, operations: list[AggregateOperation]) -> None:
        self._operations = operations

    def send_old_values(self, *, force: bool) -> bool:
        """See ``TableOperation``."""
        for operation in self._operations:
            operation.send_old_values(force=force)
        return True

    def view(self) -> View:
        """See ``TableOperation``."""
        return self._operations[0].view()

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return PassThrough
