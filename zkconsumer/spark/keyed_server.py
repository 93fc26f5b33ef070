"""TCP servers on the driver's host whose clients authenticate with a secret key.

Spark has no channel from the planning process to the driver, or from tasks to the planning process. Therefore, the
driver and the planning process each listen on a port, and pass the port and the key to their clients through Spark.
"""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zkconsumer.log import get_logger
from zkconsumer.net.connection_threads import ConnectionThreads, shut_down
from zkconsumer.net.host_names import Address, resolve
from zkconsumer.threads import OwnedThread

LOOPBACK = "127.0.0.1"
_KEY_BYTES = 32
#: Maximum message size in bytes, sufficient for about 100,000 ranges.
_MAX_BYTES = 8 << 20
#: Maximum number of pending connections that the server has not accepted yet.
_BACKLOG = 128
#: Timeout of ``accept`` and pause after an error, in seconds. On some systems, ``close`` does not interrupt ``accept``.
_ACCEPT_INTERVAL_S = 0.5


@dataclass(frozen=True)
class ServerAddress:
    """Address and secret key of a ``KeyedServer``; pickled and sent to its clients."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to the server, send the key, and return the connection.

        Raises:
            OSError: the server is unreachable.
        """
        deadline = time.monotonic() + timeout_s
        lookup = resolve(self.host, self.port)
        try:
            addresses = lookup.result(timeout_s)
        except TimeoutError as error:
            lookup.cancel()
            raise TimeoutError(f"the host name {self.host!r} was not resolved within {timeout_s:g} s") from error
        failure = OSError(f"the host name {self.host!r} has no address")
        for number, address in enumerate(addresses):
            try:  # divide the remaining time among the addresses, because one may not respond
                return self._connect_to(address, (deadline - time.monotonic()) / (len(addresses) - number))
            except OSError as error:
                failure = error
        raise failure

    def _connect_to(self, address: Address, timeout_s: float) -> socket.socket:
        family, kind, protocol, _, sockaddr = address
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max(0.001, timeout_s))
            connection.connect(sockaddr)
            connection.sendall(self.key)
        except OSError:
            connection.close()
            raise
        return connection


class KeyedServer:
    """Serves each authenticated connection in its own thread, and closes all other connections.

    Args:
        serve: function that serves one connection; the connection is closed when it returns.
        host: host name to which clients connect.
        bind: address to listen on.
        name: name of the listening thread, and prefix of the other thread names.
        timeout_s: maximum seconds to receive the key, for each ``send`` and ``recv`` in ``serve``, and for ``close`` to
            wait for the threads.
    """

    def __init__(
        self, serve: Callable[[socket.socket], None], *, host: str, bind: str, name: str, timeout_s: float
    ) -> None:
        self._serve = serve
        self._timeout_s = timeout_s
        self._is_closing = threading.Event()
        self._connections = ConnectionThreads(_log_crash)
        self._listening = socket.create_server((bind, 0), backlog=_BACKLOG)
        self._listening.settimeout(_ACCEPT_INTERVAL_S)
        self.address = ServerAddress(host, self._listening.getsockname()[1], secrets.token_bytes(_KEY_BYTES))
        self._thread = OwnedThread(self._listen, name, _log_crash)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

    def close(self) -> None:
        """Close the port, let ``serve`` process the data that was already received, and wait for the threads."""
        if self._thread.is_alive:  # false before ``start``, and in a forked process
            deadline = time.monotonic() + self._timeout_s
            self._is_closing.set()
            shut_down(self._listening)  # closes the port even if a forked process has a copy of the socket
            self._thread.join(self._timeout_s)
            self._connections.close(deadline)
        self._listening.close()

    def _listen(self) -> None:
        numbers = itertools.count()
        while not self._is_closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:  # closing, or too many open files
                self._is_closing.wait(_ACCEPT_INTERVAL_S)
                continue
            try:
                self._connections.start(
                    connection, partial(self._run, connection), f"{self._thread.name}-{next(numbers)}"
                )
            except RuntimeError as error:  # too many threads; the client may reconnect
                _log_crash(error)
                connection.close()

    def _run(self, connection: socket.socket) -> None:
        try:
            with connection:
                if self._has_key(connection):
                    connection.settimeout(self._timeout_s)
                    self._serve(connection)
        except OSError:
            pass  # the client disconnected, or does not respond

    def _has_key(self, connection: socket.socket) -> bool:
        """Return whether the client sends the complete, correct key before the timeout."""
        deadline = time.monotonic() + self._timeout_s
        received = b""
        while len(received) < _KEY_BYTES:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            data = connection.recv(_KEY_BYTES - len(received))
            if not data:
                return False
            received += data
        return hmac.compare_digest(received, self.address.key)


def _log_crash(error: BaseException) -> None:
    get_logger("zkconsumer.spark").error("query_message_failed", exc_info=error)


def to_line(message: Any) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


def messages(connection: socket.socket) -> Iterator[Any]:
    """Yield messages until the connection is closed. An incomplete last line is ignored.

    Raises:
        ValueError: a line is too long, or is not JSON.
        OSError: the connection failed.
    """
    with connection.makefile("rb") as lines:
        while line := lines.readline(_MAX_BYTES):
            if line.endswith(b"\n"):
                yield json.loads(line)
            elif len(line) == _MAX_BYTES:
                raise ValueError(f"message exceeds the maximum size of {_MAX_BYTES} bytes")
