"""The connection between a planning process and the driver listener, on the driver's host.

The driver listener reports finished batches, which the planning process would otherwise learn at the next trigger, and
the number of executor cores. The planning process reports which of these batches it has committed, and how many
records have been skipped. Messages are JSON objects, one per line. Without the connection, which Spark Connect does not
have, the planning process works as well, but later.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zkconsumer.log import get_logger

_HOST = "127.0.0.1"
_KEY_BYTES = 32
#: Maximum seconds to connect, to identify, and to send a message.
_TIMEOUT = 5.0


@dataclass(frozen=True)
class LinkAddress:
    """Port and secret key of the driver listener."""

    port: int
    key: bytes


class PlannerConnections:
    """The driver's end: accepts the connections of planning processes.

    Args:
        on_message: called with the consumer id of a planning process and each of its messages, by one thread for each
            connection.
    """

    def __init__(self, on_message: Callable[[str, dict[str, Any]], None]) -> None:
        key = secrets.token_bytes(_KEY_BYTES)
        self._lock = threading.Lock()
        self._sockets: dict[str, socket.socket] = {}
        self._greeting: dict[str, Any] = {}
        links = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = _TIMEOUT

            def handle(self) -> None:
                if not hmac.compare_digest(self.rfile.read(_KEY_BYTES), key):
                    return
                consumer_id = str(json.loads(self.rfile.readline()))
                _limit_send_time(self.connection)
                links._add(consumer_id, self.connection)
                try:
                    for line in self.rfile:
                        on_message(consumer_id, json.loads(line))
                finally:
                    links._remove(consumer_id, self.connection)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that disconnect; only planning processes have the key."""

        self._server = Server((_HOST, 0), Handler)
        self.address = LinkAddress(self._server.server_address[1], key)
        self._thread = threading.Thread(target=self._server.serve_forever, name="zkconsumer-driver-link", daemon=True)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

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
        """Close the port and all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._sockets.values():
                _disconnect(connection)

    def _add(self, consumer_id: str, connection: socket.socket) -> None:
        with self._lock:
            self._sockets[consumer_id] = connection
            self._send(consumer_id, self._greeting)

    def _remove(self, consumer_id: str, connection: socket.socket) -> None:
        with self._lock:
            if self._sockets.get(consumer_id) is connection:
                del self._sockets[consumer_id]

    def _send(self, consumer_id: str, message: Mapping[str, Any]) -> None:
        connection = self._sockets.get(consumer_id)
        if connection is not None and not _sent(connection, message):
            del self._sockets[consumer_id]
            _disconnect(connection)


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
        self._thread = threading.Thread(target=self._run, name="zkconsumer-driver-link", daemon=True)

    def connect(self, address: LinkAddress) -> None:
        """Connect to the driver; if it is unreachable, only log a warning."""
        try:
            self._socket = socket.create_connection((_HOST, address.port), _TIMEOUT)
            self._socket.sendall(address.key + json.dumps(self._consumer_id).encode() + b"\n")
        except OSError as error:
            get_logger("zkconsumer.spark").warning("driver_listener_unreachable", error=repr(error))
            return
        _limit_send_time(self._socket)
        self._thread.start()

    def send(self, **message: Any) -> None:
        """Send a message to the driver, if it is connected."""
        with self._lock:
            if self._socket is not None:
                _sent(self._socket, message)

    def close(self) -> None:
        """Close the connection, and wait for the thread."""
        if self._socket is not None:
            _disconnect(self._socket)
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError), self._socket.makefile("rb") as messages:
            for line in messages:
                message = json.loads(line)
                self.cores = int(message.get("cores", self.cores))
                if "finished" in message and self._on_finished(message["finished"]):
                    self.send(committed=message["number"])


def _sent(connection: socket.socket, message: Mapping[str, Any]) -> bool:
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return False
    return True


def _limit_send_time(connection: socket.socket) -> None:
    """Let sending fail after a timeout. ``settimeout`` would also apply to the thread that receives."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_TIMEOUT), 0))


def _disconnect(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
