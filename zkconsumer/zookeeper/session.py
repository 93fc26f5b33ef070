"""ZooKeeperSession: a session with a ZooKeeper ensemble, its lease, its events, and znode operations.

kazoo runs callbacks in threads that must not block, so the callbacks only put an event on a queue.
"""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
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
from zkconsumer.threads import WAKE_INTERVAL_S, OwnedThread
from zkconsumer.zookeeper import connection_diagnosis
from zkconsumer.zookeeper.connection import Connection
from zkconsumer.zookeeper.lease import Lease
from zkconsumer.zookeeper.security import ZooKeeperSecurity
from zkconsumer.zookeeper.znodes import Znodes

#: Seconds between checks for a closed session or failed authentication while ``start`` waits for a connection.
_CONNECT_POLL_INTERVAL_S = 0.1

#: Maximum seconds to wait for the server's response when closing the session.
_CLOSE_TIMEOUT_S = 2.0


class EventKind(enum.Enum):
    """Kind of a session event or watch event."""

    #: The session connected to a server.
    CONNECTED = "connected"
    #: The connection was lost.
    SUSPENDED = "suspended"
    #: The session expired.
    LOST = "lost"
    #: A watch fired.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Event:
    """A change in the session state, or a fired watch.

    Attributes:
        kind: event kind.
        path: path of the fired watch if ``kind`` is ``CHANGED``, otherwise empty.
    """

    kind: EventKind
    path: str = ""


class ZooKeeperSession:
    """A session with a ZooKeeper ensemble. Thread-safe.

    When the session expires, kazoo opens a new one, and ``session_id`` changes.

    Args:
        hosts: value of ``zookeeper.connect``: comma-separated ``host:port`` pairs with an optional chroot at the end.
        session_timeout_s: requested session timeout in seconds.
        connection_timeout_s: maximum seconds to wait for the connection, and for the result of each operation.
        events: queue for events, or any other object with a ``put`` method; None discards events.
        security: TLS and authentication settings; by default, neither is used.
        on_lease_expired: function that is called each time the lease ends; see ``Lease``.

    Attributes:
        hosts: value of ``zookeeper.connect``.
        lease: the session's lease, during which the session cannot have expired; ``lease.acquire`` starts it.
        znodes: znode operations.
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
        """Create a session from a consumer configuration, without starting it."""
        return cls(
            config.zookeeper_connect,
            session_timeout_s=config.zookeeper_session_timeout_s,
            connection_timeout_s=config.zookeeper_connection_timeout_s,
            events=events,
            security=ZooKeeperSecurity.from_config(config),
            on_lease_expired=on_lease_expired,
        )

    def start(self, connect_timeout_s: float = 0.0) -> None:
        """Connect to the ensemble; close the session if that fails.

        Args:
            connect_timeout_s: maximum seconds to wait; the connection timeout applies if it is longer.

        Raises:
            ZooKeeperUnavailableError: no session was established in time.
            ConfigurationError: the chroot does not exist.
            AuthenticationError: authentication failed.
            ClosedError: ``close`` was called in the meantime.
        """
        timeout_s = max(self._timeout_s, connect_timeout_s)
        deadline = time.monotonic() + timeout_s
        try:
            connected = self._start_client()
            # The connection may be lost before the chroot is checked.
            retrying(timeout_s)(self._wait_until_usable, connected, deadline, timeout_s)
        except BaseException:
            self.close()
            raise

    def _start_client(self) -> threading.Event:
        """Start kazoo and the lease; return the event that is set when the session is connected.

        A signal handler may raise an exception in the calling thread at any instruction, and kazoo cannot be stopped
        if its start was interrupted. Therefore, kazoo is started in another thread.
        """
        started: Future[threading.Event] = Future()

        def start() -> None:
            with self._start_stop_lock:
                self._check_open()
                connected = self._client.start_async()
                self.lease.start()
            started.set_result(connected)

        starter = OwnedThread(start, "zkconsumer-zookeeper-start", started.set_exception)
        starter.start()
        while not starter.join(WAKE_INTERVAL_S):
            pass
        return started.result()

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
                    f"{connection_diagnosis.explain(self.hosts, option, uses_tls=self._client.use_ssl)}"
                )
        chroot = self._client.chroot
        # kazoo resolves "/" to the chroot itself.
        if not self.znodes.exists("/"):
            raise ConfigurationError(
                f"zookeeper.connect = {self.hosts!r}: the chroot {chroot!r} does not exist; check whether the "
                "chroot is correct"
            )

    def close(self) -> None:
        """Close the session, which deletes its ephemeral znodes. May be called repeatedly, and from any thread."""
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
        """The session id, which is the ``ephemeralOwner`` of the session's znodes; 0 if there is no session."""
        identity = self._client.client_id
        return int(identity[0]) if identity else 0

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected to a server."""
        return self._connection.is_connected

    @property
    def has_failed_authentication(self) -> bool:
        """Whether ZooKeeper rejected the first authentication; later failures are retried."""
        return self._client.is_rejected and not self._closing.is_set()

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error after which kazoo does not reconnect, so that only a restart helps; None if there is none.

        ZooKeeper rejected the first authentication, or kazoo's connection thread terminated unexpectedly. The session
        reports the event ``LOST`` in both cases.
        """
        if self.has_failed_authentication:
            return self.authentication_error()
        if self._client.client_state == KeeperState.CLOSED and not self._closing.is_set():
            return ZkConsumerError(
                f"the connection thread for ZooKeeper at {self.hosts!r} terminated with an unexpected error (traceback "
                "on standard error); create a new consumer"
            )
        return None

    # ---- errors ----

    def not_connected_error(self) -> ZooKeeperUnavailableError:
        """Return the exception for an operation while the session is not connected."""
        return self._connection.not_connected_error()

    def authentication_error(self) -> AuthenticationError:
        """Return the exception for failed authentication."""
        return self._connection.authentication_error()

    # ---- kazoo callbacks ----

    def _on_state(self, state: str) -> None:  # called by kazoo's connection thread
        if state == KazooState.CONNECTED:
            self.lease.renew_soon()
        elif state == KazooState.LOST:
            self.lease.expire()
        self._report(Event(EventKind(state.lower())))

    def _report(self, event: Event) -> None:
        if self._events is not None:
            self._events.put(event)


__all__ = ["Event", "EventKind", "ZooKeeperSession"]
