"""Connection: kazoo's client, with a deadline for each call and the errors of this package.

Calls may be made by any thread. Only raw watches are used: kazoo's recipes drop events, start threads and block its own
(python-zk/kazoo#218, #257).
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from zkconsumer.errors import (
    AuthenticationError,
    ConfigurationError,
    OwnershipLostError,
    RetriableError,
    ZooKeeperUnavailableError,
)
from zkconsumer.zookeeper.security import ZooKeeperSecurity

#: kazoo's log; it would show logins as it sends them.
_kazoo_log = logging.getLogger("zkconsumer.zookeeper.kazoo")


def _hide_logins(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple("(a login)" if type(a).__name__ in ("Auth", "SASL") else a for a in record.args)
    return True


_kazoo_log.addFilter(_hide_logins)

_CONNECTION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    KazooTimeoutError,
)


class NodeExists(RetriableError):
    """The znode to be created is there."""


class NodeMissing(RetriableError):
    """The znode, or its parent, is not there."""


class BadVersion(RetriableError):
    """The znode has been written since it was read."""


class Connection:
    """A client of kazoo, the wait for its results, and their errors.

    Args:
        hosts: ``zookeeper.connect``: hosts with commas and an optional chroot at the end.
        session_timeout: seconds offered to the server.
        call_timeout: seconds for each call.
    """

    def __init__(self, hosts: str, *, session_timeout: float, call_timeout: float, security: ZooKeeperSecurity) -> None:
        self.hosts = hosts
        self._timeout = call_timeout
        self._is_answered = False  # set by each answered call, cleared by the lease thread
        try:
            self.client = KazooClient(
                hosts,
                timeout=session_timeout,
                connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},  # kazoo's is 60 s
                logger=_kazoo_log,
                **security.client_arguments(),
            )
        except ValueError as error:
            raise ConfigurationError(f"zookeeper.connect = {hosts!r}: {error}") from error

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made now."""
        return bool(self.client.state == KazooState.CONNECTED)

    def connected_client(self) -> Any:
        """Return the client, so that no request is queued for a connection that may come much later.

        Raises:
            ZooKeeperUnavailableError: it is not connected.
        """
        if not self.is_connected:
            raise self.not_connected_error()
        return self.client

    def wait(self, result: Any, path: str = "") -> Any:
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
            raise self.access_denied_error(path) from error
        except kazoo_errors.AuthFailedError as error:
            raise self.login_refused_error() from error
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

    def take_answered(self) -> bool:
        """Return whether a call has been answered since the last call of this method."""
        is_answered, self._is_answered = self._is_answered, False
        return is_answered

    def drop(self) -> None:
        """Shut the socket down; kazoo then connects to the next server."""
        connection = self.client._connection._socket
        if connection is not None:
            try:
                # An SSLSocket's own method also takes away the TLS state, which kazoo's thread may be using.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                pass

    # ---- errors ----

    def not_connected_error(self) -> ZooKeeperUnavailableError:
        """Return the error for a call that cannot be made now."""
        return ZooKeeperUnavailableError(f"ZooKeeper at {self.hosts!r} is not connected")

    def login_refused_error(self) -> AuthenticationError:
        """Return the error for a login that was refused."""
        return AuthenticationError(
            f"ZooKeeper at {self.hosts!r} refuses the login; check zookeeper.sasl.* and zookeeper.auth.digest"
        )

    def access_denied_error(self, path: str) -> AuthenticationError:
        """Return the error for a znode whose ACL does not allow a request."""
        return AuthenticationError(
            f"ZooKeeper at {self.hosts!r} does not allow {path or 'this'}: an ACL keeps it for others. Give this "
            "member their login (zookeeper.sasl.*, zookeeper.auth.digest), or have them open it"
        )
