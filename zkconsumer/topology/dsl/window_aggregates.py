"""Processors that aggregate a stream by key and time window.

Source: Kafka 3.9 AbstractKStreamTimeWindowAggregateProcessor and KStreamWindowAggregate.
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from functools import partial
from typing import Any, Generic, TypeVar

from zkconsumer.event_limits import log_limited
from zkconsumer.log import get_logger
from zkconsumer.topology.dropped_records import DropReason, drop_incomplete
from zkconsumer.topology.dsl.aggregates import Aggregator, Initializer, add_one
from zkconsumer.topology.dsl.table_store import ChangeForwarder, TableChange
from zkconsumer.topology.loop.native import WindowAggregator
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.windows import TimeWindows

W = TypeVar("W")


class Emit(enum.Enum):
    """Emit strategy, which determines when window results are forwarded. Source: Kafka 3.9 EmitStrategy."""

    #: Forward the result after each update.
    ON_UPDATE = "on update"
    #: Forward only the final result, after the window has closed.
    ON_CLOSE = "on close"


class ClosedWindows:
    """Tracks which closed windows were forwarded, and when to search for more.

    Args:
        context: context of the processor.
        step_ms: maximum stream time between two searches, in milliseconds. A limit on wall-clock time alone is not
            enough: during a Spark batch, wall-clock time stands still, while stream time can advance by many windows.
        offset_ms: start of a step, in milliseconds.
    """

    def __init__(self, context: ProcessorContext, step_ms: int, offset_ms: int = 0) -> None:
        self._context, self._step_ms, self._offset_ms = context, max(1, step_ms), offset_ms
        self._log = get_logger("zkconsumer.topology", task=context.task_id)
        self._last_close = context.remember("last_close_ms", -1)
        self._next_search = context.remember("next_search_ms", 0)

    @property
    def last_close_ms(self) -> int:
        """``close_ms`` of the last call to ``finish``; -1 before the first call."""
        return int(self._last_close.value)

    def start_search(self, close_ms: int) -> bool:
        """Return whether to search now for windows that have ended by ``close_ms`` (in milliseconds)."""
        now, is_same_step = self._context.current_system_time_ms, self._step(close_ms) == self._step(self.last_close_ms)
        if now < self._next_search.value and is_same_step:
            return False
        self._next_search.value = now + self._context.config.emit_interval_ms
        return self.last_close_ms < close_ms

    def finish(self, close_ms: int) -> None:
        """Mark the windows that have ended by ``close_ms`` (in milliseconds) as forwarded."""
        self._last_close.value = close_ms

    def report_lost(self, windows: int) -> None:
        """Count and log closed windows that expired before they were forwarded."""
        if windows <= 0:
            return
        self._context.count("windows_lost", windows)
        cause = "windows_lost", self._context.config.application_id, self._context.node_name
        log, node = self._log, self._context.node_name
        log_limited(
            cause, lambda count: log.warning("windows_lost", node=node, windows=count), windows, is_deferred=True
        )

    def _step(self, close_ms: int) -> int:
        return (close_ms - self._offset_ms) // self._step_ms


class WindowedAggregate(Processor, Generic[W]):
    """Aggregates values by key and window. Records without a key are dropped and counted.

    Args:
        windows: windows of the aggregation.
        store: name of the store.
        emit: emit strategy; see ``Emit``.
        initializer: function that returns the initial aggregate of a window.
        aggregator: function that returns the new aggregate, given the key, value and current aggregate.
        sends_old: whether downstream steps need old values.
    """

    #: Whether records whose value is None are aggregated. If False, they are dropped.
    ACCEPTS_NONE = True

    def __init__(
        self,
        windows: W,
        store: str,
        emit: Emit,
        initializer: Initializer,
        aggregator: Aggregator,
        sends_old: bool,
    ) -> None:
        self._windows, self._name, self._emit, self._sends_old = windows, store, emit, sends_old
        self._initializer, self._aggregator = initializer, aggregator

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._store = context, context.get_state_store(self._name)
        emits_updates = self._emit is Emit.ON_UPDATE
        self._forwarder = ChangeForwarder(context, self._store if emits_updates else None, self._sends_old)
        self._closed = None if emits_updates else self._create_closed(context)
        self._observed = context.remember("observed_time_ms", -1)

    def process(self, record: Record) -> None:
        """Update the windows that contain the record."""
        if record.key is None or (record.value is None and not self.ACCEPTS_NONE):
            drop_incomplete(self._context, record)
            return
        self._observed.value = max(self._observed.value, record.timestamp)
        self._update(record)

    @abstractmethod
    def _update(self, record: Record) -> None:
        """Update the windows that contain the record. Its key is not None."""

    @abstractmethod
    def _create_closed(self, context: ProcessorContext) -> ClosedWindows:
        """Return the object that tracks the closed windows."""

    def _put(self, record: Record, start: int, end: int, old: Any, new: Any, timestamp: int) -> None:
        """Set the aggregate of a window, and forward the change if the emit strategy is ``ON_UPDATE``."""
        self._store.put(record.key, None if new is None else ValueAndTimestamp(new, timestamp), start)
        if self._closed is None:
            key = Windowed(record.key, start, end)
            self._forwarder.forward(key, TableChange(new, old), timestamp, record.headers)

    def _forward_closed(self, record: Record, windows: list[tuple[Windowed, ValueAndTimestamp]]) -> None:
        """Forward the results of closed windows, ordered by start."""
        for key, value in sorted(windows, key=lambda entry: entry[0].start):
            self._forwarder.forward(key, TableChange(value.value), value.timestamp, record.headers)


class TimeWindowAggregate(WindowedAggregate[TimeWindows]):
    """Aggregates values by key and tumbling or hopping window.

    If results are forwarded after each update, a ``WindowAggregator`` replaces ``process``.
    """

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        windows, emits_updates = self._windows, self._closed is None
        self._windowed = WindowAggregator(
            (self._store.fetch, self._store.put),
            (self._initializer, None if self._aggregator is add_one else self._aggregator),
            (ValueAndTimestamp, TableChange, Windowed),
            (context.forward if emits_updates and not self._forwarder.is_cached else None, self._sends_old),
            (partial(drop_incomplete, context), partial(context.drop, DropReason.CLOSED_WINDOW)),
            (self._observed, windows.size_ms, windows.advance_ms or windows.size_ms, windows.grace_ms),
        )
        if emits_updates:
            self.process = self._windowed  # type: ignore[method-assign]

    def _create_closed(self, context: ProcessorContext) -> ClosedWindows:
        size_ms = self._windows.size_ms
        return ClosedWindows(context, self._windows.advance_ms or size_ms, size_ms)

    def _update(self, record: Record) -> None:
        assert self._closed is not None  # otherwise, ``process`` was replaced
        close_ms = self._observed.value - self._windows.grace_ms
        if self._closed.start_search(close_ms):
            self._forward_closed_before(record, close_ms, self._windows.windows_for(record.timestamp)[-1].start)
        self._windowed.update(record, close_ms)

    def _forward_closed_before(self, record: Record, close_ms: int, latest_start_ms: int) -> None:
        """Forward the windows that have ended by ``close_ms``.

        Kafka Streams searches after the record was put. The put hides windows in a store without a cache, but not in a
        cached one. This method is called before the put, and omits the windows that the put will hide.
        """
        assert self._closed is not None
        size, last_close_ms = self._windows.size_ms, self._closed.last_close_ms
        last_ms = close_ms - size
        first_ms = 0 if last_close_ms == -1 else max(0, last_close_ms - size) + 1
        if last_ms < 0:
            return
        windows_for = self._windows.windows_for
        if last_close_ms == -1 or windows_for(last_ms) != windows_for(first_ms - 1):
            found = list(self._store.fetch_all(first_ms, last_ms))
            readable_from = self._store.first_readable_after(latest_start_ms)
            readable = [entry for entry in found if entry[0].start >= readable_from]
            self._forward_closed(record, readable)
            self._closed.report_lost(len(found) - len(readable))
            self._closed.finish(close_ms)
