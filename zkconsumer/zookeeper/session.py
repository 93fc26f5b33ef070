"""ZooKeeperSession: a session with the ensemble, its events on one queue, its lease and its znodes.

kazoo's callbacks run in threads that must not wait; all they do here is to put an event on the queue.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from kazoo.protocol.states import KazooState, KeeperState

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationError, ClosedError, ConfigurationError, ZooKeeperUnavailableError
from zkconsumer.retry import retrying
from zkconsumer.zookeeper.connection import Connection
from zkconsumer.zookeeper.lease import Lease
from zkconsumer.zookeeper.security import ZooKeeperSecurity
from zkconsumer.zookeeper.znodes import Znodes

#: Seconds between two looks at whether a session that connects was closed or refused meanwhile.
_STEP = 0.1

#: Seconds that the server may take to end a session.
_CLOSE_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something the reader of the queue has to look at.

    ``kind`` is ``suspended``, ``lost``, ``connected`` or ``changed``; with ``changed`` comes the path whose
    watch fired.
    """

    kind: str
    path: str = ""


class ZooKeeperSession:
    """A session with the ensemble.

    Args:
        hosts: ``zookeeper.connect``: hosts with commas and an optional chroot at the end.
        session_timeout: seconds offered to the server.
        connection_timeout: seconds for connecting, and for each call.
        events: where events go; any object with ``put``.

    Attributes:
        lease: how long the session is certain to exist.
        znodes: reads and writes of znodes.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout: float,
        connection_timeout: float,
        events: queue.SimpleQueue[Any],
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self.hosts = hosts
        security = security or ZooKeeperSecurity()
        self._events = events
        self._timeout = connection_timeout
        self._lock = threading.Lock()  # held while ``_closing`` is set; never held over a wait
        self._closing = threading.Event()
        self._login_refused = False  # written by kazoo's connection thread
        self._turn = threading.RLock()  # kazoo is not to be started and stopped at once
        self._connection = Connection(
            hosts, session_timeout=session_timeout, call_timeout=connection_timeout, security=security
        )
        self._client = self._connection.client
        self.lease = Lease(self._connection, session_timeout, self._closing)
        self.znodes = Znodes(
            self._connection,
            authenticates=security.authenticates,
            on_change=lambda path: events.put(Event("changed", path)),
        )
        self._client.add_listener(self._on_state)

    @classmethod
    def of(cls, config: ConsumerConfig, events: queue.SimpleQueue[Any]) -> ZooKeeperSession:
        """Return the session that a consumer with these properties has."""
        return cls(
            config.zookeeper_connect,
            session_timeout=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout=config.connection_timeout,
            events=events,
            security=ZooKeeperSecurity.of(config),
        )

    def start(self, connect_within: float = 0.0) -> None:
        """Connect; on an error nothing is left behind.

        Args:
            connect_within: seconds that it may take where that is more than the connection timeout.

        Raises:
            ZooKeeperUnavailableError: nothing answered in time.
            ConfigurationError: the chroot does not exist.
            AuthenticationError: the login was refused.
        """
        timeout = max(self._timeout, connect_within)
        deadline = time.monotonic() + timeout
        try:
            with self._turn:
                if self._closing.is_set():
                    raise ClosedError("the consumer was shut down")
                connected = self._client.start_async()
                self.lease.start()
            # The connection may go again before the chroot is looked at.
            retrying(timeout)(self._check, connected, deadline, timeout)
        except BaseException:
            self.close()
            raise

    def _check(self, connected: threading.Event, deadline: float, timeout: float) -> None:
        while not connected.wait(_STEP):
            if self._closing.is_set():
                raise ClosedError("the consumer was shut down")
            if self.is_login_refused:
                raise self.login_refused_error()
            if time.monotonic() >= deadline:
                limit = "zookeeper.connection.timeout.ms" if timeout == self._timeout else "unavailable.timeout.ms"
                raise ZooKeeperUnavailableError(
                    f"no ZooKeeper answers at {self.hosts!r} within {timeout:g} s; check zookeeper.connect and that "
                    f"the ensemble runs and has a quorum (a server that is read-only takes no member), or raise {limit}"
                )
        chroot = self._client.chroot
        # Under a chroot kazoo cannot name the chroot itself but as the root, whose stat it does give.
        if not self.znodes.exists("/"):
            raise ConfigurationError(
                f"zookeeper.connect = {self.hosts!r}: the chroot {chroot!r} does not exist; create it, or correct it "
                "to the one that brokers or the other members of the group use"
            )

    def close(self) -> None:
        """End the session: all ephemeral znodes vanish. May be called from any thread, and again."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self._client.remove_listener(self._on_state)
        # kazoo waits for a server that is silent until the session would have ended.
        hurry = threading.Timer(_CLOSE_TIMEOUT, self._connection.drop)
        hurry.daemon = True
        hurry.start()
        try:
            with self._turn:
                self._client.stop()
                self._client.close()
                self.lease.join()
        finally:
            hurry.cancel()
            hurry.join()

    @property
    def session_id(self) -> int:
        """The id that the ephemeral znodes of this session carry; 0 while not connected."""
        identity = self._client.client_id
        return int(identity[0]) if identity else 0

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made now."""
        return self._connection.is_connected

    @property
    def is_login_refused(self) -> bool:
        """Whether ZooKeeper has refused the login, after which nothing is tried any more."""
        return self._login_refused and not self._closing.is_set()

    def not_connected_error(self) -> ZooKeeperUnavailableError:
        """Return the error for a call that cannot be made now."""
        return self._connection.not_connected_error()

    def login_refused_error(self) -> AuthenticationError:
        """Return the error for a login that was refused."""
        return self._connection.login_refused_error()

    def _on_state(self, state: str) -> None:  # in kazoo's connection thread
        if state == KazooState.LOST:
            self.lease.end()
            # Known here alone: kazoo goes on to call it closed at once.
            self._login_refused |= self._client.client_state == KeeperState.AUTH_FAILED
        self._events.put(Event(state.lower()))


__all__ = ["Event", "ZooKeeperSession"]
