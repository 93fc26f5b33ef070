"""Joins of a stream with a table, a global table or another stream.

Source: Kafka 3.9 KStreamImpl, KStreamImplJoin and KStreamKTableJoinProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from zkconsumer.checked_arguments import check_values
from zkconsumer.durations import Milliseconds, milliseconds
from zkconsumer.errors import TopologyError
from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.graph import ProcessorGraphNode, StateStoreGraphNode
from zkconsumer.topology.dsl.join_buffer import JoinBuffer, build_join_buffer
from zkconsumer.topology.dsl.join_kinds import Joiner, JoinKind
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.step_graph import unite
from zkconsumer.topology.dsl.stream_stream_joins import (
    JoinNames,
    JoinSettings,
    PutInWindow,
    StreamJoinGraphNode,
)
from zkconsumer.topology.dsl.table import GlobalKTable, KTable
from zkconsumer.topology.dsl.views import View
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.windows import JoinWindows

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.stream import KStream
    from zkconsumer.topology.type_variables import VO, K

#: Types that a stream can be joined with.
Joinable: TypeAlias = "KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO]"

_JOIN = "KSTREAM-JOIN-"
_LEFT_JOIN = "KSTREAM-LEFTJOIN-"


class JoinArguments(TypedDict, total=False):
    """Keyword arguments of stream joins.

    Attributes:
        windows: join windows of a stream-stream join.
        key: function that returns the key to look up in a global table, given a record's key and value.
        key_serde: key serde for repartition topics and stores; None uses each stream's serde.
        value_serde: value serde of this stream for repartition topics and stores; None uses the stream's serde.
        other_serde: value serde of the other stream for repartition topics and stores; None uses that stream's serde.
        grace_ms: time that a record waits for late changes to a versioned table, in milliseconds of stream time or as a
            ``timedelta``; None joins records immediately.
        store: prefix of the store names in a stream-stream join; None for generated names.
        name: name of the step.
    """

    windows: JoinWindows | None
    key: Callable[[Any, Any], Any] | None
    key_serde: Serde | None
    value_serde: Serde | None
    other_serde: Serde | None
    grace_ms: Milliseconds | None
    store: str | None
    name: str | None


def join(
    stream: KStream,
    other: Joinable,
    joiner: Callable[..., Any],
    kind: JoinKind,
    with_key: bool,
    arguments: JoinArguments,
) -> KStream:
    """Join ``stream`` with ``other``; see ``KStream.join``."""
    annotations = {"other": "Joinable", "joiner": "Callable[..., Any]", "with_key": "bool"}
    checked = check_values("join", annotations, {"other": other, "joiner": joiner, "with_key": with_key})
    stream.graph.check_same_builder("join: other", other.graph)
    arguments = _check_arguments(other, arguments)
    function = joiner if checked["with_key"] else partial(ignore_key, joiner)
    if isinstance(other, GlobalKTable):
        return _join_global_table(stream, other, function, kind, arguments)
    if isinstance(other, KTable):
        return _join_table(stream, other, function, kind, arguments)
    return _join_streams(stream, other, function, kind, arguments)


def _check_arguments(other: object, arguments: JoinArguments) -> JoinArguments:
    """Check that the join arguments are known, and supported for the type of ``other``, and return them."""
    unknown = sorted(arguments.keys() - JoinArguments.__annotations__.keys())
    if unknown:
        raise TopologyError(f"unknown join argument {unknown[0]!r}")
    checked = check_values("join", JoinArguments.__annotations__, dict(arguments))
    if isinstance(other, GlobalKTable):
        what, supported = "a global table", {"key"}
    elif isinstance(other, KTable):
        what, supported = "a table", {"key_serde", "value_serde", "grace_ms"}
    else:
        what, supported = "another stream", {"windows", "key_serde", "value_serde", "other_serde", "store"}
    given = {name for name, value in arguments.items() if value is not None} - {"name"}
    if given - supported:
        raise TopologyError(f"argument {min(given - supported)!r} is not supported by a join with {what}")
    return cast(JoinArguments, checked)


def _join_streams(stream: KStream, other: KStream, joiner: Joiner, kind: JoinKind, arguments: JoinArguments) -> KStream:
    windows, name, graph = arguments.get("windows"), arguments.get("name"), stream.graph
    if windows is None:
        raise TopologyError("a stream-stream join requires windows=JoinWindows(...)")
    key = arguments.get("key_serde")
    serdes = stream.serdes.override(key, arguments.get("value_serde"))
    others = other.serdes.override(key, arguments.get("other_serde"))
    left = stream.repartition_for_join(stream.name if name is None else f"{name}-left", serdes)
    right = other.repartition_for_join(other.name if name is None else f"{name}-right", others)
    sources = unite(left.sources, right.sources)
    graph.copartitioned.append(sources)
    names, waiting = _choose_join_names(stream, kind, name, arguments.get("store"))
    for side, windowed, store in zip((left, right), names.windowed, names.stores, strict=True):
        graph.add(ProcessorGraphNode(windowed, partial(partial, PutInWindow, store)), side.node)
    settings = JoinSettings(windows, joiner, kind, waiting)
    node = StreamJoinGraphNode(names, settings, (serdes.key, serdes.value, others.value))
    graph.add(node, left.node, right.node)
    return type(stream)(graph, node, names.merge, Serdes(serdes.key), sources)


def _choose_join_names(
    stream: KStream, kind: JoinKind, name: str | None, store: str | None
) -> tuple[JoinNames, str | None]:
    """Return the node and store names, and the name of the store for unmatched records (None for an inner join)."""
    names, is_outer, is_inner = stream.graph.names, kind is JoinKind.OUTER, kind is JoinKind.INNER
    this_suffix = "-outer-this-join" if is_outer else "-this-join"
    other_suffix = "-other-join" if is_inner else "-outer-other-join"
    windowed = (
        names.choose(name, "KSTREAM-WINDOWED-", "-this-windowed"),
        names.choose(name, "KSTREAM-WINDOWED-", "-other-windowed"),
    )
    this = names.generate("KSTREAM-OUTERTHIS-" if is_outer else "KSTREAM-JOINTHIS-")
    other = names.generate("KSTREAM-JOINOTHER-" if is_inner else "KSTREAM-OUTEROTHER-")
    joins = (this, other) if name is None else (check_name(name + this_suffix), check_name(name + other_suffix))
    merge = names.choose(name, "KSTREAM-MERGE-", "-merge")
    if store is None:
        stores, waiting = (f"{this}-store", f"{other}-store"), f"KSTREAM-OUTERSHARED-{this[-10:]}-store"
    else:
        check_name(store)
        stores = f"{store}{this_suffix}-store", f"{store}{other_suffix}-store"
        waiting = f"{store}-{'outer' if is_outer else 'left'}-shared-join-store"
    return JoinNames(windowed, joins, stores, merge), None if is_inner else waiting


def _join_table(stream: KStream, table: KTable, joiner: Joiner, kind: JoinKind, arguments: JoinArguments) -> KStream:
    name, grace = arguments.get("name"), arguments.get("grace_ms")
    _require_one_sided(kind, "table")
    serdes = stream.serdes.override(arguments.get("key_serde"), arguments.get("value_serde"))
    source = stream.repartition_for_join(name if name is not None else stream.name, serdes)
    sources = unite(source.sources, table.sources)
    stream.graph.copartitioned.append(sources)
    is_left = kind is JoinKind.LEFT
    chosen = stream.graph.names.choose(name, _LEFT_JOIN if is_left else _JOIN)
    buffer = None if grace is None else f"{chosen}-Buffer"
    if grace is not None and buffer is not None:
        grace_ms = milliseconds(grace)
        table.require_history(grace_ms)
        stream.graph.add(StateStoreGraphNode(build_join_buffer(buffer, serdes.key, serdes.value, grace_ms)))
    view = table.view()
    node = ProcessorGraphNode(
        chosen,
        lambda: partial(JoinTable, view, joiner, None, is_left, buffer),
        view.stores if buffer is None else (*view.stores, buffer),
    )
    node.allows_null_keys = is_left
    return source.append(node, Serdes(serdes.key), sources=sources, is_rekeyed=False)


def _join_global_table(
    stream: KStream, table: GlobalKTable, joiner: Joiner, kind: JoinKind, arguments: JoinArguments
) -> KStream:
    key = arguments.get("key")
    _require_one_sided(kind, "global table")
    if key is None:
        raise TopologyError(
            "a join with a global table requires key, a function of a record's key and value that returns the table key"
        )
    is_left = kind is JoinKind.LEFT
    chosen = stream.graph.names.choose(arguments.get("name"), _LEFT_JOIN)
    node = ProcessorGraphNode(chosen, lambda: partial(JoinTable, table.view, joiner, key, is_left))
    node.allows_null_keys = is_left
    return stream.append(node, Serdes(stream.serdes.key))


def _require_one_sided(kind: JoinKind, other: str) -> None:
    if kind is JoinKind.OUTER:
        raise TopologyError(f"outer_join() is not supported with a {other}; use left_join()")


class JoinTable(Processor):
    """Joins each record with the table value of its key.

    Args:
        table: view of the table.
        joiner: function that returns the join result, given the key and both values.
        key: function that returns the table key, given a record's key and value; None looks up the record key.
        is_left: whether records without a match are kept.
        buffer: name of the store for records that wait for late table changes; None joins records immediately.
    """

    def __init__(
        self,
        table: View,
        joiner: Joiner,
        key: Callable[[Any, Any], Any] | None,
        is_left: bool,
        buffer: str | None = None,
    ) -> None:
        self._table, self._joiner, self._key, self._is_left, self._name = table, joiner, key, is_left, buffer

    def init(self, context: ProcessorContext) -> None:
        """Open the view, and the buffer if there is one."""
        self._context, self._values = context, self._table.open(context)
        self._buffer: JoinBuffer | None = None if self._name is None else context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        """Join, buffer or drop the record, and forward the join results."""
        key, value = record.key, record.value
        mapped = key if self._key is None else self._key(key, value)
        allows_null = self._is_left and key is None and value is not None
        if not allows_null and (mapped is None or value is None):
            self._context.drop(DropReason.NULL_VALUE if value is None else DropReason.NULL_KEY)
        elif self._buffer is None or key is None or not self._hold_back(self._buffer, record):
            joined = self._join(record, mapped)
            if joined is not None:
                self._context.forward(joined)

    def _hold_back(self, buffer: JoinBuffer, record: Record) -> bool:
        """Buffer the record, and join the records that are due; return False if it is too late to buffer the record."""
        metadata = self._context.record_metadata
        assert metadata is not None
        if not buffer.put(record, metadata):
            return False
        for one, origin in buffer.take_due():
            joined = self._join(one, one.key)
            if joined is not None:
                self._context.forward_held_back(joined, origin)
        return True

    def _join(self, record: Record, mapped: Any) -> Record | None:
        """Return the join result for a record, or None if there is none."""
        other = None if mapped is None else self._find(mapped, record.timestamp)
        if other is None and not self._is_left:
            return None
        return record.with_value(self._joiner(record.key, record.value, other))

    def _find(self, key: Any, timestamp: int) -> Any:
        values = self._values
        found = values.get_as_of(key, timestamp) if values.is_versioned else values.get(key)
        return None if found is None else found.value


def ignore_key(joiner: Callable[[Any, Any], Any], _key: Any, value: Any, other: Any) -> Any:
    """Call ``joiner`` with both values, but without the key."""
    return joiner(value, other)
