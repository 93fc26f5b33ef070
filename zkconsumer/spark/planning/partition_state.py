"""State of a query's partition: its ownership, its next position and the batch that contains it.

Ownership states and transitions:

==========  ==========  ==========  ==========  ==========
event       unassigned  claimed     ready       revoking
==========  ==========  ==========  ==========  ==========
assign      claimed     claimed     claimed     revoking
resolve     -           ready       -           revoking
reset       -           claimed     claimed     revoking
revoke      unassigned  revoking    revoking    revoking
release     unassigned  unassigned  unassigned  unassigned
lose        unassigned  unassigned  unassigned  unassigned
==========  ==========  ==========  ==========  ==========

A dash marks an event that cannot happen in that state. ``TRANSITIONS`` contains the same table.

Some properties are not part of the ownership state, because they outlive ownership. A batch stays in flight when the
ZooKeeper session ends, so a partition that is claimed again may still be in that batch. The end of the last batch,
and whether the partition existed and was assigned before, determine where the partition resumes when it is assigned
again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from zkconsumer.log_ends import EARLIEST
from zkconsumer.spark.options.starting_offsets import StartPosition, StartSource

#: Start position of a partition whose unread records were lost.
AT_LOG_START = StartPosition(StartSource.RECORDS_LOST, timestamp=EARLIEST)


class PartitionState(enum.Enum):
    """Ownership of a partition by this query."""

    #: Not owned.
    UNASSIGNED = "unassigned"
    #: Owned. New batches omit the partition until its start position is resolved.
    CLAIMED = "claimed"
    #: Owned, with a position; the next batch may contain it.
    READY = "ready"
    #: Owned, but another member is waiting for it. Released when its batch is finished and committed, or
    #: when ``revokeTimeout`` expires.
    REVOKING = "revoking"


class PartitionEvent(enum.Enum):
    """Event that changes the ownership of a partition."""

    #: The group assigned the partition to this query.
    ASSIGN = "assign"
    #: The offset of the partition's start position was found.
    RESOLVE = "resolve"
    #: The partition's records were lost; it restarts at its log start offset.
    RESET = "reset"
    #: The group assigned the partition to another member, which is waiting for it.
    REVOKE = "revoke"
    #: This query released the partition.
    RELEASE = "release"
    #: The ZooKeeper session that owned the partition expired or was closed.
    LOSE = "lose"


_U, _C = PartitionState.UNASSIGNED, PartitionState.CLAIMED
_R, _V = PartitionState.READY, PartitionState.REVOKING

#: Next state by event and current state. If a state is missing, the event cannot happen in it.
TRANSITIONS: dict[PartitionEvent, dict[PartitionState, PartitionState]] = {
    PartitionEvent.ASSIGN: {_U: _C, _C: _C, _R: _C, _V: _V},
    PartitionEvent.RESOLVE: {_C: _R, _V: _V},
    PartitionEvent.RESET: {_C: _C, _R: _C, _V: _V},
    PartitionEvent.REVOKE: {_U: _U, _C: _V, _R: _V, _V: _V},
    PartitionEvent.RELEASE: {_U: _U, _C: _U, _R: _U, _V: _U},
    PartitionEvent.LOSE: {_U: _U, _C: _U, _R: _U, _V: _U},
}


@dataclass(slots=True)
class PartitionRecord:
    """State and positions of one partition. Guarded by the lock of the ``PartitionTracker``.

    Attributes:
        state: ownership state; see the table in the module docstring.
        committed: last known committed offset of the group, or -1 if there is none; valid while owned.
        start: unresolved start position; set in CLAIMED, and possibly in REVOKING.
        position: start offset of the next batch; set in READY, and possibly in REVOKING.
        uncommitted_until: end offset of the last finished batch, until it is committed; None unless owned.
        in_flight: range [start, end) of the last batch, until the batch is known to have finished.
        lost_range: range [start, end) of batch records that were not committed when the session ended; None after the
            partition is assigned again.
        planned_until: end offset of this query's last batch that contained the partition.
        stale_planned_until: ``planned_until`` of a deleted topic, until the position in the re-created topic is set. A
            committed offset up to this value may belong to the deleted topic.
        exists: whether the partition existed when partitions were last listed.
        was_assigned: whether the partition was assigned to the query, or part of a batch, since the query started.
    """

    state: PartitionState = PartitionState.UNASSIGNED
    committed: int = -1
    start: StartPosition | None = None
    position: int | None = None
    uncommitted_until: int | None = None
    in_flight: tuple[int, int] | None = None
    lost_range: tuple[int, int] | None = None
    planned_until: int | None = None
    stale_planned_until: int | None = None
    exists: bool = False
    was_assigned: bool = False

    @property
    def is_owned(self) -> bool:
        """Whether this query owns the partition."""
        return self.state is not PartitionState.UNASSIGNED

    # ---- ownership ----

    def assign(self, start: StartPosition, committed: int) -> int:
        """Mark the partition as owned; ``resolve`` sets its position.

        Returns:
            Number of records in ``lost_range`` that another member has read and committed.
        """
        self._apply(PartitionEvent.ASSIGN)
        lost, self.lost_range = self.lost_range, None
        self.start, self.position, self.committed = start, None, committed
        self.exists = self.was_assigned = True
        return 0 if lost is None else max(0, min(committed, lost[1]) - lost[0])

    def resolve(self, offset: int) -> None:
        """Set the position. Unless it comes from the checkpoint, also treat it as the committed offset."""
        self._apply(PartitionEvent.RESOLVE)
        assert self.start is not None
        if self.start.source is not StartSource.CHECKPOINT:
            self.committed = offset
        self.start, self.position, self.stale_planned_until = None, offset, None

    def reset(self) -> None:
        """Restart at the log start offset."""
        self._apply(PartitionEvent.RESET)
        self.start, self.position = AT_LOG_START, None
        self.uncommitted_until = None

    def revoke(self) -> None:
        """Stop planning batches for the partition, because another member is waiting for it."""
        self._apply(PartitionEvent.REVOKE)

    def release(self) -> tuple[int | None, tuple[int, int] | None]:
        """Mark the partition as not owned; return the previous ``uncommitted_until`` and ``in_flight``."""
        self._apply(PartitionEvent.RELEASE)
        uncommitted_until, in_flight = self.uncommitted_until, self.in_flight
        self._forget_position()
        self.in_flight = None
        return uncommitted_until, in_flight

    def lose(self) -> None:
        """Mark the partition as not owned. Its batch stays in flight: a release after the next claim waits for it."""
        self._apply(PartitionEvent.LOSE)
        if self.in_flight is not None:
            self.lost_range = self.in_flight
        elif self.uncommitted_until is not None and self.committed >= 0:
            self.lost_range = (self.committed, self.uncommitted_until)
        self._forget_position()

    def _apply(self, event: PartitionEvent) -> None:
        following = TRANSITIONS[event].get(self.state)
        if following is None:
            raise RuntimeError(f"event {event.value!r} is not valid for a partition in state {self.state.value!r}")
        self.state = following

    def _forget_position(self) -> None:
        self.start = self.position = self.uncommitted_until = None

    # ---- batches ----

    def advance(self, until: int) -> None:
        """Record that a batch of this query ends at ``until``."""
        self.planned_until = until if self.planned_until is None else max(until, self.planned_until)

    def plan(self, start: int, until: int) -> None:
        """Record the range of a new batch; the next batch starts at its end."""
        self.planned_until = self.position = until
        if start < until:
            self.in_flight = (start, until)

    def mark_in_flight(self, start: int, until: int) -> None:
        """Record the range of a batch that is about to run: a new batch, or one that is replayed after a restart.

        The next batch starts where a replayed batch ends. If the committed offset is outside the replayed range, for
        example because earlier commits failed or a tool set the offset, ``resumeFrom`` determines where the next batch
        starts.
        """
        pending = self.start
        if pending is not None and pending.source is StartSource.GROUP and start <= pending.offset <= until:
            self.start = StartPosition(StartSource.CHECKPOINT, until)
        self.was_assigned = True
        if start < until and self.is_owned and self.committed < until:
            self.in_flight = (start, until)

    def finish(self, start: int, until: int, *, commits: bool, restart: str) -> None:
        """Record that the batch with this range finished. Spark may report this again after the next batch is planned.

        Args:
            commits: whether offsets of finished batches are committed.
            restart: value of the option ``resumeFrom``.
        """
        if self._was_set_back(start, until, restart):
            if self.in_flight == (start, until):
                self.in_flight = None
            if self.start is not None and self.start.source is StartSource.GROUP:
                self.planned_until = self.start.offset
            return
        if self.in_flight is not None and self.in_flight[1] <= until:
            self.in_flight = None
        self.advance(until)
        if commits and self.is_owned and until > self.committed:
            self.uncommitted_until = until if self.uncommitted_until is None else max(until, self.uncommitted_until)

    def record_commit(self, offset: int) -> None:
        """Record the group's committed offset."""
        if self.is_owned:
            self.committed = max(offset, self.committed)
        if self.uncommitted_until is not None and self.uncommitted_until <= offset:
            self.uncommitted_until = None

    def forget_batches(self) -> None:
        """Forget the end offsets of earlier batches, because the topic was re-created."""
        self.exists = False
        if self.planned_until is not None:
            self.stale_planned_until, self.planned_until, self.was_assigned = self.planned_until, None, False

    def _was_set_back(self, start: int, until: int, restart: str) -> bool:
        """Return whether the position was set back below a finished batch's end, which must then not be committed."""
        if self.start is not None:  # the next position is not resolved yet
            is_reset = self.start.source is StartSource.RECORDS_LOST
            is_group_rewound = self.start.source is StartSource.GROUP and restart == "group"
            return is_reset or is_group_rewound
        is_position_below = self.position is not None and self.position < until
        is_superseded = self.in_flight is not None and (start, until) != self.in_flight and until > self.in_flight[0]
        return is_position_below or is_superseded
