"""Client: a kazoo client that uses its own TLS context, retries failed authentication, and replaces lost sessions.

kazoo closes the session if authentication fails. It also treats a connection that is closed during the SASL handshake
as an authentication failure, because ZooKeeper before 3.6 closes it if the credentials are wrong. With kazoo alone, a
server restart during the handshake would therefore terminate the consumer.

A server whose last transaction is older than the last one that the client has seen closes the connection without a
response. If the whole ensemble lost transactions, because it was restored from a backup or lost its data, kazoo would
therefore reconnect forever. Source: ZooKeeper 3.9 ZooKeeperServer.processConnectRequest.
"""

from __future__ import annotations

import math
import random
import socket
import ssl
import time
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Connect
from kazoo.protocol.states import KeeperState

from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.net.host_names import resolve
from zkconsumer.net.tls import (
    ZOOKEEPER_PROPERTIES,
    Rejection,
    find_missing_tls,
    find_rejection,
    read_alert,
    server_name,
)
from zkconsumer.zookeeper.security import ZooKeeperSecurity

#: Timeout for resolving the servers' host names, as a fraction of the session timeout.
_RESOLUTION_SHARE = 1 / 8

#: What to check after failed authentication, unless the failure has its own remedy.
_LOGIN_REMEDY = "check zookeeper.sasl.*, zookeeper.auth.digest and zookeeper.ssl.*"


class RejectedError(Exception):
    """The server rejected the connection permanently."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.remedy = rejection.remedy


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Creates connections that can be interrupted, with the TLS context ``context`` unless it is None.

    kazoo's own TLS context always trusts the system's certificate authorities as well, and its connection attempts
    cannot be interrupted.
    """

    def __init__(self, context: ssl.SSLContext | None, client: Client) -> None:
        super().__init__()
        self._context = context
        self._client = client

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_settings: object
    ) -> socket.socket:
        """Connect to a server and, with TLS, perform the handshake. ``Connection.drop`` can interrupt either step."""
        client = self._client
        timeout = client.attempt_timeout_s if timeout is None else min(timeout, client.attempt_timeout_s)
        connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        try:
            client._connection._socket = connection
            connection.settimeout(timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(address)
            if self._context is not None:
                name = server_name(hostname or address[0])
                connection = self._context.wrap_socket(connection, server_hostname=name, do_handshake_on_connect=False)
                client._connection._socket = connection
                connection.do_handshake()
            return connection
        except BaseException:
            connection.close()
            raise

    def select(self, readers: list[Any], *others: Any) -> Any:
        """Wait for and return ready sockets. A socket with decrypted data in its TLS buffer is considered readable."""
        pending = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        return (pending, [], []) if pending else super().select(readers, *others)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Reports the client's connection as usable after authentication, and handles authentication failures."""

    client: Client
    _socket: Any

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Return the host name, address and port of each server; a host name may resolve to the whole ensemble.

        If a host name is not resolved in time, its previous addresses are used. kazoo would wait for the name server
        instead, possibly for longer than the session timeout.
        """
        client = self.client
        client.rounds += 1
        deadline = time.monotonic() + client.granted_session_timeout_s * _RESOLUTION_SHARE
        lookups = {(host, port): resolve(host, port) for host, port in client.hosts}
        for (host, port), lookup in lookups.items():
            try:
                found = lookup.result(max(0.0, deadline - time.monotonic()))
                client.resolved[host, port] = [(host, address[0], address[1]) for *_, address in found]
            except (OSError, UnicodeError) as error:
                lookup.cancel()
                reason = str(error) or "the name server does not respond"
                self.logger.warning("Cannot resolve %s: %s", host, reason)
        servers = [server for key in lookups for server in client.resolved.get(key, ())]
        if client.randomize_hosts:
            random.shuffle(servers)
        return servers

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Send a request during connection setup, and record the negotiated session timeout."""
        result = super()._invoke(min(timeout, self.client.attempt_timeout_s), request, xid)
        if isinstance(request, Connect) and result[0].time_out > 0:  # 0 if the session has expired
            self.client.granted_session_timeout_s = result[0].time_out / 1000
        return result

    def _read(self, length: int, timeout: float) -> Any:
        """Read from the connection; detect a server that requires TLS by its response to the first request."""
        data = super()._read(length, timeout)
        if self.client.is_logging_in and not self.client.use_ssl:
            rejection = find_missing_tls(data, "the ZooKeeper server", ZOOKEEPER_PROPERTIES)
            if rejection is not None:
                raise RejectedError(rejection)
        return data

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        client, endpoint = self.client, str(Endpoint(host, port))
        client.is_logging_in = True
        try:
            timeouts = super()._connect(host, hostip, port)
        except kazoo_errors.ConnectionDropped as error:
            rejection = self._find_rejection(error)
            if rejection is not None:
                raise client.on_login_failure(endpoint, RejectedError(rejection)) from error
            if client.has_outlived_session and self._accepts_new_session(host, hostip, port):
                raise client.on_session_rejected(endpoint) from error
            raise
        except (kazoo_errors.SessionExpiredError, KazooTimeoutError):
            raise
        except Exception as error:  # SASL mechanisms raise various exceptions
            raise client.on_login_failure(endpoint, error) from error
        finally:
            client.is_logging_in = False
        client.on_login()
        return timeouts

    def _find_rejection(self, error: kazoo_errors.ConnectionDropped) -> Rejection | None:
        """Return why a server rejected the TLS handshake; None if the connection may succeed when it is retried."""
        peer = "the ZooKeeper server"
        if not self.client.use_ssl:
            return None
        return find_rejection(error.__context__, peer, ZOOKEEPER_PROPERTIES) or find_rejection(
            read_alert(self._socket), peer, ZOOKEEPER_PROPERTIES
        )

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        super()._authenticate_with_sasl(server_name(host), timeout)  # the name is part of a Kerberos principal

    def _accepts_new_session(self, host: str, hostip: str, port: int) -> bool:
        """Return whether a server that closed the connection grants a new session, which is closed immediately.

        A server without a quorum closes the connection, too. It may know the client's session once it has a quorum.
        """
        client = self.client
        self._socket.close()
        try:
            self._socket = self.handler.create_connection((hostip, port), host)
            self._socket.setblocking(False)
            request = Connect(0, 0, client._session_timeout, 0, bytes(16), False)
            response, _ = super()._invoke(client.attempt_timeout_s, request)
            self._submit(CloseInstance, client.attempt_timeout_s, 1)
        except (OSError, kazoo_errors.KazooException, KazooTimeoutError):
            return False
        return bool(response.time_out > 0)


class Client(KazooClient):  # type: ignore[misc]
    """A kazoo client that, after authenticating once, retries failed authentication in the same session.

    If authentication keeps failing for the duration of the session timeout, the client abandons the session, so that
    ZooKeeper deletes its ephemeral znodes. It also abandons the session if servers reject it after that time, but grant
    new sessions.

    See docs/decisions/24-repeat-later-logins.rst.

    Args:
        hosts: value of ``zookeeper.connect``.
        session_timeout_s: requested session timeout in seconds.
        security: TLS and authentication settings.
        arguments: additional arguments for ``KazooClient``.

    Attributes:
        is_rejected: whether ZooKeeper rejected the first authentication; the client does not reconnect after that.
        rounds: number of passes through the server list since the last successful connection.
        resolved: host name, address and port of each server, by host and port in ``zookeeper.connect``.
        login_error: error of the last failed authentication or TLS handshake; empty after successful authentication.
        login_remedy: what to check after ``login_error``.
        granted_session_timeout_s: negotiated session timeout of the current or last connection, in seconds.
        is_logging_in: whether a connection is being established. Used only by kazoo's connection thread.
    """

    def __init__(self, hosts: str, session_timeout_s: float, security: ZooKeeperSecurity, **arguments: Any) -> None:
        self.is_rejected = False
        self.login_error = ""
        self.login_remedy = _LOGIN_REMEDY
        self.is_logging_in = False
        self._has_logged_in = False
        self._failing_since = math.inf
        self._has_abandoned = False  # whether the session was abandoned since the last successful authentication
        self._state_after_login = KeeperState.CONNECTED
        self._disconnected_at = math.inf
        self._log = get_logger("zkconsumer.zookeeper")
        arguments |= security.client_arguments()
        self.granted_session_timeout_s = session_timeout_s
        self.rounds = 0
        self.resolved: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
        super().__init__(hosts, timeout=session_timeout_s, handler=_Handler(security.tls, self), **arguments)
        self._connection = _Connection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=arguments.get("sasl_options")
        )

    @property
    def attempt_timeout_s(self) -> float:
        """Connection timeout per server, in seconds: half the session timeout, divided by the number of servers.

        kazoo waits for the whole session timeout, so a single unresponsive server would let the session expire. The
        timeout grows with each round; otherwise, the client could never connect to a large ensemble of slow servers.
        """
        share = max(1, self.rounds) / max(1, sum(map(len, self.resolved.values())))
        return self.granted_session_timeout_s / 2 * min(1.0, share)

    @property
    def has_outlived_session(self) -> bool:
        """Whether the client has been disconnected for so long that a serving ensemble has expired its session."""
        return time.monotonic() - self._disconnected_at > self.granted_session_timeout_s

    def on_session_rejected(self, endpoint: str) -> Exception:
        """Return the exception that makes kazoo open a new session, for which it forgets the last seen transaction."""
        self._log.warning("zookeeper_session_rejected", endpoint=endpoint, session_id=f"{self._session_id:#x}")
        error: Exception = kazoo_errors.SessionExpiredError("the server rejected the session")
        return error

    def _session_callback(self, state: KeeperState) -> None:
        if self.is_logging_in and state in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._state_after_login = state
            return
        if state != KeeperState.CONNECTING:  # connected, or without a session
            self._disconnected_at = math.inf
        elif self._state in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._disconnected_at = time.monotonic()
        super()._session_callback(state)

    def on_login(self) -> None:
        """Report the connection as usable, because authentication succeeded."""
        self.login_error, self._has_logged_in, self.rounds = "", True, 0
        self._failing_since, self._disconnected_at, self._has_abandoned = math.inf, math.inf, False
        super()._session_callback(self._state_after_login)

    def on_login_failure(self, endpoint: str, error: Exception) -> Any:
        """Return the exception that makes kazoo retry, give up or abandon the session after failed authentication."""
        text = (
            f"{error}: {error.__cause__}"
            if error.__cause__
            else str(error) or f"authentication was rejected ({type(error).__name__})"
        )
        is_closed = isinstance(error.__cause__, kazoo_errors.ConnectionDropped)
        is_new, self.login_error = text != self.login_error, text
        self.login_remedy = error.remedy if isinstance(error, RejectedError) else _LOGIN_REMEDY
        if not self._has_logged_in:
            self.is_rejected = not is_closed  # a closed connection may mean that the server is restarting
            return kazoo_errors.ConnectionDropped(text) if is_closed else kazoo_errors.AuthFailedError(text)
        if is_new:
            self._log.warning("zookeeper_login_failed", endpoint=endpoint, error=text)
        self._failing_since = min(self._failing_since, time.monotonic())
        if time.monotonic() - self._failing_since > self._session_timeout / 1000 and not self._has_abandoned:
            self._has_abandoned = True
            return kazoo_errors.SessionExpiredError(text)
        return kazoo_errors.ConnectionDropped(text)


__all__ = ["Client"]
