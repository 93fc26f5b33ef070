"""ZooKeeperSession: a session with a ZooKeeper ensemble, with its lease, its events and operations on znodes.

kazoo runs callbacks in threads that must not block. The callbacks only put an event on a queue.
"""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.protocol.states import KazooState, KeeperState

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.retry import retrying
from zkconsumer.zookeeper import connection_diagnosis
from zkconsumer.zookeeper.connection import Connection
from zkconsumer.zookeeper.lease import Lease
from zkconsumer.zookeeper.security import ZooKeeperSecurity
from zkconsumer.zookeeper.znodes import Znodes

#: Seconds between two checks whether the session was closed, or authentication failed, while it connects.
_CONNECT_POLL_INTERVAL_S = 0.1

#: Maximum seconds to wait for the server's response when the session is closed.
_CLOSE_TIMEOUT_S = 2.0


class EventKind(enum.Enum):
    """What happened to a session or to a watched znode."""

    #: The session is connected to a server.
    CONNECTED = "connected"
    #: The connection was lost.
    SUSPENDED = "suspended"
    #: The session expired.
    LOST = "lost"
    #: A watch fired.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the session's state, or a fired watch.

    Attributes:
        kind: what happened.
        path: the path of the watch, with ``CHANGED``.
    """

    kind: EventKind
    path: str = ""


class ZooKeeperSession:
    """A session with a ZooKeeper ensemble. Any thread may use it.

    When a session expires, kazoo opens a new one; ``session_id`` then changes.

    Args:
        hosts: ``zookeeper.connect``: ``host:port`` pairs separated by commas, with an optional chroot at the end.
        session_timeout_s: requested session timeout in seconds.
        connection_timeout_s: maximum seconds to wait for the connection, and for the result of each operation.
        events: queue for events, any object with ``put``; None to drop them.
        on_lease_expired: called each time the lease ends, see ``Lease``.

    Attributes:
        lease: the time for which the session is assumed not to have expired; ``lease.acquire`` starts it.
        znodes: operations on znodes.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float,
        connection_timeout_s: float,
        events: queue.SimpleQueue[Any] | None = None,
        security: ZooKeeperSecurity | None = None,
        on_lease_expired: Callable[[], object] = lambda: None,
    ) -> None:
        self.hosts = hosts
        security = security or ZooKeeperSecurity()
        self._events = events
        self._timeout_s = connection_timeout_s
        self._lock = threading.Lock()  # guards setting _closing; never held while blocking
        self._closing = threading.Event()
        self._start_stop_lock = threading.RLock()  # kazoo must not be started and stopped concurrently
        self._connection = Connection(
            hosts, session_timeout_s=session_timeout_s, call_timeout_s=connection_timeout_s, security=security
        )
        self._client = self._connection.client
        self.lease = Lease(self._connection, on_lease_expired)
        self.znodes = Znodes(
            self._connection,
            authenticates=security.authenticates,
            on_change=lambda path: self._report(Event(EventKind.CHANGED, path)),
        )
        self._client.add_listener(self._on_state)

    @classmethod
    def from_config(
        cls,
        config: ConsumerConfig,
        events: queue.SimpleQueue[Any] | None = None,
        on_lease_expired: Callable[[], object] = lambda: None,
    ) -> ZooKeeperSession:
        """Create a session from a consumer's properties; it is not started."""
        return cls(
            config.zookeeper_connect,
            session_timeout_s=config.zookeeper_session_timeout_s,
            connection_timeout_s=config.zookeeper_connection_timeout_s,
            events=events,
            security=ZooKeeperSecurity.from_config(config),
            on_lease_expired=on_lease_expired,
        )

    def start(self, connect_timeout_s: float = 0.0) -> None:
        """Connect to the ensemble. The session is closed if that fails.

        Args:
            connect_timeout_s: maximum seconds to wait; the connection timeout applies if it is longer.

        Raises:
            ZooKeeperUnavailableError: no server accepted the connection in time.
            ConfigurationError: the chroot does not exist.
            AuthenticationError: authentication failed.
        """
        timeout_s = max(self._timeout_s, connect_timeout_s)
        deadline = time.monotonic() + timeout_s
        try:
            with self._start_stop_lock:
                self._check_open()
                connected = self._client.start_async()
                self.lease.start()
            # The connection may be lost again before the chroot has been checked.
            retrying(timeout_s)(self._wait_until_usable, connected, deadline, timeout_s)
        except BaseException:
            self.close()
            raise

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ClosedError("the consumer was shut down while it was connecting to ZooKeeper")

    def _wait_until_usable(self, connected: threading.Event, deadline: float, timeout_s: float) -> None:
        while not connected.wait(_CONNECT_POLL_INTERVAL_S):
            self._check_open()
            if self.has_failed_authentication:
                raise self.authentication_error()
            if time.monotonic() >= deadline:
                if self._client.login_error:
                    raise self.authentication_error()
                option = (
                    "zookeeper.connection.timeout.ms" if timeout_s == self._timeout_s else "clusterUnavailableTimeout"
                )
                raise ZooKeeperUnavailableError(
                    f"could not connect to ZooKeeper at {self.hosts!r} within {timeout_s:g} s: "
                    f"{connection_diagnosis.explain(self.hosts, option)}"
                )
        chroot = self._client.chroot
        # kazoo resolves "/" to the chroot itself.
        if not self.znodes.exists("/"):
            raise ConfigurationError(
                f"zookeeper.connect = {self.hosts!r}: the chroot {chroot!r} does not exist; create it, or use the "
                "chroot of the brokers or of the other members of the group"
            )

    def close(self) -> None:
        """Close the session, which deletes its ephemeral znodes. Any thread may call it, more than once."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self._client.remove_listener(self._on_state)
        self.lease.expire()
        # If the server does not respond, kazoo would wait for a whole session timeout.
        timer = threading.Timer(_CLOSE_TIMEOUT_S, self._connection.drop)
        timer.daemon = True
        timer.start()
        try:
            with self._start_stop_lock:
                self._client.stop()
                self._client.close()
                self.lease.close()
        finally:
            timer.cancel()
            timer.join()

    @property
    def session_id(self) -> int:
        """The session id, which is the ``ephemeralOwner`` of the session's znodes; 0 without a session."""
        identity = self._client.client_id
        return int(identity[0]) if identity else 0

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected to a server, so that operations are possible."""
        return self._connection.is_connected

    @property
    def has_failed_authentication(self) -> bool:
        """Whether ZooKeeper has rejected the first login; later ones are repeated."""
        return self._client.is_refused and not self._closing.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether kazoo's connection thread has ended although the session was not closed; no connection follows."""
        return bool(self._client.client_state == KeeperState.CLOSED) and not self._closing.is_set()

    # ---- errors ----

    def not_connected_error(self) -> ZooKeeperUnavailableError:
        """Return the error for an operation while the session is not connected."""
        return self._connection.not_connected_error()

    def authentication_error(self) -> AuthenticationError:
        """Return the error for credentials that ZooKeeper has rejected."""
        return self._connection.authentication_error()

    def ended_error(self) -> ZkConsumerError:
        """Return the error for a session whose connection thread has ended."""
        return ZkConsumerError(
            f"the thread that connects to ZooKeeper at {self.hosts!r} ended with an unexpected error, whose "
            "traceback is on stderr; create a new consumer"
        )

    # ---- callbacks of kazoo ----

    def _on_state(self, state: str) -> None:  # in kazoo's connection thread
        if state == KazooState.CONNECTED:
            self.lease.renew_soon()
        elif state == KazooState.LOST:
            self.lease.expire()
        self._report(Event(EventKind(state.lower())))

    def _report(self, event: Event) -> None:
        if self._events is not None:
            self._events.put(event)


__all__ = ["Event", "EventKind", "ZooKeeperSession"]
