"""TCP servers on the driver's host whose clients authenticate with a secret key.

Spark has no channel from the planning process to the driver, nor from tasks to the planning process. Therefore the
driver and the planning process each listen on a port, and pass the port and the key to their clients through Spark.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.log import get_logger

LOOPBACK = "127.0.0.1"
_KEY_BYTES = 32
#: Maximum bytes of a message: about 100,000 ranges.
_MAX_BYTES = 8 << 20
#: Maximum number of connections that the kernel accepts before the server does.
_BACKLOG = 128
#: Seconds between two checks for ``close`` where shutting down the listening socket does not interrupt ``accept``.
_ACCEPT_INTERVAL = 0.5


@dataclass(frozen=True)
class ServerAddress:
    """Address and secret key of a ``KeyedServer``; pickled with what is sent to its clients."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def connect(self, timeout_s: float) -> socket.socket:
        """Return a new connection, on which the key has been sent.

        Raises:
            OSError: the server is unreachable.
        """
        connection = socket.create_connection((self.host, self.port), timeout_s)
        try:
            connection.sendall(self.key)
        except OSError:
            connection.close()
            raise
        return connection


class KeyedServer:
    """Serves each connection with the right key in a thread of its own; other connections are closed.

    Args:
        serve: called with a connection, which is closed afterwards.
        host: host name for clients.
        bind: address to listen on.
        name: name of the listening thread, and prefix of the names of the other threads.
        timeout_s: maximum seconds to send the key, for each ``send`` and ``recv`` of ``serve``, and for ``close`` to
            wait for the threads.
    """

    def __init__(
        self, serve: Callable[[socket.socket], None], *, host: str, bind: str, name: str, timeout_s: float
    ) -> None:
        self._serve = serve
        self._timeout_s = timeout_s
        self._is_closing = threading.Event()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._lock = threading.Lock()  # of _connections
        self._listening = socket.create_server((bind, 0), backlog=_BACKLOG)
        self._listening.settimeout(_ACCEPT_INTERVAL)
        self.address = ServerAddress(host, self._listening.getsockname()[1], secrets.token_bytes(_KEY_BYTES))
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

    def close(self) -> None:
        """Close the port, let ``serve`` read to the end of what has arrived, and wait for the threads."""
        if self._thread.is_alive():  # false before ``start``, and in a forked process
            deadline = time.monotonic() + self._timeout_s
            self._is_closing.set()
            shut_down(self._listening)  # closes the port also if a forked process has a copy of it
            self._thread.join(self._timeout_s)
            with self._lock:
                connections = dict(self._connections)
            for connection in connections.values():
                shut_down(connection, socket.SHUT_RD)
            for thread in connections:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._listening.close()

    def _listen(self) -> None:
        numbers = itertools.count()
        while not self._is_closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:  # closing, or too many open files
                self._is_closing.wait(_ACCEPT_INTERVAL)
                continue
            name = f"{self._thread.name}-{next(numbers)}"
            thread = threading.Thread(target=self._run, args=(connection,), name=name, daemon=True)
            with self._lock:
                self._connections[thread] = connection
            try:
                thread.start()
            except RuntimeError:  # too many threads; the client may connect again
                get_logger("zkconsumer.spark").error("query_message_failed", exc_info=True)
                self._forget(thread)
                connection.close()

    def _run(self, connection: socket.socket) -> None:
        try:
            with connection:
                if self._has_key(connection):
                    connection.settimeout(self._timeout_s)
                    self._serve(connection)
        except OSError:
            pass  # the client has disconnected, or does not respond
        except Exception:
            get_logger("zkconsumer.spark").error("query_message_failed", exc_info=True)
        finally:
            self._forget(threading.current_thread())

    def _forget(self, thread: threading.Thread) -> None:
        with self._lock:
            del self._connections[thread]

    def _has_key(self, connection: socket.socket) -> bool:
        """Return whether the connection starts with the key; all of it must arrive before the timeout."""
        deadline = time.monotonic() + self._timeout_s
        received = b""
        while len(received) < _KEY_BYTES:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            data = connection.recv(_KEY_BYTES - len(received))
            if not data:
                return False
            received += data
        return hmac.compare_digest(received, self.address.key)


def shut_down(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a connection; a thread that is blocked in it receives the end of the stream or an error."""
    with contextlib.suppress(OSError):  # not connected any more
        connection.shutdown(how)


def to_line(message: Any) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


def messages(connection: socket.socket) -> Iterator[Any]:
    """Yield the messages of a connection until it ends. An incomplete last line is ignored.

    Raises:
        ValueError: a line is too long, or is not JSON.
        OSError: the connection has failed.
    """
    with connection.makefile("rb") as lines:
        while line := lines.readline(_MAX_BYTES):
            if line.endswith(b"\n"):
                yield json.loads(line)
            elif len(line) == _MAX_BYTES:
                raise ValueError(f"message has more than {_MAX_BYTES} bytes")
