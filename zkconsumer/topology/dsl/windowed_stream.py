"""``WindowedKStream``: aggregates a stream by key and window.

Source: Kafka 3.9 TimeWindowedKStreamImpl, SlidingWindowedKStreamImpl and SessionWindowedKStreamImpl.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.topology.dsl.aggregate_steps import AGGREGATE, REDUCE, check_merger, create_windowed_operation
from zkconsumer.topology.dsl.aggregates import Aggregator, Initializer, Reducer, add_one, nothing, reduce_values, zero
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.materialized import StoreSettings, TableStoreSettings, Windows
from zkconsumer.topology.dsl.session_aggregates import Merger
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.type_variables import A, K, V

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.grouped_stream import KGroupedStream
    from zkconsumer.topology.dsl.table import KTable


class WindowedKStream(Generic[K, V]):
    """A stream grouped by key and window. Its methods aggregate the records into a table with ``Windowed`` keys.

    Records without a key and records of closed windows are dropped. Records whose value is None are aggregated in time
    and session windows, but dropped in sliding windows.

    Args:
        grouped: stream grouped by key.
        windows: windows of the aggregation.
        emit: emit strategy; see ``Emit``.
    """

    def __init__(self, grouped: KGroupedStream[K, V], windows: Windows, emit: Emit) -> None:
        self._grouped, self._windows, self._emit, self._names = grouped, windows, emit, grouped.graph.names

    @check_arguments
    def count(self, *, store: StoreSettings = None, name: str | None = None) -> KTable[Windowed[K], int]:
        """Count the records of each key and window. For the arguments, see ``KGroupedStream.count``."""
        settings = self._grouped.count_settings(store, self._windows)
        return self._build(self._names.choose(name, AGGREGATE), settings, zero, add_one, add_counts)

    @check_arguments
    def reduce(
        self, reducer: Reducer[V], *, store: StoreSettings = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window. For the arguments, see ``KGroupedStream.reduce``.

        In time and session windows, the reducer is also called for values of None.
        """
        settings = TableStoreSettings.create(store, self._names, REDUCE, self._grouped.serdes)
        chosen = self._names.choose(name, REDUCE)
        merger = partial(merge_reduced, reducer)
        return self._build(chosen, settings, nothing, partial(reduce_values, reducer), merger)

    @check_arguments
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Aggregator[K, V, A],
        merger: Merger[K, A] | None = None,
        *,
        store: StoreSettings = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate the values of each key and window.

        Args:
            initializer: function that returns the initial aggregate.
            aggregator: function that returns the new aggregate, given the key, value and current aggregate.
            merger: function that returns the merged aggregate of two sessions, given the key and both aggregates.
                Required for session windows, and supported only for them.
            store: name or settings of the store.
            name: name of the step.

        Raises:
            TopologyError: ``merger`` is missing for session windows, or given for other windows.
        """
        check_merger(self._windows, merger)
        settings = TableStoreSettings.create(store, self._names, AGGREGATE, Serdes(self._grouped.serdes.key))
        return self._build(self._names.choose(name, AGGREGATE), settings, initializer, aggregator, merger)

    def _build(
        self,
        name: str,
        settings: TableStoreSettings,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger | None,
    ) -> KTable:
        operation = create_windowed_operation(self._windows, settings.name, self._emit, initializer, aggregator, merger)
        return self._grouped.build(name, operation, settings, self._windows)


def add_counts(_key: Any, one: int, other: int) -> int:
    """Return the total count of two sessions."""
    return one + other


def merge_reduced(reducer: Reducer[Any], _key: Any, one: Any, other: Any) -> Any:
    """Merge the results of two sessions with ``reducer``. The result of an empty session is None."""
    return other if one is None else reducer(one, other)
