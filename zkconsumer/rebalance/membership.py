"""Membership: the partitions that a group member owns, and the ZooKeeper session in which it owns them."""

from __future__ import annotations

from collections.abc import Collection

from zkconsumer.errors import OwnershipLostError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.zookeeper.session import ZooKeeperSession


class Membership:
    """The state of one member in its group.

    Only the member's thread writes the assignments and the session id. The assignments are replaced as a whole, so any
    thread may read them.

    Attributes:
        group: the name of the group.
        consumer_id: the id of the member.
        assignment: the partitions that the member owns, with their thread ids.
        group_assignment: the assignment of the group that the last rebalance computed.
        session_id: the session in which the member is registered; 0 if it is not registered.
        has_registered: whether the member has registered in any session.
    """

    def __init__(self, group: str, consumer_id: str, session: ZooKeeperSession) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.assignment: Assignment = {}
        self.group_assignment: Assignment = {}
        self.session_id = 0
        self.has_registered = False
        self._session = session

    @property
    def is_registered(self) -> bool:
        """Whether the member has registered, and no end of its session has been reported since then."""
        return self.session_id != 0

    @property
    def holds_lease(self) -> bool:
        """Whether the session cannot have expired since the member registered; any thread may read it."""
        return self._session.lease.is_held

    @property
    def is_session_current(self) -> bool:
        """Whether the current session is the one in which the member is registered."""
        return self._session.session_id == self.session_id

    def check_session(self) -> None:
        """Check that the owner znodes belong to the current session, so that offsets can be committed.

        kazoo may have created a new session while the event for the expired one is still in the queue.

        Raises:
            ZooKeeperUnavailableError: there is no session.
            OwnershipLostError: the session has expired.
        """
        current = self._session.session_id
        if not current:
            raise self._session.not_connected_error()
        if self.assignment and not (current == self.session_id and self.holds_lease):
            raise OwnershipLostError(
                "the ZooKeeper session has expired, or may have; offsets cannot be committed until the consumer has "
                "rejoined the group"
            )

    def add(self, partitions: Assignment) -> None:
        """Record partitions that the member owns now."""
        self.assignment = {**self.assignment, **partitions}

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Record partitions that the member does not own any longer."""
        self.assignment = {p: thread for p, thread in self.assignment.items() if p not in partitions}
