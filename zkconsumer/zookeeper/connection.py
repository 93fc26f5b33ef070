"""Connection: a kazoo client whose calls have a deadline and raise this package's exceptions.

Only raw watches are used: kazoo's recipes drop events, start threads and block kazoo's own threads
(python-zk/kazoo#218, #257).
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from zkconsumer.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    GroupAuthorizationError,
    OwnershipLostError,
    RetriableError,
    ZooKeeperUnavailableError,
)
from zkconsumer.log import KAZOO
from zkconsumer.message import Endpoint
from zkconsumer.zookeeper.kazoo_client import Client
from zkconsumer.zookeeper.security import ZooKeeperSecurity

#: kazoo's logger. kazoo logs each request, including any credentials, which ``_hide_credentials`` masks.
_kazoo_log = logging.getLogger(KAZOO)


def _hide_credentials(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple("(credentials)" if type(a).__name__ in ("Auth", "SASL") else a for a in record.args)
    return True


_kazoo_log.addFilter(_hide_credentials)

_CONNECTION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    KazooTimeoutError,
)


class NodeExists(RetriableError):
    """The znode to create already exists."""


class NodeMissing(RetriableError):
    """The znode or its parent does not exist."""


class BadVersion(RetriableError):
    """The znode does not have the expected version."""


class Connection:
    """A kazoo client with a deadline for each call. Thread-safe.

    Args:
        hosts: value of ``zookeeper.connect``: comma-separated ``host:port`` pairs with an optional chroot at the end.
        session_timeout_s: requested session timeout in seconds.
        call_timeout_s: maximum seconds to wait for the result of a call.
        security: TLS and authentication settings.
    """

    def __init__(
        self, hosts: str, *, session_timeout_s: float, call_timeout_s: float, security: ZooKeeperSecurity
    ) -> None:
        self.hosts = hosts
        self._timeout_s = call_timeout_s
        self._has_response = False  # set whenever a call completes, cleared by the lease thread
        try:
            self.client = Client(
                hosts,
                session_timeout_s,
                security,
                # kazoo's default for max_delay is 60 s.
                connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},
                logger=_kazoo_log,
            )
        except ValueError as error:
            raise ConfigurationError(
                "zookeeper.connect must be comma-separated host:port pairs with an optional chroot at the end "
                f"(h1:2181,h2:2181/kafka) and ports between 1 and 65535, got {hosts!r}"
            ) from error

    @property
    def session_timeout_s(self) -> float:
        """Negotiated session timeout of the current or last connection, in seconds."""
        return self.client.granted_session_timeout_s

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected to a server."""
        return bool(self.client.state == KazooState.CONNECTED)

    @property
    def server(self) -> str:
        """Address and port of the connected server; empty if the client is not connected."""
        connection = self.client._connection._socket
        try:
            address, port, *_ = connection.getpeername() if connection is not None else ("", 0)
        except OSError:
            return ""
        return str(Endpoint(address, port)) if address else ""

    def connected_client(self) -> Any:
        """Return the kazoo client, if it is connected.

        A disconnected kazoo client would queue requests, and send them when the connection is re-established.

        Raises:
            ZooKeeperUnavailableError: the client is not connected.
        """
        if not self.is_connected:
            raise self.not_connected_error()
        return self.client

    def wait(self, result: Any, path: str = "") -> Any:
        """Wait for the result of an asynchronous kazoo call on ``path``, and return it.

        Raises:
            NodeExists, NodeMissing, BadVersion: a precondition of the request failed.
            AuthorizationError: the znode's ACL denies the request.
            AuthenticationError: authentication failed.
            OwnershipLostError: the session expired.
            ZooKeeperUnavailableError: the request failed for another reason, or the response did not arrive in time.
        """
        try:
            return result.get(timeout=self._timeout_s)
        except kazoo_errors.NodeExistsError as error:
            raise NodeExists(str(error) or f"znode {path} already exists") from error
        except kazoo_errors.NoNodeError as error:
            raise NodeMissing(str(error) or f"znode {path} or its parent does not exist") from error
        except kazoo_errors.BadVersionError as error:
            raise BadVersion(str(error) or f"znode {path} was modified concurrently") from error
        except kazoo_errors.NoAuthError as error:
            raise self.access_denied_error(path) from error
        except (kazoo_errors.AuthFailedError, kazoo_errors.SessionClosedRequireSaslError) as error:
            raise self.authentication_error() from error
        except _CONNECTION_ERRORS as error:  # ConnectionClosedError is a subclass of SessionExpiredError
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self.hosts!r} is unreachable or did not respond within {self._timeout_s:g} s"
            ) from error
        except kazoo_errors.SessionExpiredError as error:
            raise OwnershipLostError(
                "the ZooKeeper session expired; consumers rejoin their group automatically"
            ) from error
        except kazoo_errors.KazooException as error:
            raise ZooKeeperUnavailableError(f"request to ZooKeeper at {self.hosts!r} failed: {error!r}") from error
        finally:
            if result.ready():
                self._has_response = True

    def poll_response(self) -> bool:
        """Return whether any call completed, successfully or not, since this method was last called."""
        has_response, self._has_response = self._has_response, False
        return has_response

    def drop(self) -> None:
        """Shut down the socket, so that kazoo reconnects to the next server with the same session."""
        connection = self.client._connection._socket
        if connection is not None:
            try:
                # Do not call SSLSocket.shutdown(): it also discards the TLS state, which kazoo's thread may be using.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                pass

    # ---- errors ----

    def not_connected_error(self) -> ZooKeeperUnavailableError:
        """Return the exception for a call while the client is not connected."""
        if self.client.login_error:
            detail = f"the last authentication failed: {self.client.login_error}"
        else:
            detail = "reconnecting in the background; retry later"
        return ZooKeeperUnavailableError(f"not connected to ZooKeeper at {self.hosts!r}; {detail}")

    def authentication_error(self) -> AuthenticationError:
        """Return the exception for failed authentication."""
        return AuthenticationError(
            f"authentication with ZooKeeper at {self.hosts!r} failed"
            + (f": {self.client.login_error}" if self.client.login_error else "")
            + f"; {self.client.login_remedy}"
        )

    def access_denied_error(self, path: str) -> AuthorizationError:
        """Return the exception for a request that the ACL of znode ``path`` denies."""
        kind = GroupAuthorizationError if path.startswith("/consumers/") else AuthorizationError
        znode = f"znode {path}" if path else "a znode"
        return kind(
            f"access to {znode} was denied by its ACL (ZooKeeper at {self.hosts!r}); configure credentials that the "
            "ACL permits (zookeeper.sasl.* or zookeeper.auth.digest)"
        )
