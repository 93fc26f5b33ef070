"""Helpers shared by stream aggregations.

Source: Kafka 3.9 GroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from functools import partial

from zkconsumer.errors import TopologyError
from zkconsumer.topology.dsl.aggregates import Aggregator, Initializer
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.graph import ProcessorGraphNode
from zkconsumer.topology.dsl.materialized import TableStoreSettings, Windows
from zkconsumer.topology.dsl.operations import AggregateOperation
from zkconsumer.topology.dsl.session_aggregates import Merger, SessionAggregate
from zkconsumer.topology.dsl.sliding_aggregates import SlidingWindowAggregate
from zkconsumer.topology.dsl.views import SessionView, WindowView
from zkconsumer.topology.dsl.window_aggregates import Emit, TimeWindowAggregate
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.windowed_serdes import session_windowed, time_windowed
from zkconsumer.topology.windows import SessionWindows, TimeWindows

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"


def create_aggregate_node(
    name: str,
    operation: AggregateOperation,
    settings: TableStoreSettings,
    windows: Windows | None,
    *,
    has_store: bool = True,
) -> ProcessorGraphNode:
    """Return the graph node of an aggregation.

    Args:
        name: name of the step.
        operation: aggregation that the step performs.
        settings: settings of the aggregation's store.
        windows: windows of the aggregation; None if it is not windowed.
        has_store: whether this step adds the store; False if another step adds it.
    """

    def create_stores() -> list[StoreBuilder]:
        if windows is None:
            return [settings.build_key_value()]
        return [settings.build_windowed(windows, emits_updates=operation.emit is Emit.ON_UPDATE)]

    if has_store:
        node = ProcessorGraphNode(name, operation.create_supplier, stores=create_stores)
    else:
        node = ProcessorGraphNode(name, operation.create_supplier, (settings.name,))
    node.is_versioned = settings.materialized.is_versioned
    if windows is not None:
        settings.check_windows(windows)
        node.grace_ms = windows.grace_ms + (windows.gap_ms if isinstance(windows, SessionWindows) else 0)
    return node


def check_merger(windows: Windows | None, merger: Merger | None) -> None:
    """Check that ``merger`` is given if and only if ``windows`` are session windows.

    Raises:
        TopologyError: ``merger`` is missing for session windows, or given without them.
    """
    if isinstance(windows, SessionWindows) and merger is None:
        raise TopologyError("aggregate() with SessionWindows requires merger")
    if merger is not None and not isinstance(windows, SessionWindows):
        raise TopologyError(f"aggregate() supports merger only with SessionWindows, got windows={windows!r}")


def create_windowed_operation(
    windows: Windows,
    store: str,
    emit: Emit,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: Merger | None,
) -> AggregateOperation:
    """Return a windowed aggregation.

    Args:
        windows: windows of the aggregation.
        store: name of the store.
        emit: emit strategy; see ``Emit``.
        initializer: function that returns the initial aggregate.
        aggregator: function that returns the new aggregate, given the key, value and current aggregate.
        merger: function that merges the aggregates of two sessions; None if ``windows`` are not session windows.
    """
    if isinstance(windows, SessionWindows):
        assert merger is not None
        functions = (initializer, aggregator, merger)
        create = partial(SessionAggregate, windows, store, emit, functions)
        return AggregateOperation(SessionView(store), create, emit)
    kind = TimeWindowAggregate if isinstance(windows, TimeWindows) else SlidingWindowAggregate
    create_windowed = partial(kind, windows, store, emit, initializer, aggregator)  # type: ignore[arg-type]
    return AggregateOperation(WindowView(store), create_windowed, emit)


def create_windowed_serdes(serdes: Serdes, windows: Windows | None) -> Serdes:
    """Return the serdes of the result table. If ``windows`` is not None, the keys of the table are windowed."""
    if windows is None:
        return serdes
    if isinstance(windows, SessionWindows):
        return Serdes(session_windowed(serdes.key), serdes.value)
    size_ms = windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms
    return Serdes(time_windowed(serdes.key, size_ms), serdes.value)
