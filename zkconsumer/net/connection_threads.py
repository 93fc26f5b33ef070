"""ConnectionThreads: serves each accepted connection of a server in its own thread."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from zkconsumer.threads import OwnedThread


class ConnectionThreads:
    """The open connections of a server, and their threads.

    Thread-safe: one thread accepts connections, each connection's thread removes it, and any thread calls ``close``.

    Args:
        on_crash: function that is called in the thread with an exception that a connection's function raised.
    """

    def __init__(self, on_crash: Callable[[BaseException], object]) -> None:
        self._on_crash = on_crash
        self._lock = threading.Lock()  # guards _open
        self._open: dict[socket.socket, OwnedThread] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def start(self, connection: socket.socket, serve: Callable[[], object], name: str) -> None:
        """Call ``serve`` in a new thread. It must close the connection.

        Args:
            name: thread name.

        Raises:
            RuntimeError: the process has too many threads. The caller must close the connection.
        """

        def run() -> None:
            try:
                serve()
            finally:
                self._remove(connection)

        thread = OwnedThread(run, name, self._on_crash)
        with self._lock:
            self._open[connection] = thread
        try:
            thread.start()
        except BaseException:
            self._remove(connection)
            raise

    def close(self, deadline: float) -> None:
        """Let the threads process the data that was already received, and wait for them.

        Args:
            deadline: time (``time.monotonic``) until which to wait.
        """
        with self._lock:
            connections = list(self._open.items())
        for connection, _ in connections:
            shut_down(connection, socket.SHUT_RD)
        for _, thread in connections:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _remove(self, connection: socket.socket) -> None:
        with self._lock:
            del self._open[connection]


def shut_down(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Shut down a connection; a thread that is blocked on it receives the end of the stream or an error."""
    with contextlib.suppress(OSError):  # no longer connected
        connection.shutdown(how)


__all__ = ["ConnectionThreads", "shut_down"]
