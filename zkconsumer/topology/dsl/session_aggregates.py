"""The processor that aggregates a stream by key and session.

Source: Kafka 3.9 KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.dsl.aggregates import Aggregator, Initializer
from zkconsumer.topology.dsl.table_store import SessionForwarder, TableChange
from zkconsumer.topology.dsl.window_aggregates import ClosedWindows, Emit
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.type_variables import A, K
from zkconsumer.topology.windows import SessionWindows

#: Function that merges the aggregates of two sessions, given the key and both aggregates.
Merger = Callable[[K, A, A], A]


class SessionAggregate(Processor):
    """Aggregates values by key and session. Records without a key are dropped and counted.

    Args:
        windows: session windows.
        store: name of the store.
        emit: emit strategy; see ``Emit``.
        functions: initializer, aggregator and merger.
        sends_old: whether downstream steps need old values.
    """

    def __init__(
        self,
        windows: SessionWindows,
        store: str,
        emit: Emit,
        functions: tuple[Initializer, Aggregator, Merger],
        sends_old: bool,
    ) -> None:
        self._windows, self._name, self._emit, self._sends_old = windows, store, emit, sends_old
        self._initializer, self._aggregator, self._merger = functions

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._store = context, context.get_state_store(self._name)
        emits_updates = self._emit is Emit.ON_UPDATE
        self._forwarder = SessionForwarder(context, self._store if emits_updates else None, self._sends_old)
        self._closed = None if emits_updates else ClosedWindows(context, self._windows.gap_ms)
        self._observed = context.remember("observed_time_ms", -1)

    def process(self, record: Record) -> None:
        """Add the record to its session, and merge the sessions that it connects."""
        key, timestamp, gap = record.key, record.timestamp, self._windows.gap_ms
        if key is None:
            self._context.drop(DropReason.NULL_KEY)
            return
        self._observed.value = max(self._observed.value, timestamp)
        close_ms = self._observed.value - self._windows.grace_ms - gap
        expected = self._count_expiring(timestamp, close_ms)
        aggregate, start, end = self._initializer(), timestamp, timestamp
        merged = list(self._store.find_sessions(key, timestamp - gap, timestamp + gap))
        for session, value in merged:
            aggregate = self._merger(key, aggregate, value)
            start, end = min(start, session.start), max(end, session.end)
        if end < close_ms:
            self._context.drop(DropReason.CLOSED_WINDOW)
        else:
            if (start, end) != (timestamp, timestamp):
                for session, value in merged:
                    self._store.remove(session)
                    self._forward(session, TableChange(None, value))
            aggregate = self._aggregator(key, record.value, aggregate)
            session = Windowed(key, start, end)
            self._store.put(session, aggregate)
            self._forward(session, TableChange(aggregate))
        if self._closed is not None and self._closed.start_search(close_ms):
            self._forward_closed(record, close_ms, expected)

    def _forward(self, session: Windowed, change: TableChange) -> None:
        if self._closed is None:
            self._forwarder.forward(session, change, session.end)

    def _forward_closed(self, record: Record, close_ms: int, expected: int) -> None:
        assert self._closed is not None
        closed = self._find_closed(close_ms)
        for session, value in closed:
            self._forwarder.forward(session, TableChange(value), session.end, record.headers)
        self._closed.report_lost(expected - len(closed))
        self._closed.finish(close_ms)

    def _count_expiring(self, timestamp: int, close_ms: int) -> int:
        """Return the number of closed sessions to forward if a put can make some of them expire, or else 0."""
        if self._closed is None or self._store.first_ended_after(timestamp) <= self._closed.last_close_ms:
            return 0
        return len(self._find_closed(close_ms))

    def _find_closed(self, close_ms: int) -> list[tuple[Windowed, Any]]:
        """Return the sessions that ended before ``close_ms`` and were not forwarded."""
        assert self._closed is not None
        first_ms, last_ms = max(0, self._closed.last_close_ms), close_ms - 1
        return [] if last_ms < first_ms else self._store.find_ended_sessions(first_ms, last_ms)
