"""SessionWatch: notices that the session of a member is lost, before the member relies on it."""

from __future__ import annotations

from zkconsumer.errors import RetriableError
from zkconsumer.log import get_logger
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.membership import Membership
from zkconsumer.zookeeper.session import Event, EventKind, ZooKeeperSession


class SessionLostError(RetriableError):
    """The session in which the member is registered has expired, or may have.

    It ends the step that waits or is about to write. Code that catches it calls ``ZKRebalancerListener.lose``.

    Attributes:
        event: name of the log event.
    """

    def __init__(self, event: str) -> None:
        super().__init__("the ZooKeeper session has changed; the consumer must register again")
        self.event = event


class SessionWatch:
    """Lets the member's thread wait without missing the end of its session. Used by that thread only.

    Args:
        session: the member's session.
        membership: the state of the member.
        mailbox: the calls of other threads, and the events of the session.

    Attributes:
        session, membership, mailbox: as above.
        needs_rebalance: whether an event has arrived since the last attempt to rebalance has begun.
    """

    def __init__(self, session: ZooKeeperSession, membership: Membership, mailbox: Mailbox) -> None:
        self.session = session
        self.membership = membership
        self.mailbox = mailbox
        self.needs_rebalance = False
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def wait(self, timeout_s: float | None) -> None:
        """Process calls and events until the first one has arrived, and not beyond the end of the lease.

        After the process was suspended, the connection may still be open, so there may be no event for the expiration.

        Args:
            timeout_s: maximum seconds to wait; None for no limit.

        Raises:
            SessionLostError: the session has expired, or its lease has ended.
        """
        if self.membership.is_registered:
            remaining = self.session.lease.remaining_s
            timeout_s = remaining if timeout_s is None else min(timeout_s, remaining)
        is_lost = False
        for event in self.mailbox.process(timeout_s, until=_is_loss):
            self._record(event)
            is_lost = is_lost or _is_loss(event)
        if is_lost:
            raise SessionLostError("session_expired")
        self._require_lease()

    def wake(self) -> None:
        """Make ``wait`` return early; any thread may call it."""
        self.mailbox.wake()

    def require(self) -> None:
        """Check that the member is registered in the current session; called before it writes.

        kazoo may have created a new session while the event for the expired one is still in the queue.

        Raises:
            ZooKeeperUnavailableError: there is no session.
            SessionLostError: the session has changed, or its lease has ended.
        """
        if not self.session.session_id:
            raise self.session.not_connected_error()
        if not self.membership.is_session_current:
            raise SessionLostError("session_expired")
        self._require_lease()

    def _record(self, event: Event) -> None:
        self._log.debug("zookeeper_event_received", kind=event.kind.value, path=event.path)
        if event.kind is not EventKind.SUSPENDED:
            self.needs_rebalance = True

    def _require_lease(self) -> None:
        if self.membership.is_registered and not self.membership.holds_lease:
            self.needs_rebalance = True
            raise SessionLostError("session_lease_expired")


def _is_loss(event: Event) -> bool:
    return event.kind is EventKind.LOST
