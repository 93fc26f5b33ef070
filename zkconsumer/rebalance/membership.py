"""Membership: the partitions that a group member owns, and the ZooKeeper session in which it owns them.

The ownership of each partition is a state machine:

==========  ==========  ==========  ==========  ==========
event       unowned     uncertain   owned       releasing
==========  ==========  ==========  ==========  ==========
claim       uncertain   uncertain   -           -
confirm     -           owned       -           -
stop        -           -           releasing   -
delete      -           -           -           uncertain
release     -           unowned     -           -
drop        -           -           unowned     unowned
lose        -           uncertain   uncertain   uncertain
==========  ==========  ==========  ==========  ==========

A dash marks an event that cannot happen in that state. ``TRANSITIONS`` contains the same table.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zkconsumer.errors import OwnershipLostError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.zookeeper.session import ZooKeeperSession


class OwnershipState(enum.Enum):
    """Whether a member owns a partition."""

    #: The owner znode does not belong to this member.
    UNOWNED = "unowned"
    #: The owner znode may belong to this member: its creation or deletion did not complete, or has an unknown result,
    #: or the session was lost while the partition was owned.
    UNCERTAIN = "uncertain"
    #: The owner znode belongs to this member, and the handler delivers the partition's records.
    OWNED = "owned"
    #: The owner znode belongs to this member, but the handler no longer delivers the partition's records.
    RELEASING = "releasing"


class OwnershipEvent(enum.Enum):
    """An event that changes the ownership of a partition."""

    #: The member is about to create the owner znode.
    CLAIM = "claim"
    #: The owner znode was created, and the start offset of the partition is known.
    CONFIRM = "confirm"
    #: The handler stopped delivering the partition's records, and returned the offset to commit.
    STOP = "stop"
    #: The member is about to delete the owner znode; offsets can no longer be committed.
    DELETE = "delete"
    #: The member deleted the owner znode, unless it belonged to another session.
    RELEASE = "release"
    #: The owner znode was deleted externally.
    DROP = "drop"
    #: The session expired, or may have expired.
    LOSE = "lose"


_N, _U = OwnershipState.UNOWNED, OwnershipState.UNCERTAIN
_O, _R = OwnershipState.OWNED, OwnershipState.RELEASING

#: Next state by event and current state; states in which an event cannot happen are absent.
TRANSITIONS: Mapping[OwnershipEvent, Mapping[OwnershipState, OwnershipState]] = {
    OwnershipEvent.CLAIM: {_N: _U, _U: _U},
    OwnershipEvent.CONFIRM: {_U: _O},
    OwnershipEvent.STOP: {_O: _R},
    OwnershipEvent.DELETE: {_R: _U},
    OwnershipEvent.RELEASE: {_U: _N},
    OwnershipEvent.DROP: {_O: _N, _R: _N},
    OwnershipEvent.LOSE: {_U: _U, _O: _U, _R: _U},
}


@dataclass(frozen=True, slots=True)
class _Ownership:
    """The ownership of one partition.

    Attributes:
        state: ownership state.
        thread_id: id of the thread that owns the partition; empty unless the partition is assigned.
        offset: offset to commit in state RELEASING; -1 if there is none.
    """

    state: OwnershipState = OwnershipState.UNOWNED
    thread_id: str = ""
    offset: int = -1

    @property
    def is_assigned(self) -> bool:
        """Whether the partition is part of the member's assignment."""
        return self.state in (OwnershipState.OWNED, OwnershipState.RELEASING)


_UNOWNED = _Ownership()


class Membership:
    """State of a group member.

    Only the member thread calls methods that change the state, and reads ``releasing`` and ``uncertain``. Any thread
    may read the attributes and the other properties, because assignments are replaced as a whole.

    Args:
        group: group id.
        consumer_id: consumer id of the member.
        session: ZooKeeper session.

    Attributes:
        group: group id.
        consumer_id: consumer id of the member.
        group_assignment: the group's assignment according to the last rebalance.
        session_id: id of the session in which the member is registered; 0 if it is not registered.
        has_registered: whether the member has ever registered.
    """

    def __init__(self, group: str, consumer_id: str, session: ZooKeeperSession) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.group_assignment: Assignment = {}
        self.session_id = 0
        self.has_registered = False
        self._session = session
        self._partitions: dict[TopicPartition, _Ownership] = {}
        self._assignment: Assignment = {}

    # ---- session ----

    @property
    def is_registered(self) -> bool:
        """Whether the member is registered in a session whose loss has not been recorded."""
        return self.session_id != 0

    @property
    def holds_lease(self) -> bool:
        """Whether the lease is held; if so, the session cannot have expired since the member registered."""
        return self._session.lease.is_held

    @property
    def is_session_current(self) -> bool:
        """Whether the current session is the one in which the member is registered."""
        return self._session.session_id == self.session_id

    def check_session(self) -> None:
        """Check that the owner znodes belong to the current session. Must be called before offsets are committed.

        May be called from any thread. kazoo may have opened a new session while the event for the expired session is
        still queued.

        Raises:
            ZooKeeperUnavailableError: there is no session.
            OwnershipLostError: the session expired, or may have expired.
        """
        current = self._session.session_id
        if not current:
            raise self._session.not_connected_error()
        if self.assignment and not (current == self.session_id and self.holds_lease):
            raise OwnershipLostError(
                "the ZooKeeper session expired or may have expired; offsets cannot be committed until the consumer has "
                "rejoined the group"
            )

    def register(self, session_id: int) -> None:
        """Record that the member is registered in a session."""
        self.session_id, self.has_registered = session_id, True

    # ---- partitions ----

    @property
    def assignment(self) -> Assignment:
        """The owned partitions, including partitions being released, and their thread ids."""
        return self._assignment

    @property
    def releasing(self) -> dict[TopicPartition, int]:
        """The offset to commit for each partition that is being released; -1 if there is none."""
        return {p: one.offset for p, one in self._partitions.items() if one.state is OwnershipState.RELEASING}

    @property
    def uncertain(self) -> set[TopicPartition]:
        """The unassigned partitions whose owner znodes may belong to this member."""
        return {p for p, one in self._partitions.items() if one.state is OwnershipState.UNCERTAIN}

    def claim(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the member is about to create owner znodes."""
        self._apply(OwnershipEvent.CLAIM, dict.fromkeys(partitions, _UNOWNED))

    def confirm(self, partitions: Assignment) -> None:
        """Record that the member owns ``partitions``, a mapping of partitions to thread ids."""
        self._apply(OwnershipEvent.CONFIRM, {p: _Ownership(thread_id=thread) for p, thread in partitions.items()})

    def stop(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that the partitions are being released, and the offset to commit for each; -1 if there is none."""
        changed = {p: replace(self._partitions.get(p, _UNOWNED), offset=offset) for p, offset in offsets.items()}
        self._apply(OwnershipEvent.STOP, changed)

    def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the member is about to delete owner znodes; commits of these partitions are rejected."""
        self._apply(OwnershipEvent.DELETE, dict.fromkeys(partitions, _UNOWNED))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that this member deleted the owner znodes of partitions."""
        self._apply(OwnershipEvent.RELEASE, dict.fromkeys(partitions, _UNOWNED))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the owner znodes of partitions were deleted externally."""
        self._apply(OwnershipEvent.DROP, dict.fromkeys(partitions, _UNOWNED))

    def lose(self) -> None:
        """Record that the session was lost: the member is not registered, and its owner znodes may still exist."""
        self.session_id = 0
        self._apply(OwnershipEvent.LOSE, dict.fromkeys(self._partitions, _UNOWNED))

    def _apply(self, event: OwnershipEvent, changed: Mapping[TopicPartition, _Ownership]) -> None:
        for partition, ownership in changed.items():
            state = self._partitions.get(partition, _UNOWNED).state
            following = TRANSITIONS[event].get(state)
            if following is None:
                raise RuntimeError(
                    f"partition {partition}: event {event.value!r} is not valid in state {state.value!r}"
                )
            if following is OwnershipState.UNOWNED:
                del self._partitions[partition]
            else:
                self._partitions[partition] = replace(ownership, state=following)
        self._assignment = {p: one.thread_id for p, one in self._partitions.items() if one.is_assigned}
