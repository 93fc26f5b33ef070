"""Joins of two tables.

Source: Kafka 3.9 KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin, KTableKTableOuterJoin,
KTableKTableJoinMerger and KTableKTableJoinNode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from zkconsumer.topology.dropped_records import DropReason
from zkconsumer.topology.dsl.graph import GraphNode
from zkconsumer.topology.dsl.join_kinds import JoinKind
from zkconsumer.topology.dsl.materialized import TableStoreSettings
from zkconsumer.topology.dsl.operations import SourceTable, TableOperation
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.dsl.tables import TableProcessor
from zkconsumer.topology.dsl.views import OpenView, StoreView, Unversioned, View
from zkconsumer.topology.loop.records import Record
from zkconsumer.topology.processor import Processor, ProcessorContext, ProcessorSupplier
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp

if TYPE_CHECKING:
    from zkconsumer.topology.builder import Topology

#: Function that returns the join result, given the values of both sides; either value can be None.
Join = Callable[[Any, Any], Any]

#: Timestamp of a side without a value.
_UNKNOWN = -1


@dataclass(frozen=True)
class JoinRule:
    """Determines when one side of a table-table join calls the joiner.

    Attributes:
        needs_own: whether this side must have a value.
        needs_other: whether the other side must have a value.
        joiner: function that returns the join result, given this side's value and the other side's value.
    """

    needs_own: bool
    needs_other: bool
    joiner: Join

    def join(self, own: Any, other: Any) -> Any:
        """Return the join result, or None if there is none."""
        if own is None and (self.needs_own or other is None):
            return None
        if other is None and self.needs_other:
            return None
        return self.joiner(own, other)


class JoinSide(Processor):
    """Joins the changes from one table with the values in another table.

    Args:
        other: view of the other table.
        rule: conditions for calling the joiner.
        sends_old: whether downstream steps need old values.
        is_versioned: whether the input is versioned; if so, changes to older versions are dropped.
    """

    def __init__(self, other: View, rule: JoinRule, sends_old: bool, is_versioned: bool) -> None:
        self._other, self._rule, self._sends_old, self._is_versioned = other, rule, sends_old, is_versioned

    def init(self, context: ProcessorContext) -> None:
        """Open the view."""
        self._context, self._values = context, self._other.open(context)

    def process(self, record: Record) -> None:
        """Join the change, and forward the resulting change if there is one."""
        change: TableChange = record.value
        if record.key is None or (self._is_versioned and not change.is_latest):
            self._context.drop(DropReason.NULL_KEY if record.key is None else DropReason.OLD_VERSION)
            return
        found, rule = self._values.get(record.key), self._rule
        other = None if found is None else found.value
        if other is None and (rule.needs_other or (change.new is None and change.old is None)):
            return
        timestamp = record.timestamp if found is None else max(record.timestamp, found.timestamp)
        new = rule.join(change.new, other)
        old = rule.join(change.old, other) if self._sends_old else None
        self._context.forward(Record(record.key, TableChange(new, old, change.is_latest), timestamp, record.headers))


class MergeJoin(TableProcessor):
    """Merges the changes from both sides of a table-table join. For the arguments, see ``TableProcessor``."""

    def process(self, record: Record) -> None:
        """Update the store if there is one, and forward the change."""
        change: TableChange = record.value
        self._update(record, change if self._sends_old else TableChange(change.new, None, change.is_latest))


@dataclass(frozen=True)
class JoinView:
    """The values of a table-table join whose result has no store."""

    left: View
    right: View
    rule: JoinRule

    @property
    def stores(self) -> tuple[str, ...]:
        """Store names of both tables."""
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def open(self, context: ProcessorContext) -> OpenView:
        """Open the views of both tables."""
        return _Joined(self.left.open(context), self.right.open(context), self.rule)


class _Joined(Unversioned):
    """The values of a table-table join, as read by a task."""

    def __init__(self, left: OpenView, right: OpenView, rule: JoinRule) -> None:
        self._left, self._right, self._rule = left, right, rule

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the join result for ``key``, or None if there is none."""
        left = self._left.get(key)
        if left is None and self._rule.needs_own:
            return None
        right = self._right.get(key)
        value = self._rule.join(left and left.value, right and right.value)
        if value is None:
            return None
        times = (_UNKNOWN if one is None else one.timestamp for one in (left, right))
        return ValueAndTimestamp(value, max(times))


class JoinOperation(TableOperation):
    """A join of two tables.

    Args:
        left: table on which the join was called.
        right: table that was passed to the join.
        joiner: function that returns the result value, given both values.
        kind: join type, which determines the keys of the result.
        store: name of the result's store; None if it has no store.
    """

    def __init__(self, left: SourceTable, right: SourceTable, joiner: Join, kind: JoinKind, store: str | None) -> None:
        self._tables, self._store = (left, right), store
        self.views = (left.view(), right.view())
        keeps_left, keeps_right = kind is not JoinKind.INNER, kind is JoinKind.OUTER
        self._rules = (
            JoinRule(not keeps_right, not keeps_left, joiner),
            JoinRule(not keeps_left, not keeps_right, partial(swap, joiner)),
        )
        self._is_versioned = [False, False]

    @property
    def parents(self) -> tuple[str, str]:
        """Names of the nodes from which both sides receive changes."""
        left, right = self._tables
        return left.name, right.name

    def send_old_values(self, *, force: bool) -> bool:  # noqa: ARG002
        """See ``TableOperation``."""
        for table in self._tables:
            table.send_old_values(force=True)
        self.sends_old = True
        return True

    def use_versions(self, parent: str) -> None:
        """See ``TableOperation``."""
        for number, name in enumerate(self.parents):
            if name == parent:
                self._is_versioned[number] = True

    def view(self) -> View:
        """See ``TableOperation``."""
        return StoreView(self._store) if self._store is not None else JoinView(*self.views, self._rules[0])

    def create_side(self, number: int) -> ProcessorSupplier:
        """Return the processor supplier of a side: 0 for the left table, 1 for the right table."""
        return partial(
            JoinSide, self.views[1 - number], self._rules[number], self.sends_old, self._is_versioned[number]
        )

    def create_supplier(self) -> ProcessorSupplier:
        """See ``TableOperation``."""
        return partial(MergeJoin, self._store, self.sends_old)


def swap(joiner: Join, first: Any, second: Any) -> Any:
    """Call ``joiner`` with swapped arguments."""
    return joiner(second, first)


class TableJoinGraphNode(GraphNode):
    """The step of a table-table join: one processor for each side, and one that merges their output.

    Args:
        name: name of the processor that merges the output.
        sides: names of the left and the right processor.
        operation: join that the step performs.
        store: settings of the result's store; None if it has no store.
    """

    def __init__(
        self, name: str, sides: tuple[str, str], operation: JoinOperation, store: TableStoreSettings | None
    ) -> None:
        super().__init__(name)
        self._sides, self._operation, self._store = sides, operation, store
        self.is_versioned = store is not None and store.materialized.is_versioned
        self.use_versions = operation.use_versions

    def write(self, topology: Topology) -> None:
        """Add the processors to ``topology``, and the store if there is one."""
        operation = self._operation
        for number, (side, parent) in enumerate(zip(self._sides, operation.parents, strict=True)):
            topology.add_processor(side, operation.create_side(number), parent)
        topology.add_processor(self.name, operation.create_supplier(), *self._sides)
        for number, side in enumerate(self._sides):
            topology.connect_processor_and_state_stores(side, *operation.views[1 - number].stores)
        if self._store is not None:
            topology.add_state_store(self._store.build_key_value(), self.name)
