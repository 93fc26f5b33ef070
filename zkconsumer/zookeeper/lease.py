"""Lease: the time during which a member may assume that ZooKeeper has not expired its session.

Only the ensemble's leader expires sessions. A follower responds to pings and reads without the leader, even for some
time after it has lost its connection to the leader, but it forwards each ``sync`` to the leader. Therefore, a response
to a ``sync``, unlike a response to a ping or read, proves that the session had not expired when the request was sent.

See docs/decisions/10-session-lease.rst.
"""

from __future__ import annotations

import enum
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import OwnershipLostError
from zkconsumer.log import get_logger
from zkconsumer.threads import OwnedThread
from zkconsumer.zookeeper.connection import Connection

#: Lease duration as a fraction of the negotiated session timeout. The leader pings each follower every half
#: ``tickTime``, and the follower then reports its sessions. This interval is at most a quarter of the session timeout,
#: because the minimum session timeout is twice the ``tickTime`` by default.
_LENGTH = 0.75

#: Number of lease renewals per session timeout.
_RENEWALS = 8

#: Number of consecutive renewal intervals without any response after which the connection is dropped. These intervals
#: take between three eighths and half of the session timeout, so at least a quarter of the session timeout is left to
#: connect to another server before the lease ends.
_MAX_SILENT_INTERVALS = 3

#: Maximum seconds to wait for the renewal thread to terminate.
_JOIN_TIMEOUT_S = 5.0


def _clock_id() -> int | None:
    """Return the id of the monotonic clock that keeps running while the system is suspended; None if there is none."""
    if sys.platform == "darwin":
        return getattr(time, "CLOCK_MONOTONIC", None)
    return getattr(time, "CLOCK_BOOTTIME", None)


_CLOCK_ID = _clock_id()


def _now() -> float:
    """Return the current time of the lease clock, in seconds."""
    return time.monotonic() if _CLOCK_ID is None else time.clock_gettime(_CLOCK_ID)


class LeaseState(enum.Enum):
    """State of a lease; see ``Lease``."""

    #: The lease was never acquired, or its end has been reported to ``on_expired``.
    IDLE = enum.auto()
    #: The session cannot have expired, so the member's partitions may be consumed.
    HELD = enum.auto()
    #: The lease ended, but ``on_expired`` has not been called yet.
    EXPIRED = enum.auto()


class LeaseEvent(enum.Enum):
    """An event that may change the state of a lease."""

    ACQUIRE = enum.auto()
    EXPIRE = enum.auto()
    REPORT = enum.auto()


#: State after an event, by current state and event; events without an entry leave the state unchanged.
TRANSITIONS: Mapping[tuple[LeaseState, LeaseEvent], LeaseState] = {
    (LeaseState.IDLE, LeaseEvent.ACQUIRE): LeaseState.HELD,
    (LeaseState.EXPIRED, LeaseEvent.ACQUIRE): LeaseState.HELD,
    (LeaseState.HELD, LeaseEvent.EXPIRE): LeaseState.EXPIRED,
    (LeaseState.EXPIRED, LeaseEvent.REPORT): LeaseState.IDLE,
}


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A ``sync`` whose response renews the lease."""

    ends_at: float  #: clock time until which a response extends the lease
    result: Any  #: kazoo's asynchronous result


class Lease:
    """The lease of a ZooKeeper session.

    It ends three quarters of the negotiated session timeout after the last successful ``sync`` was sent, or when the
    session expires or is closed. After that, only ``acquire`` can restart it: a member without a lease must
    re-register, because other members may have claimed its partitions.

    ========  ===========================  =======================  =========================
    state     ``acquire``                  duration elapses, or     ``on_expired`` was called
                                           session expires
    ========  ===========================  =======================  =========================
    IDLE      HELD
    HELD                                   EXPIRED
    EXPIRED   HELD                                                  IDLE
    ========  ===========================  =======================  =========================

    A separate thread renews the lease, even while the member thread is busy. It also drops the connection if the server
    does not respond. kazoo does not detect this, because it waits only for responses to pings, and sends no pings while
    it sends other requests, such as the renewals.

    Attributes:
        expired_at: time at which the lease last ended, in seconds since the epoch.

    Args:
        connection: connection to ZooKeeper.
        on_expired: function that is called each time the lease ends, in the lease thread or a kazoo thread. It must not
            block.
        clock: lease clock, in seconds.
    """

    def __init__(
        self, connection: Connection, on_expired: Callable[[], object], *, clock: Callable[[], float] = _now
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._on_expired = on_expired
        self._lock = threading.Lock()  # guards the fields down to ``expired_at``; never held while blocking
        self._state = LeaseState.IDLE
        self._ends_at = -math.inf
        self._expired_sessions = 0
        self._renewal: _Renewal | None = None  # the in-flight renewal
        self.expired_at = 0.0
        self._wakeup = threading.Event()
        self._is_closing = False
        self._thread = OwnedThread(self._run, "zkconsumer-zookeeper-lease", self._log_failure)
        self._log = get_logger("zkconsumer.zookeeper")

    def start(self) -> None:
        """Start the renewal thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the renewal thread if it was started."""
        self._is_closing = True
        self._wakeup.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    @property
    def is_held(self) -> bool:
        """Whether the lease is held; cheap enough to check before each chunk of records."""
        if self._state is LeaseState.HELD and self._clock() < self._ends_at:
            return True
        return self.remaining_s > 0.0

    @property
    def remaining_s(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 if it is not held."""
        with self._lock:
            now = self._clock()
            self._update(now)
            return self._ends_at - now if self._state is LeaseState.HELD else 0.0

    def acquire(self) -> None:
        """Start the lease after a ``sync`` confirms that the session has not expired; wait for the response.

        Raises:
            ZooKeeperUnavailableError: the client is not connected, or the server did not respond in time.
            OwnershipLostError: the session expired in the meantime.
        """
        with self._lock:
            expired_sessions = self._expired_sessions
        client = self._connection.connected_client()
        ends_at = self._end_if_sent_now()
        self._connection.wait(client.sync_async("/"))
        with self._lock:
            if self._expired_sessions != expired_sessions:
                raise OwnershipLostError("the ZooKeeper session expired; the consumer will rejoin the group")
            self._ends_at = max(self._ends_at, ends_at)
            self._apply(LeaseEvent.ACQUIRE)

    def renew_soon(self) -> None:
        """Trigger an immediate renewal. Called when the session connects to a server."""
        self._wakeup.set()

    def expire(self) -> None:
        """End the lease, because the session expired or is being closed."""
        with self._lock:
            self._ends_at, self._renewal = -math.inf, None
            self._expired_sessions += 1
            self._apply(LeaseEvent.EXPIRE)
        self._report_end()

    def _apply(self, event: LeaseEvent) -> None:  # the caller must hold the lock
        self._state = TRANSITIONS.get((self._state, event), self._state)

    def _end_if_sent_now(self) -> float:
        """Return the clock time until which a renewal sent now would extend the lease."""
        return self._clock() + _LENGTH * self._connection.session_timeout_s

    def _update(self, now: float) -> None:  # the caller must hold the lock
        """Extend the lease if the in-flight renewal has succeeded, and end the lease if its duration has elapsed.

        A kazoo callback could not do this, because it may run after the result of a later request is available. A
        response extends the lease even after its end time, because the session existed the whole time.
        """
        if self._renewal is not None and self._renewal.result.ready():
            if self._renewal.result.successful():
                self._ends_at = max(self._ends_at, self._renewal.ends_at)
            self._renewal = None
        if now >= self._ends_at:
            self._apply(LeaseEvent.EXPIRE)

    def _report_end(self) -> None:
        """Call ``on_expired`` if the lease has ended, and its end has not been reported yet."""
        with self._lock:
            self._update(self._clock())
            if self._state is not LeaseState.EXPIRED:
                return
            self._apply(LeaseEvent.REPORT)
            self.expired_at = time.time()
        self._on_expired()

    # ---- lease thread ----

    def _run(self) -> None:
        """Renew the lease until the session is closed, and drop the connection if the server does not respond.

        kazoo then connects to the next server with the same session. The method counts intervals instead of seconds,
        because a response may be waiting in the socket when the process resumes after a suspension.
        """
        silent_intervals = 0
        next_at = time.monotonic()
        while not self._is_closing:
            self._wakeup.wait(self._time_to_next_step(next_at))
            is_woken = self._wakeup.is_set()
            self._wakeup.clear()
            try:
                self._report_end()
                if time.monotonic() < next_at and not is_woken:
                    continue
                next_at = time.monotonic() + self._connection.session_timeout_s / _RENEWALS
                has_response = self._connection.poll_response()
                is_waiting = not self._renew()
                silent_intervals = silent_intervals + 1 if is_waiting and not has_response else 0
                if silent_intervals == _MAX_SILENT_INTERVALS:
                    silent_intervals = 0
                    error = "the server does not respond"
                    self._log.warning("zookeeper_connection_dropped", endpoint=self._connection.server, error=error)
                    self._connection.drop()
            except Exception as failure:  # without renewals, the member would lose its partitions permanently
                self._log_failure(failure)

    def _log_failure(self, error: BaseException) -> None:
        self._log.error("lease_renewal_failed", endpoint=self._connection.server, exc_info=error)

    def _time_to_next_step(self, next_at: float) -> float:
        """Return the seconds until the next renewal is due or the lease ends, whichever is earlier."""
        until_renewal = max(0.0, next_at - time.monotonic())
        remaining = self.remaining_s
        return min(until_renewal, remaining) if remaining > 0.0 else until_renewal

    def _renew(self) -> bool:
        """Send a renewal; return False if a connected server has not responded to the previous renewal.

        Responses arrive in the order of the requests, so a response to a later request implies that the lease was
        renewed.
        """
        with self._lock:
            self._update(self._clock())
            if not self._connection.is_connected:
                return True
            if self._renewal is not None:
                return False
            self._renewal = _Renewal(self._end_if_sent_now(), self._connection.client.sync_async("/"))
            return True
