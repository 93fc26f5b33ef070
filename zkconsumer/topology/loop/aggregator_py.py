"""Pure-Python versions of the classes ``RecordAggregator`` and ``WindowAggregator`` in ``_loop.c``.

See docs/decisions/33-steps-by-record.rst.

Source: Kafka 3.9 KStreamAggregate, KStreamReduce and KStreamWindowAggregate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkconsumer.topology.loop.headers import MAX_TIMESTAMP
from zkconsumer.topology.loop.loop_py import Record

if TYPE_CHECKING:
    from zkconsumer.topology.processor import Remembered

#: Initializer and aggregator; see ``RecordAggregator``.
Functions = tuple[Callable[[], Any] | None, Callable[[Any, Any, Any], Any] | None]


def aggregate_value(functions: Functions, record: Record, found: tuple[Any, int] | None) -> tuple[Any, Any, int]:
    """Return the old aggregate, the new aggregate and the new timestamp.

    Args:
        functions: see ``RecordAggregator``.
        record: record to aggregate.
        found: stored aggregate and its timestamp; None if there is none.
    """
    initializer, aggregator = functions
    key, value, timestamp = record.key, record.value, record.timestamp
    old: Any
    old, latest = found or (None, timestamp)
    if old is not None:
        timestamp = max(timestamp, latest)
    elif initializer is not None:
        old = initializer()
    if aggregator is None:
        return old, old + 1, timestamp
    if old is None and initializer is None:
        return old, value, timestamp
    return old, aggregator(key, value, old), timestamp


class RecordAggregator:
    """Aggregates the values of each key in a timestamped store.

    Args:
        store: ``get`` and ``put`` methods of the store.
        functions: initializer and aggregator. The initializer returns the initial aggregate; if the initializer is
            None, the first value becomes the aggregate. The aggregator is called with key, value and aggregate, and
            returns the new aggregate; if the aggregator is None, records are counted.
        pair_type: named tuple class for a value and its timestamp.
        changes: ``forward``, ``change_type`` and ``sends_old``. ``forward`` is called with a record for each change;
            None disables forwarding. ``change_type`` is the named tuple class of a change, which consists of
            new value, old value and ``is_latest`` (always True). ``sends_old`` specifies whether changes include the
            old value.
        drop: function that is called with each record without a key or value.
    """

    __slots__ = ("_changes", "_drop", "_functions", "_pair_type", "_store")

    def __init__(
        self,
        store: tuple[Callable[[Any], Any], Callable[[Any, Any], object]],
        functions: Functions,
        pair_type: Callable[[Any, int], Any],
        changes: tuple[Callable[[Record], object] | None, Callable[[Any, Any, bool], Any], bool],
        drop: Callable[[Record], object],
    ) -> None:
        self._store, self._functions, self._pair_type = store, functions, pair_type
        self._changes, self._drop = changes, drop

    def __call__(self, record: Record) -> None:
        key, headers = record.key, record.headers
        if key is None or record.value is None:
            self._drop(record)
            return
        get, put = self._store
        old, new, timestamp = aggregate_value(self._functions, record, get(key))
        put(key, None if new is None else self._pair_type(new, timestamp))
        forward, change_type, sends_old = self._changes
        if forward is not None:
            forward(Record(key, change_type(new, old if sends_old else None, True), timestamp, headers))


class WindowAggregator:
    """Aggregates the values of each key and tumbling or hopping window in a timestamped window store.

    A call with a record advances the observed stream time, and adds the record to its open windows.

    Args:
        store: ``fetch`` and ``put`` methods of the store.
        functions: initializer and aggregator; see ``RecordAggregator``. The initializer is not None.
        types: named tuple classes of a value with its timestamp, of a change (see ``RecordAggregator``), and of a key
            with its window.
        changes: ``forward`` and ``sends_old``; see ``RecordAggregator``.
        drop: function that is called with each record without a key, and function that is called without arguments for
            each closed window of a record.
        windows: object whose attribute ``value`` is the observed stream time, and the size, advance interval and grace
            period of the windows, all in milliseconds.

    Raises:
        ValueError: the advance interval is not positive, the size is less than the advance interval, or the grace
            period is negative.
        OverflowError: one of them does not fit into 64 bits.
    """

    __slots__ = ("_changes", "_drop", "_functions", "_store", "_types", "_windows")

    def __init__(
        self,
        store: tuple[Callable[[Any, int], Any], Callable[[Any, Any, int], object]],
        functions: tuple[Callable[[], Any], Callable[[Any, Any, Any], Any] | None],
        types: tuple[Callable[[Any, int], Any], Callable[[Any, Any, bool], Any], Callable[[Any, int, int], Any]],
        changes: tuple[Callable[[Record], object] | None, bool],
        drop: tuple[Callable[[Record], object], Callable[[], object]],
        windows: tuple[Remembered, int, int, int],
    ) -> None:
        _, size_ms, advance_ms, grace_ms = windows
        if max(size_ms, advance_ms, grace_ms) > MAX_TIMESTAMP:
            raise OverflowError("int too big to convert")
        if advance_ms < 1 or size_ms < advance_ms or grace_ms < 0:
            raise ValueError(
                "windows must have a positive size, an advance of at most the size, and no negative grace period"
            )
        self._store, self._functions, self._types = store, functions, types
        self._changes, self._drop, self._windows = changes, drop, windows

    def __call__(self, record: Record) -> None:
        if record.key is None:
            self._drop[0](record)
            return
        observed, _, _, grace_ms = self._windows
        if record.timestamp > observed.value:
            observed.value = record.timestamp
        self.update(record, observed.value - grace_ms)

    def update(self, record: Record, close_ms: int) -> None:
        """Add a record to its windows, except those that end by ``close_ms`` (in milliseconds)."""
        _, size_ms, advance_ms, _ = self._windows
        first = max(record.timestamp - size_ms + advance_ms, 0) // advance_ms * advance_ms
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        for start in range(first, timestamp + 1, advance_ms):
            if start + size_ms <= close_ms:
                self._drop[1]()
            else:
                self._add(Record(key, value, timestamp, headers), start, start + size_ms)

    def _add(self, record: Record, start: int, end: int) -> None:
        (fetch, put), (initializer, aggregator) = self._store, self._functions
        (create_pair, create_change, create_windowed), (forward, sends_old) = self._types, self._changes
        key, timestamp, found = record.key, record.timestamp, fetch(record.key, start)
        if found is None:
            old = initializer()
        else:
            old, latest = found
            timestamp = max(timestamp, latest)
        new = old + 1 if aggregator is None else aggregator(key, record.value, old)
        put(key, None if new is None else create_pair(new, timestamp), start)
        if forward is not None:
            change = create_change(new, old if sends_old else None, True)
            forward(Record(create_windowed(key, start, end), change, timestamp, record.headers))
