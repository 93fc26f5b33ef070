"""Windowed joins of two streams.

Source: Kafka 3.9 KStreamImplJoin, KStreamKStreamJoin, KStreamJoinWindow, KStreamKStreamSelfJoin and
StreamStreamJoinNode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from zkconsumer.topology import stores
from zkconsumer.topology.dropped_records import drop_incomplete
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.join_kinds import Joiner, JoinKind
from zkconsumer.topology.dsl.join_store import JoinStore, WaitingRecord, build_join_store
from zkconsumer.topology.dsl.stateless import PassThrough
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.windows import JoinWindows

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology


class PutInWindow(Processor):
    """Forwards each record, and adds it to the window store of its stream.

    Args:
        store: name of the store.
    """

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._store = context, context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        """Forward the record, and add it to the store if it has a key."""
        self._context.forward(record)
        if record.key is not None:
            self._store.put(record.key, record.value, record.timestamp)


@dataclass(frozen=True)
class JoinSettings:
    """Settings shared by the processors on both sides of a stream-stream join.

    Attributes:
        windows: join windows.
        joiner: function that returns the join result, given the key, the left value and the right value.
        kind: join type, which determines the sides whose unmatched records are kept.
        waiting: name of the store for unmatched records; None for an inner join.
    """

    windows: JoinWindows
    joiner: Joiner
    kind: JoinKind
    waiting: str | None


class JoinStreams(Processor):
    """Joins the records of one side with the records in the other side's window store.

    Args:
        settings: see ``JoinSettings``.
        other: name of the other side's window store.
        is_left: whether this is the left side, that is, the stream on which the join was called.
    """

    def __init__(self, settings: JoinSettings, other: str, is_left: bool) -> None:
        windows, self._settings, self._other, self._is_left = settings.windows, settings, other, is_left
        self._windows = windows
        self._before, self._after = windows.before_ms, windows.after_ms
        if not is_left:
            self._before, self._after = self._after, self._before
        self._keeps = settings.kind is JoinKind.OUTER or (is_left and settings.kind is JoinKind.LEFT)

    def init(self, context: ProcessorContext) -> None:
        """Open the stores."""
        self._context, self._store = context, context.get_state_store(self._other)
        waiting = self._settings.waiting
        self._waiting: JoinStore | None = None if waiting is None else context.get_state_store(waiting)

    def process(self, record: Record) -> None:
        """Join the record, and forward the results.

        If this side keeps unmatched records, a record without a match is buffered until its window closes, or forwarded
        immediately if it has no key or its window has already ended.
        """
        key, timestamp, waiting = record.key, record.timestamp, self._waiting
        if waiting is not None:
            waiting.stream_time_ms = max(waiting.stream_time_ms, timestamp)
        if self._keeps and key is None and record.value is not None:
            self._context.forward(record.with_value(self._join(None, record.value, None)))
            return
        if key is None or record.value is None:
            drop_incomplete(self._context, record)
            return
        if waiting is not None and timestamp == waiting.stream_time_ms:
            self._forward_unmatched(waiting, record)
        first_ms, last_ms = max(0, timestamp - self._before), max(0, timestamp + self._after)
        found = list(self._store.fetch_times(key, first_ms, last_ms))
        for time_ms, other in found:
            if waiting is not None:
                waiting.remove(waiting.encode_key(time_ms, not self._is_left, key))
            value = self._join(key, record.value, other)
            self._context.forward(Record(key, value, max(timestamp, time_ms), record.headers))
        if found or not self._keeps:
            return
        if waiting is None or last_ms < waiting.stream_time_ms:
            self._context.forward(record.with_value(self._join(key, record.value, None)))
        else:
            waiting.min_time_ms = min(waiting.min_time_ms, timestamp)
            waiting.add(timestamp, self._is_left, key, record.value)

    def _join(self, key: Any, own: Any, other: Any) -> Any:
        left, right = (own, other) if self._is_left else (other, own)
        return self._settings.joiner(key, left, right)

    def _forward_unmatched(self, waiting: JoinStore, record: Record) -> None:
        """Forward unmatched records whose windows are closed, at most once per ``emit_interval_ms``."""
        grace_ms, stream_time_ms = self._windows.grace_ms, waiting.stream_time_ms
        if _add(waiting.min_time_ms, self._after + grace_ms) >= stream_time_ms:
            return
        now = self._context.current_system_time_ms
        if now < waiting.next_search_ms:
            return
        waiting.next_search_ms = now + self._context.config.emit_interval_ms
        waiting.reset_min_time()
        is_open = {True: False, False: False}
        previous: bytes | None = None
        for one in waiting.all():  # iterates over a snapshot, so the loop can remove records
            waiting.min_time_ms = one.timestamp
            if all(is_open.values()):
                break
            look_back = self._windows.after_ms if one.is_left else self._windows.before_ms
            if waiting.min_time_ms + look_back + grace_ms >= stream_time_ms:
                is_open[one.is_left] = True
                continue
            self._forward_waiting(one, record)
            if previous is not None and previous != one.raw:
                waiting.remove(previous)
            previous = one.raw
        if previous is not None:
            waiting.remove(previous)

    def _forward_waiting(self, one: WaitingRecord, record: Record) -> None:
        left, right = (one.value, None) if one.is_left else (None, one.value)
        value = self._settings.joiner(one.key, left, right)
        self._context.forward(Record(one.key, value, one.timestamp, record.headers))


def _add(time_ms: int, duration_ms: int) -> int:
    """Add two times, with Java's 64-bit overflow.

    If there are no unmatched records, the sum overflows to a negative number. As in Kafka Streams, a search then runs
    and sets ``next_search_ms``.
    """
    result = time_ms + duration_ms
    return result - (1 << 64) if result >= 1 << 63 else result


class JoinWithItself(Processor):
    """Joins a stream with itself, using one window store.

    Args:
        settings: see ``JoinSettings``.
        store: name of the window store.
    """

    def __init__(self, settings: JoinSettings, store: str) -> None:
        self._settings, self._windows, self._name = settings, settings.windows, store

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._context, self._store = context, context.get_state_store(self._name)
        self._observed = context.remember("observed_time_ms", -1)

    def process(self, record: Record) -> None:
        """Join the record, and forward the results."""
        key, value, timestamp = record.key, record.value, record.timestamp
        if key is None or value is None:
            drop_incomplete(self._context, record)
            return
        before, after, join = self._windows.before_ms, self._windows.after_ms, self._settings.joiner
        own = record.with_value(join(key, value, value))
        self._observed.value = max(self._observed.value, timestamp)
        needs_own = timestamp > self._observed.value - self._windows.retention_ms + 1
        for time_ms, other in list(self._fetch(key, timestamp - before, timestamp + after)):
            self._forward(record, join(key, value, other), max(timestamp, time_ms))
        for time_ms, other in list(self._fetch(key, timestamp - after, timestamp + before)):
            if timestamp < time_ms and needs_own:
                needs_own = False
                self._context.forward(own)
            self._forward(record, join(key, other, value), max(timestamp, time_ms))
        if needs_own:
            self._context.forward(own)

    def _fetch(self, key: Any, first_ms: int, last_ms: int) -> Any:
        return self._store.fetch_times(key, max(0, first_ms), max(0, last_ms))

    def _forward(self, record: Record, value: Any, timestamp: int) -> None:
        self._context.forward(Record(record.key, value, timestamp, record.headers))


@dataclass(frozen=True)
class JoinNames:
    """Node and store names of a stream-stream join; each pair is for the left and the right side.

    Attributes:
        windowed: nodes that fill the window stores.
        joins: nodes that join the records.
        stores: window stores.
        merge: node that merges the results of both sides.
    """

    windowed: tuple[str, str]
    joins: tuple[str, str]
    stores: tuple[str, str]
    merge: str


class StreamJoinGraphNode(GraphNode):
    """The step of a stream-stream join. The steps that fill the window stores are added before it.

    Args:
        names: node and store names.
        settings: see ``JoinSettings``.
        serdes: key serde, left value serde and right value serde.

    Attributes:
        names: same as the argument.
        is_self_join: whether a stream is joined with itself, using one window store.
    """

    def __init__(
        self, names: JoinNames, settings: JoinSettings, serdes: tuple[Serde | None, Serde | None, Serde | None]
    ) -> None:
        super().__init__(names.merge)
        self.names, self._settings, self._serdes, self.is_self_join = names, settings, serdes, False
        self.allows_null_keys = settings.kind is not JoinKind.INNER

    def write(self, topology: Topology) -> None:
        """Add the processors and stores of the join to ``topology``."""
        names, settings = self.names, self._settings
        if self.is_self_join:
            topology.add_processor(names.merge, partial(JoinWithItself, settings, names.stores[0]), names.windowed[0])
            topology.add_state_store(self._window_store(0), names.windowed[0], names.merge)
            return
        for side in (0, 1):
            supplier = partial(JoinStreams, settings, names.stores[1 - side], side == 0)
            topology.add_processor(names.joins[side], supplier, names.windowed[side])
        topology.add_processor(names.merge, PassThrough, *names.joins)
        for side in (0, 1):
            topology.add_state_store(self._window_store(side), names.windowed[side], names.joins[1 - side])
        if settings.waiting is not None:
            topology.add_state_store(build_join_store(settings.waiting, *self._serdes), *names.joins)

    def _window_store(self, side: int) -> StoreBuilder:
        windows = self._settings.windows
        return stores.window(
            self.names.stores[side],
            self._serdes[0],
            self._serdes[1 + side],
            retention_ms=windows.retention_ms,
            window_size_ms=windows.size_ms,
            retain_duplicates=True,
        )
