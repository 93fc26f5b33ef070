"""``KTable``, a table that contains the latest value of each key, and ``GlobalKTable``.

Source: Kafka 3.9 org.apache.kafka.streams.kstream.KTable and KTableImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.errors import TopologyError
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.graph import GraphNode, ProcessorGraphNode
from zkconsumer.topology.dsl.grouped_table import KGroupedTable
from zkconsumer.topology.dsl.join_kinds import JoinKind
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings, resolve_settings
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.operations import (
    DerivedOperation,
    FilterOperation,
    MapOperation,
    RegroupOperation,
    TableOperation,
)
from zkconsumer.topology.dsl.stateless import MapValues, Predicate
from zkconsumer.topology.dsl.step_graph import StepGraph, unite
from zkconsumer.topology.dsl.suppress import Suppressed, SuppressGraphNode, SuppressOperation, SuppressRule
from zkconsumer.topology.dsl.suppress_buffer import build_suppress_buffer
from zkconsumer.topology.dsl.table_join_steps import JoinOperation, TableJoinGraphNode
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.dsl.views import StoreView, View
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.type_variables import KR, VO, VR, K, V

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.stream import KStream

_FILTER = "KTABLE-FILTER-"
_MAP_VALUES = "KTABLE-MAPVALUES-"
_MERGE = "KTABLE-MERGE-"
_SUPPRESS = "KTABLE-SUPPRESS-"


class KTable(Generic[K, V]):
    """A table: a record sets or deletes the value of its key.

    ``K`` and ``V`` are the types of keys and values.

    Operations such as ``filter`` add a step to the builder, and return the resulting table.

    Args:
        graph: steps of the ``StreamsBuilder``.
        node: step that produces the table.
        serdes: key and value serdes, if known.
        sources: names of the sources that the records come from.
        operation: operation that produces the table.
        history_ms: history retention in milliseconds; None if the table is not versioned.
    """

    def __init__(
        self,
        graph: StepGraph,
        node: GraphNode,
        serdes: Serdes,
        sources: frozenset[str],
        operation: TableOperation,
        history_ms: int | None = None,
    ) -> None:
        self.history_ms = history_ms
        self.graph, self.node, self.serdes, self.sources = graph, node, serdes, sources
        self._operation, self._sends_old = operation, False

    @property
    def name(self) -> str:
        """Name of the node from which downstream steps receive changes."""
        return self.node.name

    @check_arguments
    def filter(
        self, predicate: Predicate[K, V], *, store: StoreSettings = None, name: str | None = None
    ) -> KTable[K, V]:
        """Keep the keys for which ``predicate(key, value)`` is true, and delete all others.

        Args:
            predicate: function of key and value that returns whether to keep the key. Not called for tombstones.
            store: name or settings of a store for the result. Without a name, no store is created.
            name: name of the step.
        """
        return self._filter(predicate, False, store, name)

    @check_arguments
    def filter_not(
        self, predicate: Predicate[K, V], *, store: StoreSettings = None, name: str | None = None
    ) -> KTable[K, V]:
        """Keep the keys for which ``predicate(key, value)`` is false; see ``filter``."""
        return self._filter(predicate, True, store, name)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR | None],
        *,
        with_key: Literal[False] = False,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR | None],
        *,
        with_key: Literal[True],
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    @check_arguments
    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        with_key: bool = False,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Replace each value with the result of ``mapper``.

        Args:
            mapper: function of the value, or of key and value if ``with_key`` is true. Not called for tombstones.
            with_key: whether ``mapper`` is called with key and value.
            store: see ``filter``.
            name: name of the step.
        """
        function = mapper if with_key else partial(call_with_value, mapper)
        settings, chosen = self._choose_store(store, _MAP_VALUES), self.graph.names.choose(name, _MAP_VALUES)
        value_serde = resolve_settings(store).value_serde
        operation = MapOperation(self, _name_of(settings), function)
        return self._derive(chosen, operation, store, settings, Serdes(self.serdes.key, value_serde))

    @overload
    def to_stream(self, key: None = None, *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, key: Callable[[K, V], KR | None], *, name: str | None = None) -> KStream[KR, V]: ...

    @check_arguments
    def to_stream(self, key: Callable[[Any, Any], Any] | None = None, *, name: str | None = None) -> KStream[Any, V]:
        """Convert the table to a stream of its changes. The value of a deleted key is None.

        Args:
            key: function that returns the new key, given the key and value of a change; None keeps the keys.
            name: name of the step.
        """
        chosen = self.graph.names.choose(name, "KTABLE-TOSTREAM-")
        node = ProcessorGraphNode(chosen, lambda: partial(MapValues, get_new_value))
        self.graph.add(node, self.node)
        stream = self.graph.create_stream(self.graph, node, chosen, self.serdes, self.sources)
        return stream if key is None else stream.select_key(key)

    @check_arguments
    def group_by(
        self,
        mapper: Callable[[K, V], tuple[KR | None, VR | None]],
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[KR, VR]:
        """Group the values by new keys.

        Args:
            mapper: function that returns the new key and value, given the key and value. If either result is None,
                the entry is ignored.
            key_serde: serde of the new keys; None uses the application's default.
            value_serde: serde of the new values; None uses the application's default.
            name: name of the step, and of the repartition topic without the application id and ``-repartition``.
        """
        chosen = self.graph.names.choose(name, "KTABLE-SELECT-")
        operation = RegroupOperation(mapper)
        node = ProcessorGraphNode(chosen, operation.create_supplier)
        node.use_versions = operation.use_versions
        self.graph.add(node, self.node)
        self.send_old_values(force=True)
        return KGroupedTable(self.graph, node, Serdes(key_serde, value_serde), name)

    @check_arguments
    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Hold back changes, and forward only the last change of each key.

        Args:
            suppressed: rule that determines which changes are held back, and for how long.
            name: name of the step.

        Raises:
            TopologyError: the table is versioned, or ``suppressed`` requires windows and the table is not windowed.
        """
        if self.node.is_versioned:
            raise TopologyError(f"table {self.name!r}: suppress() does not support versioned tables")
        names = self.graph.names
        chosen = names.generate(_SUPPRESS) if name is None else check_name(name)
        rule = SuppressRule.create(suppressed, self.node)
        store = names.generate_store(_SUPPRESS) if name is None else f"{name}-store"
        operation = SuppressOperation(self, store, rule)
        node = SuppressGraphNode(
            chosen, operation.create_supplier, lambda: [build_suppress_buffer(store, *self.serdes)]
        )
        self.graph.add(node, self.node)
        return KTable(self.graph, node, self.serdes, self.sources, operation)

    # ---- joins ----

    @check_arguments
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR | None],
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join two tables. The result contains the keys that both tables contain.

        Args:
            other: table to join with; it must be co-partitioned with this table.
            joiner: function that returns the result value, given both values.
            store: name or settings of a store for the result; None for no store.
            name: name of the step.
        """
        return self._join(other, joiner, JoinKind.INNER, store, name)

    @check_arguments
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR | None],
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join two tables. The result contains all keys of this table.

        If ``other`` does not contain a key, ``joiner`` is called with None as the value from ``other``.
        """
        return self._join(other, joiner, JoinKind.LEFT, store, name)

    @check_arguments
    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], VR | None],
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join two tables. The result contains the keys that at least one table contains.

        If a table does not contain a key, ``joiner`` is called with None as the value from that table.
        """
        return self._join(other, joiner, JoinKind.OUTER, store, name)

    # ---- called by other steps ----

    def view(self) -> View:
        """Return a view of the table's values; see ``TableOperation``."""
        return self._operation.view()

    def send_old_values(self, *, force: bool) -> bool:
        """Make the table's operation forward old values, if possible; see ``TableOperation``."""
        if not self._sends_old:
            self._sends_old = self._operation.send_old_values(force=force)
        return self._sends_old

    def require_history(self, grace_ms: int) -> None:
        """Check that the table is versioned, and that its history covers the grace period of a join.

        Args:
            grace_ms: grace period, in milliseconds.

        Raises:
            TopologyError: the table is not versioned, or its history retention is shorter than ``grace_ms``.
        """
        if self.history_ms is None or self.history_ms < grace_ms:
            raise TopologyError(
                f"table {self.name!r}: a join with grace_ms={grace_ms} requires a versioned table with history_ms of "
                f"at least {grace_ms}, got history_ms={self.history_ms}"
            )

    def _filter(self, predicate: Predicate, is_negated: bool, store: StoreSettings, name: str | None) -> KTable:
        settings, chosen = self._choose_store(store, _FILTER), self.graph.names.choose(name, _FILTER)
        found = resolve_settings(store)
        operation = FilterOperation(self, _name_of(settings), predicate, is_negated)
        serdes = self.serdes.override(found.key_serde, found.value_serde)
        return self._derive(chosen, operation, store, settings, serdes)

    def _choose_store(self, store: StoreSettings, prefix: str) -> TableStoreSettings | None:
        if store is None:
            return None
        found = resolve_settings(store)
        if found.store is None:
            self.graph.names.generate_store(prefix)  # as in Kafka Streams, this increments the name counter
            return None
        default = self.serdes if prefix == _FILTER else Serdes(self.serdes.key)
        return TableStoreSettings.create(found, self.graph.names, prefix, default)

    def _derive(
        self,
        name: str,
        operation: DerivedOperation,
        store: StoreSettings,
        settings: TableStoreSettings | None,
        serdes: Serdes,
    ) -> KTable:
        stores = () if settings is None else (settings,)
        node = ProcessorGraphNode(
            name, operation.create_supplier, stores=lambda: [one.build_key_value() for one in stores]
        )
        node.use_versions = operation.use_versions
        history_ms = self.history_ms
        if store is not None:
            # As in Kafka Streams, store settings determine whether the output is versioned, even if they set no name.
            node.is_versioned = resolve_settings(store).is_versioned
            history_ms = None if settings is None else settings.materialized.history_ms
        self.graph.add(node, self.node)
        return KTable(self.graph, node, serdes, self.sources, operation, history_ms)

    def _join(
        self,
        other: KTable,
        joiner: Callable[[Any, Any], Any],
        kind: JoinKind,
        store: StoreSettings,
        name: str | None,
    ) -> KTable:
        names = self.graph.names
        self.graph.check_same_builder("join: other", other.graph)
        settings = None if store is None else TableStoreSettings.create(store, names, _MERGE, Serdes(self.serdes.key))
        chosen = names.choose(name, _MERGE)
        sources = unite(self.sources, other.sources)
        self.graph.copartitioned.append(sources)
        if kind is not JoinKind.INNER:
            self.send_old_values(force=True)
        if kind is JoinKind.OUTER:
            other.send_old_values(force=True)
        operation = JoinOperation(self, other, joiner, kind, _name_of(settings))
        sides = (
            names.choose(name, "KTABLE-JOINTHIS-", "-join-this"),
            names.choose(name, "KTABLE-JOINOTHER-", "-join-other"),
        )
        node = TableJoinGraphNode(chosen, sides, operation, settings)
        self.graph.add(node, self.node, other.node)
        serdes = Serdes(self.serdes.key) if settings is None else settings.serdes
        return KTable(self.graph, node, serdes, sources, operation)


def call_with_value(mapper: Callable[[Any], Any], _key: Any, value: Any) -> Any:
    """Call ``mapper`` with the value, but without the key."""
    return mapper(value)


def get_new_value(change: TableChange) -> Any:
    """Return the new value of a change."""
    return change.new


def _name_of(settings: TableStoreSettings | None) -> str | None:
    return None if settings is None else settings.name


@dataclass(frozen=True)
class GlobalKTable(Generic[K, V]):
    """A table with all partitions of a topic, which streams can join by any key in every task.

    ``StreamsBuilder.global_table`` creates it. Source: Kafka 3.9 GlobalKTableImpl.

    Attributes:
        store: name of the table's global store.
        graph: steps of the ``StreamsBuilder``.
    """

    store: str
    graph: StepGraph = field(repr=False, compare=False)

    @property
    def view(self) -> StoreView:
        """A view of the table. Processors need not be connected to its global store."""
        return StoreView(self.store)
