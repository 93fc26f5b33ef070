"""ZooKeeperSession: kazoo behind a few calls, one event queue, and the lease of the session.

kazoo's callbacks run in threads that must not wait; all they do here is to put an event on the queue. Calls may be
made by any thread; each has a deadline. Only raw watches are used: kazoo's recipes drop events, start threads and
block its own (python-zk/kazoo#218, #257).
"""

from __future__ import annotations

import logging
import math
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    OwnershipLostError,
    RetriableError,
    ZooKeeperUnavailableError,
)
from zkconsumer.log import get_logger
from zkconsumer.retry import retrying
from zkconsumer.zookeeper.security import ZooKeeperSecurity

#: Operations in one transaction: the request must fit into ZooKeeper's ``jute.maxbuffer`` of 1 MB.
TRANSACTION_LIMIT = 1000

_T = TypeVar("_T")

#: Seconds between two looks at whether a session that connects was closed or refused meanwhile.
_STEP = 0.1

#: Seconds that the server may take to end a session.
_CLOSE_TIMEOUT = 2.0

#: Renewals of the lease in a session timeout.
_RENEWALS = 6

#: Consecutive renewal intervals without any answer after which the connection is dropped: between half and two
#: thirds of the session timeout, which leaves a third for another server. ZooKeeper's Java client waits two thirds.
_SILENT_INTERVALS = 3


#: kazoo's log; it would show logins as it sends them.
_kazoo_log = logging.getLogger("zkconsumer.zookeeper.kazoo")


def _hide_logins(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple("(a login)" if type(a).__name__ in ("Auth", "SASL") else a for a in record.args)
    return True


_kazoo_log.addFilter(_hide_logins)


@dataclass(frozen=True, slots=True)
class Event:
    """Something the reader of the queue has to look at.

    ``kind`` is ``suspended``, ``lost``, ``connected`` or ``changed``; with ``changed`` comes the path whose
    watch fired.
    """

    kind: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A znode's content with the parts of its stat that matter here."""

    data: bytes
    version: int
    owner_session: int
    created: int
    modified: float  #: seconds since the epoch, by the server's clock


_CONNECTION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    KazooTimeoutError,
)


#: What a JVM with a login gives the znodes that are its own: all for their creator, reading for everybody.
_OURS = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


class NodeExists(RetriableError):
    """The znode to be created is there."""


class NodeMissing(RetriableError):
    """The znode, or its parent, is not there."""


class BadVersion(RetriableError):
    """The znode has been written since it was read."""


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A request that renews the lease of a session when it is answered."""

    sent_at: float  #: ``time.monotonic()`` just before it was sent
    result: Any  #: kazoo's


class ZooKeeperSession:
    """A connection to the ensemble with its events on one queue.

    A thread of the session renews its lease, so that a busy member thread does not let it lapse. The same thread
    drops a connection whose server does not answer: kazoo sends pings only while it sends no requests, and does not
    expect answers to those.

    Args:
        hosts: ``zookeeper.connect``: hosts with commas and an optional chroot at the end.
        session_timeout: seconds offered to the server.
        connection_timeout: seconds for connecting, and for each call.
        events: where events go; any object with ``put``.
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
        self._acl = _OURS if security.authenticates else OPEN_ACL_UNSAFE
        self._events = events
        self._session_timeout = session_timeout
        self._timeout = connection_timeout
        self._lock = threading.Lock()  # guards the three fields below; never held over a wait
        self._renewed_at = -math.inf  # when the last answered renewal was sent
        self._renewal: _Renewal | None = None  # sent, and not known to be answered
        self._login_refused = False
        self._closing = threading.Event()
        self._is_answered = False  # set by each answered call, cleared by the lease thread
        self._lease_thread = threading.Thread(target=self._keep_lease, name="zkconsumer-zookeeper-lease", daemon=True)
        self._log = get_logger("zkconsumer.zookeeper")
        self._turn = threading.RLock()  # kazoo is not to be started and stopped at once
        try:
            self._client = KazooClient(
                hosts,
                timeout=session_timeout,
                connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},  # kazoo's is 60 s
                logger=_kazoo_log,
                **security.client_arguments(),
            )
        except ValueError as error:
            raise ConfigurationError(f"zookeeper.connect = {hosts!r}: {error}") from error
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
                self._lease_thread.start()
            # The connection may go again before the chroot is looked at.
            retrying(timeout)(self._check, connected, deadline, timeout)
        except BaseException:
            self.close()
            raise

    def _check(self, connected: threading.Event, deadline: float, timeout: float) -> None:
        while not connected.wait(_STEP):
            if self._closing.is_set():
                raise ClosedError("the consumer was shut down")
            if self.is_refused:
                raise self.refusal()
            if time.monotonic() >= deadline:
                limit = "zookeeper.connection.timeout.ms" if timeout == self._timeout else "unavailable.timeout.ms"
                raise ZooKeeperUnavailableError(
                    f"no ZooKeeper answers at {self.hosts!r} within {timeout:g} s; check zookeeper.connect and that "
                    f"the ensemble runs and has a quorum (a server that is read-only takes no member), or raise {limit}"
                )
        chroot = self._client.chroot
        # Under a chroot kazoo cannot name the chroot itself but as the root, whose stat it does give.
        if self._call(self._ready().exists_async("/")) is None:
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
        hurry = threading.Timer(_CLOSE_TIMEOUT, self._hang_up)
        hurry.daemon = True
        hurry.start()
        try:
            with self._turn:
                self._client.stop()
                self._client.close()
                if self._lease_thread.is_alive():
                    self._lease_thread.join()
        finally:
            hurry.cancel()
            hurry.join()

    def _hang_up(self) -> None:
        connection = self._client._connection._socket
        if connection is not None:
            try:
                # An SSLSocket's own method also takes away the TLS state, which kazoo's thread may be using.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def session_id(self) -> int:
        """The id that the ephemeral znodes of this session carry; 0 while not connected."""
        identity = self._client.client_id
        return int(identity[0]) if identity else 0

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made now."""
        return bool(self._client.state == KazooState.CONNECTED)

    @property
    def is_refused(self) -> bool:
        """Whether ZooKeeper has refused the login, after which nothing is tried any more."""
        return self._login_refused and not self._closing.is_set()

    def refusal(self) -> AuthenticationError:
        """Return the error for a login that was refused."""
        return AuthenticationError(
            f"ZooKeeper at {self.hosts!r} refuses the login; check zookeeper.sasl.* and zookeeper.auth.digest"
        )

    @property
    def lapses_in(self) -> float:
        """Seconds until the session may have expired on the server; 0 without a session.

        The server counts from the last request that it received, so this counts from when the last answered renewal
        was sent, whatever the state of the connection.
        """
        with self._lock:
            self._settle()
            return max(0.0, self._renewed_at + self._session_timeout - time.monotonic())

    def _keep_lease(self) -> None:
        """Renew the lease until the session is closed, and drop a connection over which nothing is answered.

        kazoo then connects to the next server, within the same session. Intervals are counted and not seconds: after
        the process was suspended, the answer may be waiting in the socket.
        """
        silent = 0
        while not self._closing.wait(self._session_timeout / _RENEWALS):
            is_answered, self._is_answered = self._is_answered, False
            is_waiting = self.is_connected and not self.renew()
            silent = silent + 1 if is_waiting and not is_answered else 0
            if silent == _SILENT_INTERVALS:
                silent = 0
                self._log.warning("zookeeper_connection_dropped", endpoint=self.hosts, error="no request is answered")
                self._hang_up()

    def renew(self) -> bool:
        """Send a request whose answer renews the lease; returns False while the last one is not answered.

        Answers come in the order of the requests, so the lease is renewed once a later request has been answered.
        """
        with self._lock:
            self._settle()
            if self._renewal is not None:
                return False
            if self.is_connected:
                self._renewal = _Renewal(time.monotonic(), self._client.exists_async("/"))
            return True

    def _settle(self) -> None:  # with the lock
        """Count the lease from the last renewal once it is answered.

        A callback of kazoo may run only after the result of a later request is known.
        """
        if self._renewal is not None and self._renewal.result.ready():
            if self._renewal.result.successful():
                self._renewed_at = self._renewal.sent_at
            self._renewal = None

    def _on_state(self, state: str) -> None:  # in kazoo's connection thread
        if state == KazooState.LOST:
            with self._lock:
                self._renewed_at, self._renewal = -math.inf, None
                # Known here alone: kazoo goes on to call it closed at once.
                self._login_refused |= self._client.client_state == KeeperState.AUTH_FAILED
        self._events.put(Event(state.lower()))

    def _on_change(self, event: Any) -> None:  # in kazoo's callback thread
        self._events.put(Event("changed", event.path or ""))

    def _call(self, result: Any, path: str = "") -> Any:
        """Wait for the result of an asynchronous kazoo call about ``path``, in our errors."""
        try:
            return result.get(timeout=self._timeout)
        except kazoo_errors.NodeExistsError as error:
            raise NodeExists(str(error) or "a znode exists that was to be created") from error
        except kazoo_errors.NoNodeError as error:
            raise NodeMissing(str(error) or "a znode was deleted meanwhile") from error
        except kazoo_errors.BadVersionError as error:
            raise BadVersion(str(error) or "a znode was written meanwhile") from error
        except kazoo_errors.NoAuthError as error:
            raise self._refused(path) from error
        except kazoo_errors.AuthFailedError as error:
            raise self.refusal() from error
        except _CONNECTION_ERRORS as error:  # one of them is a SessionExpiredError for kazoo
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self.hosts!r} is not reachable or did not answer within {self._timeout:g} s"
            ) from error
        except kazoo_errors.SessionExpiredError as error:
            raise OwnershipLostError("the ZooKeeper session has ended; the member registers anew") from error
        except kazoo_errors.KazooException as error:
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self.hosts!r} refused a request: {type(error).__name__} {error}"
            ) from error
        finally:
            if result.ready():
                self._is_answered = True

    def _refused(self, path: str) -> AuthenticationError:
        return AuthenticationError(
            f"ZooKeeper at {self.hosts!r} does not allow {path or 'this'}: an ACL keeps it for others. Give this "
            "member their login (zookeeper.sasl.*, zookeeper.auth.digest), or have them open it"
        )

    def _ready(self) -> Any:
        """Return the client, so that no request is queued for a connection that may come much later."""
        if not self.is_connected:
            raise self.not_connected()
        return self._client

    def not_connected(self) -> ZooKeeperUnavailableError:
        """Return the error for a call that cannot be made now."""
        return ZooKeeperUnavailableError(f"ZooKeeper at {self.hosts!r} is not connected")

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        """Return a znode, or None where it is missing; with ``watch`` its next change is an event."""
        try:
            data, stat = self._call(self._ready().get_async(path, self._on_change if watch else None), path)
        except NodeMissing:
            return None
        return Node(data or b"", stat.version, stat.ephemeralOwner, stat.czxid, stat.mtime / 1000)

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[Node | None]:
        """Return many znodes, asked for at once."""
        client = self._ready()
        results = [client.get_async(path, self._on_change if watch else None) for path in paths]
        nodes: list[Node | None] = []
        for path, result in zip(paths, results, strict=True):
            try:
                data, stat = self._call(result, path)
                nodes.append(Node(data or b"", stat.version, stat.ephemeralOwner, stat.czxid, stat.mtime / 1000))
            except NodeMissing:
                nodes.append(None)
        return nodes

    def children(self, path: str, *, watch: bool = False) -> list[str] | None:
        """Return the sorted names of a znode's children, or None where it is missing."""
        try:
            return sorted(self._call(self._ready().get_children_async(path, self._on_change if watch else None), path))
        except NodeMissing:
            return None

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether there is such a znode; with ``watch`` its appearance, change or end is an event."""
        return self._call(self._ready().exists_async(path, self._on_change if watch else None), path) is not None

    def ensure(self, path: str, *, open_to_all: bool = False) -> None:
        """Create a persistent znode, with its parents, unless it exists."""
        parent, _, _ = path.rpartition("/")
        # /consumers and a group's own znode are everybody's.
        acl = OPEN_ACL_UNSAFE if open_to_all or path.count("/") < 3 else self._acl
        try:
            self._call(self._ready().create_async(path, b"", acl), path)
        except NodeExists:
            return
        except NodeMissing:
            self.ensure(parent, open_to_all=open_to_all)
            self.ensure(path, open_to_all=open_to_all)

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode, and its parents, open to all.

        Raises:
            NodeExists: it is there.
        """
        try:
            self._call(self._ready().create_async(path, data, OPEN_ACL_UNSAFE, ephemeral=True), path)
        except NodeMissing:
            self.ensure(path.rpartition("/")[0], open_to_all=True)
            self._call(self._ready().create_async(path, data, OPEN_ACL_UNSAFE, ephemeral=True), path)

    def create_all_ephemeral(self, nodes: Sequence[tuple[str, bytes]]) -> str | None:
        """Create all or none of up to ``TRANSACTION_LIMIT`` ephemeral znodes; their parents must exist.

        Returns:
            None, or the path that exists already and so prevented it.
        """
        transaction = self._ready().transaction()
        for path, data in nodes:
            transaction.create(path, data, self._acl, ephemeral=True)
        results = self._call(transaction.commit_async())
        for (path, _), result in zip(nodes, results, strict=True):
            if isinstance(result, kazoo_errors.NodeExistsError):
                return path
            if isinstance(result, kazoo_errors.NoNodeError):
                raise NodeMissing(path)
            if isinstance(result, kazoo_errors.NoAuthError):
                raise self._refused(path) from result
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise ZooKeeperUnavailableError(f"ZooKeeper refused to create {nodes[0][0]!r} and others: {errors[0]!r}")
        return None

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode if it is there.

        Raises:
            BadVersion: it has been written since it had ``version``.
        """
        try:
            self._call(self._ready().delete_async(path, version), path)
        except NodeMissing:
            pass

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete znodes, in transactions; missing ones are fine."""
        for part in _parts(list(paths)):
            transaction = self._ready().transaction()
            for path in part:
                transaction.delete(path)
            if self._commit(transaction) is None:  # then one by one, asked for at once
                for path, result in zip(part, [self._client.delete_async(path) for path in part], strict=True):
                    self._unless_missing(result, path)

    def delete_tree(self, path: str) -> None:
        """Delete a znode with all below it."""
        for child in self.children(path) or ():
            self.delete_tree(f"{path}/{child}")
        self.delete(path)

    def set_many(self, nodes: Sequence[tuple[str, bytes, int]]) -> list[int | None]:
        """Write ``(path, data, version)``, in transactions; version -1 writes whatever is there.

        Returns:
            the new version of each, or None where it had another one or was missing.
        """
        versions: list[int | None] = []
        for part in _parts(nodes):
            transaction = self._ready().transaction()
            for path, data, version in part:
                transaction.set_data(path, data, version)
            written = self._commit(transaction)
            if written is None:  # then one by one, asked for at once
                results = [self._client.set_async(path, data, version) for path, data, version in part]
                written = [
                    self._unless_missing(result, path) for (path, _, _), result in zip(part, results, strict=True)
                ]
            versions += [None if stat is None else int(stat.version) for stat in written]
        return versions

    def _unless_missing(self, result: Any, path: str) -> Any:
        """Return a result, or None where the znode is missing or has another version."""
        try:
            return self._call(result, path)
        except (BadVersion, NodeMissing):
            return None

    def create_many(self, nodes: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Create persistent znodes, and their parents, in transactions; False for each that was there.

        They are open to all, unless we are known to ZooKeeper, as the JVM's are.
        """
        created: list[bool] = []
        for parent in {path.rpartition("/")[0] for path, _ in nodes}:
            if not self.exists(parent):
                self.ensure(parent)
        for part in _parts(nodes):
            transaction = self._ready().transaction()
            for path, data in part:
                transaction.create(path, data, self._acl)
            created += map(self._create, part) if self._commit(transaction) is None else [True] * len(part)
        return created

    def _create(self, node: tuple[str, bytes]) -> bool:
        path, data = node
        try:
            self._call(self._ready().create_async(path, data, self._acl), path)
        except NodeExists:
            return False
        return True

    def _commit(self, transaction: Any) -> list[Any] | None:
        """Return the results of a transaction, or None where it was refused and so did nothing."""
        results = self._call(transaction.commit_async())
        return None if any(isinstance(result, Exception) for result in results) else results


def _parts(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Divide what is to be done into pieces that one transaction can take."""
    for start in range(0, len(items), TRANSACTION_LIMIT):
        yield items[start : start + TRANSACTION_LIMIT]


__all__ = ["BadVersion", "Event", "Node", "NodeExists", "NodeMissing", "ZooKeeperSession"]
