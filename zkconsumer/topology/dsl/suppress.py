"""``suppress``: holds back table changes, and forwards only the last change of each key.

Source: Kafka 3.9 Suppressed, KTableSuppressProcessorSupplier and GraphGraceSearchUtil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from zkconsumer.checked_arguments import check_arguments, check_fields, set_fields
from zkconsumer.durations import Milliseconds
from zkconsumer.errors import StreamsError, TopologyError
from zkconsumer.topology.dsl.graph import GraphNode, ProcessorGraphNode
from zkconsumer.topology.dsl.operations import SourceTable, TableOperation
from zkconsumer.topology.dsl.suppress_buffer import SuppressBuffer
from zkconsumer.topology.dsl.views import OpenView, Unversioned, View
from zkconsumer.topology.loop.records import Record, RecordMetadata
from zkconsumer.topology.processor import Processor, ProcessorContext, ProcessorSupplier
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp

_UNLIMITED = (1 << 63) - 1


@dataclass(frozen=True, kw_only=True)
class UntilWindowCloses:
    """Forward only the final result of each window.

    Attributes:
        max_records: maximum number of buffered results; None for no limit. The task fails if the limit is exceeded.
        max_bytes: maximum size of the buffered results in bytes, as computed by Kafka Streams; None for no limit. The
            task fails if the limit is exceeded.

    Raises:
        TopologyError: an attribute has the wrong type or is negative.
    """

    max_records: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def emits_early(self) -> bool:
        """Always False: the task fails if a limit is exceeded."""
        return False


@dataclass(frozen=True, kw_only=True, init=False)
class UntilTimeLimit:
    """Hold back the changes of each key, and forward the last change ``wait_ms`` after the first.

    Attributes:
        wait_ms: time to wait, in milliseconds of stream time, or as a ``timedelta``.
        max_records: maximum number of buffered keys; None for no limit.
        max_bytes: maximum size of the buffered changes in bytes, as computed by Kafka Streams; None for no limit.
        emits_early: whether to forward the oldest changes early if a limit is exceeded. If False, the task fails
            instead.

    Raises:
        TopologyError: an attribute has the wrong type or is negative.
    """

    wait_ms: int
    max_records: int | None
    max_bytes: int | None
    emits_early: bool

    @check_arguments
    def __init__(
        self,
        *,
        wait_ms: Milliseconds,
        max_records: int | None = None,
        max_bytes: int | None = None,
        emits_early: bool = True,
    ) -> None:
        set_fields(self, wait_ms=wait_ms, max_records=max_records, max_bytes=max_bytes, emits_early=emits_early)


#: Argument of ``suppress`` that determines which changes are held back, and for how long.
Suppressed = UntilWindowCloses | UntilTimeLimit


@dataclass(frozen=True)
class SuppressRule:
    """Settings of a ``Suppress`` processor.

    Attributes:
        wait_ms: time that a change is held back, in milliseconds of stream time.
        by_window: whether the wait starts at the end of the window. If False, it starts at the change's timestamp.
        max_records: maximum number of buffered keys.
        max_bytes: maximum size of the buffered changes, in bytes.
        emits_early: whether changes are forwarded early if a limit is exceeded.
    """

    wait_ms: int
    by_window: bool
    max_records: int
    max_bytes: int
    emits_early: bool

    @classmethod
    def create(cls, suppressed: Suppressed, node: GraphNode) -> SuppressRule:
        """Return the rule that applies ``suppressed`` to the output of ``node``.

        Raises:
            TopologyError: ``suppressed`` requires windows, but the output of ``node`` is not windowed.
        """
        by_window = isinstance(suppressed, UntilWindowCloses)
        wait_ms = find_grace(node) if isinstance(suppressed, UntilWindowCloses) else suppressed.wait_ms
        if wait_ms is None:
            raise TopologyError(
                f"step {node.name!r}: UntilWindowCloses requires a windowed aggregation before suppress(); use "
                "UntilTimeLimit for tables without windows"
            )
        records, size = suppressed.max_records, suppressed.max_bytes
        limits = _UNLIMITED if records is None else records, _UNLIMITED if size is None else size
        return cls(wait_ms, by_window, *limits, suppressed.emits_early)


def find_grace(node: GraphNode) -> int | None:
    """Return the stream time between the end of a window and its close, in milliseconds, for the output of ``node``.

    Return None if ``node`` has an input that is not windowed.
    """
    if node.grace_ms is not None:
        return node.grace_ms
    found = [find_grace(parent) for parent in node.parents]
    known = [grace_ms for grace_ms in found if grace_ms is not None]
    return max(known) if known and len(known) == len(found) else None


class Suppress(Processor):
    """Holds back table changes in a buffer.

    Args:
        store: name of the buffer.
        rule: settings that determine which changes are held back, and for how long.
    """

    def __init__(self, store: str, rule: SuppressRule) -> None:
        self._name, self._rule = store, rule

    def init(self, context: ProcessorContext) -> None:
        """Open the buffer."""
        self._context = context
        self._buffer: SuppressBuffer = context.get_state_store(self._name)
        self._observed = context.remember("observed_time_ms", -1)

    def process(self, record: Record) -> None:
        """Add the change to the buffer, and forward the changes that are due.

        Raises:
            StreamsError: the buffer exceeded a limit, and ``emits_early`` is False.
        """
        rule, buffer = self._rule, self._buffer
        self._observed.value = max(self._observed.value, record.timestamp)
        metadata = self._context.record_metadata
        assert metadata is not None
        buffer.put(record.key.end if rule.by_window else record.timestamp, record, metadata)
        due_ms = self._observed.value - rule.wait_ms
        buffer.evict_while(lambda: buffer.min_time_ms <= due_ms, self._emit)
        if not rule.emits_early:
            self._check("max_records", buffer.records, rule.max_records)
            self._check("max_bytes", buffer.bytes, rule.max_bytes)
        buffer.evict_while(self._is_full, self._emit)

    def _is_full(self) -> bool:
        return self._buffer.records > self._rule.max_records or self._buffer.bytes > self._rule.max_bytes

    def _check(self, option: str, value: int, limit: int) -> None:
        if value > limit:
            raise StreamsError(
                f"node {self._context.node_name!r}: the suppress() buffer exceeded {option} (limit: {limit}, "
                f"actual: {value}); increase {option}"
            )

    def _emit(self, record: Record, metadata: RecordMetadata) -> None:
        if record.value.new is not None or not self._rule.by_window:
            self._context.forward_held_back(record, metadata)


class SuppressOperation(TableOperation):
    """``suppress`` on a table.

    Args:
        parent: parent table.
        store: name of the buffer.
        rule: settings that determine which changes are held back, and for how long.
    """

    def __init__(self, parent: SourceTable, store: str, rule: SuppressRule) -> None:
        self._parent, self._store, self._rule = parent, store, rule
        parent.send_old_values(force=True)

    def send_old_values(self, *, force: bool) -> bool:
        """See ``TableOperation``."""
        return self._parent.send_old_values(force=force)

    def view(self) -> View:
        """See ``TableOperation``."""
        return SuppressView(self._store, self._parent.view())

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(Suppress, self._store, self._rule)


@dataclass(frozen=True)
class SuppressView:
    """The values of a suppressed table, which do not include held-back changes."""

    store: str
    parent: View

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the buffer and of the parent's stores."""
        return (self.store, *self.parent.stores)

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the buffer and the parent view."""
        return _Suppressed(context.get_state_store(self.store), self.parent.open(context))


class _Suppressed(Unversioned):
    """The values of a suppressed table, as read by a task. They do not include held-back changes."""

    def __init__(self, buffer: SuppressBuffer, parent: OpenView) -> None:
        self._buffer, self._parent = buffer, parent

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value of ``key``, or None if there is none."""
        if self._buffer.has(key):
            value = self._buffer.get_prior(key)
            return None if value is None else ValueAndTimestamp(value, -1)
        return self._parent.get(key)


class SuppressGraphNode(ProcessorGraphNode):
    """A ``suppress`` step, whose input must not be versioned."""

    def __init__(self, name: str, supplier: Callable[[], ProcessorSupplier], stores: Callable[[], Any]) -> None:
        super().__init__(name, supplier, stores=stores)
        self.is_versioned = False
