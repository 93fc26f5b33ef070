"""``KGroupedTable``: aggregates a table by new keys.

Source: Kafka 3.9 KGroupedTableImpl, KTableAggregate, KTableReduce, ChangedSerializer and ChangedDeserializer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.errors import StreamsError
from zkconsumer.topology import serdes as standard
from zkconsumer.topology.dsl.aggregates import Aggregator, Initializer, Reducer, add_one, reduce_values, zero
from zkconsumer.topology.dsl.change_serde import create_change_serde
from zkconsumer.topology.dsl.endpoints import RepartitionGraphNode, RepartitionNames, Serdes
from zkconsumer.topology.dsl.graph import GraphNode, ProcessorGraphNode
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.operations import AggregateOperation
from zkconsumer.topology.dsl.step_graph import SINK, SOURCE, StepGraph
from zkconsumer.topology.dsl.table_store import TableOutput
from zkconsumer.topology.dsl.views import StoreView
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.type_variables import A, K, V

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.table import KTable

_AGGREGATE = "KTABLE-AGGREGATE-"


class KGroupedTable(Generic[K, V]):
    """A table grouped by new keys. Its methods aggregate the values into a table.

    An update subtracts the old value from the aggregate of its key, and adds the new value to the aggregate of its key.

    Args:
        graph: steps of the ``StreamsBuilder``.
        node: parent step.
        serdes: serdes of the new keys and values.
        topic: name of the repartition topic, without the application id and ``-repartition``; None uses the store name.
    """

    def __init__(self, graph: StepGraph, node: GraphNode, serdes: Serdes, topic: str | None) -> None:
        self._graph, self._node, self._serdes = graph, node, serdes
        self._topic = None if topic is None else check_name(topic)
        self._repartition: RepartitionGraphNode | None = None

    @check_arguments
    def count(self, *, store: StoreSettings = None, name: str | None = None) -> KTable[K, int]:
        """Count the values of each key.

        Args:
            store: name or settings of the store. Its default value serde is ``serdes.LONG``.
            name: name of the step.
        """
        settings = self._choose_store(store, Serdes(self._serdes.key, standard.LONG))
        return self._aggregate(name, _AGGREGATE, settings, zero, add_one, subtract_one)

    @check_arguments
    def reduce(
        self, adder: Reducer[V], subtractor: Reducer[V], *, store: StoreSettings = None, name: str | None = None
    ) -> KTable[K, V]:
        """Combine the values of each key.

        Args:
            adder: function that returns the new result, given the current result and a new value. The first value of a
                key becomes its first result.
            subtractor: function that returns the new result, given the current result and a removed value.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = self._choose_store(store, self._serdes)
        add, remove = partial(reduce_values, adder), partial(reduce_values, subtractor)
        return self._aggregate(name, "KTABLE-REDUCE-", settings, None, add, remove)

    @check_arguments
    def aggregate(
        self,
        initializer: Initializer[A],
        adder: Aggregator[K, V, A],
        subtractor: Aggregator[K, V, A],
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each key.

        Args:
            initializer: function that returns the initial aggregate of a key.
            adder: function that returns the new aggregate, given the key, new value and current aggregate.
            subtractor: function that returns the new aggregate, given the key, removed value and current aggregate.
            store: name or settings of the store.
            name: name of the step.
        """
        settings = self._choose_store(store, Serdes(self._serdes.key))
        return self._aggregate(name, _AGGREGATE, settings, initializer, adder, subtractor)

    def _choose_store(self, store: StoreSettings, serdes: Serdes) -> TableStoreSettings:
        return TableStoreSettings.create(store, self._graph.names, _AGGREGATE, serdes)

    def _aggregate(
        self,
        name: str | None,
        prefix: str,
        settings: TableStoreSettings,
        initializer: Initializer | None,
        adder: Aggregator,
        subtractor: Aggregator,
    ) -> KTable:
        names = self._graph.names
        sink, source = names.choose(name, SINK, "-sink"), names.choose(name, SOURCE, "-source")
        chosen = names.choose(name, prefix)
        if self._repartition is None or self._topic is None:
            topic = f"{self._topic or settings.name}-repartition"
            serdes = Serdes(self._serdes.key, create_change_serde(self._serdes.value))
            self._repartition = RepartitionGraphNode(
                RepartitionNames(topic, sink, source), serdes, is_optimizable=False
            )
        self._graph.add(self._repartition, self._node)
        operation = AggregateOperation(
            StoreView(settings.name), partial(AggregateTable, settings.name, initializer, adder, subtractor)
        )
        node = ProcessorGraphNode(chosen, operation.create_supplier, stores=lambda: [settings.build_key_value()])
        node.is_versioned = settings.materialized.is_versioned
        self._graph.add(node, self._repartition)
        sources, history_ms = frozenset({self._repartition.name}), settings.materialized.history_ms
        return self._graph.create_table(self._graph, node, settings.serdes, sources, operation, history_ms)


class AggregateTable(Processor):
    """Aggregates the changes to a table.

    Args:
        store: name of the store.
        initializer: function that returns the initial aggregate; None if the first value is the initial aggregate, as
            in ``reduce``.
        adder: see ``KGroupedTable.aggregate``.
        subtractor: see ``KGroupedTable.aggregate``.
        sends_old: whether downstream steps need old values.
    """

    def __init__(
        self, store: str, initializer: Initializer | None, adder: Aggregator, subtractor: Aggregator, sends_old: bool
    ) -> None:
        self._name, self._initializer, self._sends_old = store, initializer, sends_old
        self._adder, self._subtractor = adder, subtractor

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._table = context, TableOutput(context, self._name, self._sends_old)

    def process(self, record: Record) -> None:
        """Update the aggregate of the key, and forward the change.

        Raises:
            StreamsError: the record has no key.
        """
        key, change = record.key, record.value
        if key is None:
            raise StreamsError(f"node {self._context.node_name!r}: records of a grouped table must have a key")
        found, timestamp = self._table.get(key), record.timestamp
        old = None if found is None else found.value
        new = old
        if found is not None and (change.new is not None or change.old is not None):
            timestamp = max(timestamp, found.timestamp)
        if change.old is not None and old is not None:
            new = self._subtractor(key, change.old, old)
        if change.new is not None:
            if new is None and self._initializer is not None:
                new = self._initializer()
            new = self._adder(key, change.new, new)
        self._table.update(key, new, old, timestamp, record.headers)


def subtract_one(_key: Any, _value: Any, count: int) -> int:
    """Return the count, decremented by 1."""
    return count - 1
