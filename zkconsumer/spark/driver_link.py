"""The connection between a planning process and the driver listener, on the driver's host.

The driver listener reports finished batches, which the planning process would otherwise learn at the next trigger, and
the number of executor cores. The planning process reports which of these batches it has committed, and how many
records have been skipped. Messages are JSON objects, one per line. Without the connection, which Spark Connect does not
have, the planning process works as well, but later.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.log import get_logger
from zkconsumer.spark.keyed_server import LOOPBACK, KeyedServer, ServerAddress, messages, shut_down, to_line

_THREAD_NAME = "zkconsumer-driver-link"
#: Maximum seconds to connect, to identify, and to send a message.
_TIMEOUT = 5.0


class PlannerConnections:
    """The driver's end: accepts the connections of planning processes.

    Args:
        on_message: called with the consumer id of a planning process and each of its messages, by one thread for each
            connection.
    """

    def __init__(self, on_message: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_message = on_message
        self._lock = threading.Lock()
        self._sockets: dict[str, socket.socket] = {}
        self._greeting: dict[str, Any] = {}
        self._server = KeyedServer(self._receive, host=LOOPBACK, bind=LOOPBACK, name=_THREAD_NAME, timeout_s=_TIMEOUT)
        self.address = self._server.address

    def start(self) -> None:
        """Start the listening thread."""
        self._server.start()

    def send(self, consumer_id: str, message: Mapping[str, Any]) -> None:
        """Send a message to a planning process, if it is connected."""
        with self._lock:
            self._send(consumer_id, message)

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Send a message to all planning processes, and at once to each that connects later."""
        with self._lock:
            self._greeting.update(message)
            for consumer_id in list(self._sockets):
                self._send(consumer_id, message)

    def close(self) -> None:
        """Close the port and all connections, and wait for the threads."""
        self._server.close()

    def _receive(self, connection: socket.socket) -> None:
        """Handle the messages of a planning process. The first one is its consumer id."""
        received = messages(connection)
        consumer_id = next(received, None)
        if consumer_id is None:
            return
        _limit_send_time(connection)
        with self._lock:
            self._sockets[consumer_id] = connection
            self._send(consumer_id, self._greeting)
        try:
            for message in received:
                self._on_message(consumer_id, message)
        finally:
            with self._lock:
                if self._sockets.get(consumer_id) is connection:
                    del self._sockets[consumer_id]

    def _send(self, consumer_id: str, message: Mapping[str, Any]) -> None:
        connection = self._sockets.get(consumer_id)
        if connection is not None and not _sent(connection, message):
            del self._sockets[consumer_id]


class DriverLink:
    """The planning process's end. One thread receives the messages of the driver.

    Args:
        consumer_id: identifies the planning process.
        cores: number of executor cores until the driver reports another one.
        on_finished: called by the thread with the offset of a finished batch; returns whether it has been committed.

    Attributes:
        cores: number of executor cores.
    """

    def __init__(self, consumer_id: str, cores: int, on_finished: Callable[[dict[str, Any]], bool]) -> None:
        self.cores = cores
        self._consumer_id = consumer_id
        self._on_finished = on_finished
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=_THREAD_NAME, daemon=True)

    def connect(self, address: ServerAddress) -> None:
        """Connect to the driver; if it is unreachable, only log a warning."""
        try:
            connection = address.connect(_TIMEOUT)
        except OSError as error:
            _log_unreachable(repr(error))
            return
        _limit_send_time(connection)
        if _sent(connection, self._consumer_id):
            self._socket = connection
            self._thread.start()
        else:
            connection.close()
            _log_unreachable("the connection was closed")

    def send(self, **message: Any) -> None:
        """Send a message to the driver, if it is connected."""
        with self._lock:
            if self._socket is not None:
                _sent(self._socket, message)

    def close(self) -> None:
        """Close the connection, and wait for the thread."""
        self._is_closing = True
        if self._socket is not None:
            shut_down(self._socket)
            self._socket.close()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        assert self._socket is not None
        is_accepted = False
        with contextlib.suppress(OSError):
            for message in messages(self._socket):
                is_accepted = True
                self.cores = int(message.get("cores", self.cores))
                if "finished" in message and self._on_finished(message["finished"]):
                    self.send(committed=message["number"])
        if not (is_accepted or self._is_closing):
            _log_unreachable("the listener belongs to another application, or has been closed")


def _sent(connection: socket.socket, message: Any) -> bool:
    """Send a message, or end the connection, because a part of the message may have been sent."""
    try:
        connection.sendall(to_line(message))
    except OSError:
        shut_down(connection)
        return False
    return True


def _limit_send_time(connection: socket.socket) -> None:
    """Let sending fail after a timeout. ``settimeout`` would also apply to the thread that receives."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_TIMEOUT), 0))


def _log_unreachable(error: str) -> None:
    get_logger("zkconsumer.spark").warning("driver_listener_unreachable", error=error)
