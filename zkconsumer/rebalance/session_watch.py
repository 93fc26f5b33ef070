"""SessionWatch: detects the loss of a member's session before the member relies on the session."""

from __future__ import annotations

from zkconsumer.errors import RetriableError
from zkconsumer.log import get_logger
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.membership import Membership
from zkconsumer.zookeeper.session import Event, EventKind, ZooKeeperSession


class SessionLostError(RetriableError):
    """The session in which the member is registered expired, or may have expired.

    It aborts the step that is waiting or about to write. Code that catches it calls ``ZKRebalancerListener.lose``.

    Attributes:
        event: name of the event to log.
    """

    def __init__(self, event: str) -> None:
        super().__init__("the ZooKeeper session was lost; the consumer must rejoin the group")
        self.event = event


class SessionWatch:
    """Lets the member thread wait for calls and events, and detects the loss of its session.

    Used only by the member thread.

    Args:
        session: the member's ZooKeeper session.
        membership: state of the member.
        mailbox: mailbox for session events, and for calls from other threads.

    Attributes:
        session: the member's ZooKeeper session.
        membership: state of the member.
        mailbox: mailbox for session events, and for calls from other threads.
        needs_rebalance: whether an event since the start of the last rebalance attempt requires another rebalance.
    """

    def __init__(self, session: ZooKeeperSession, membership: Membership, mailbox: Mailbox) -> None:
        self.session = session
        self.membership = membership
        self.mailbox = mailbox
        self.needs_rebalance = False
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a call or event, at most until the lease ends, and process all queued calls and events.

        The end of the lease is checked because the session may expire without an event: if the process was suspended,
        the connection may still appear to be open.

        Args:
            timeout_s: maximum seconds to wait; None waits indefinitely.

        Raises:
            SessionLostError: the session expired, or its lease ended.
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
        """Make ``wait`` return early. May be called from any thread."""
        self.mailbox.wake()

    def require(self) -> None:
        """Check that the member is registered in the current session; must be called before writes.

        kazoo may have opened a new session while the event for the expired session is still queued.

        Raises:
            ZooKeeperUnavailableError: there is no session.
            SessionLostError: the session changed, or its lease ended.
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
