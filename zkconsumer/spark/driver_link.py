"""The connection of a planning process or a sink to the driver listener. All of them run on the driver's host.

The driver listener reports the number of executor cores and the finished batches. Without these reports, the planning
process would detect a finished batch only at the next trigger. The planning process reports which of these batches it
committed, how many records were skipped, the current brokers, its state while there is nothing to read, and with Spark
4.0 and 4.1 its state when a batch was planned. A sink reports its metrics when it commits a batch. Messages are JSON
objects, one per line. Without the connection, for example with Spark Connect, the planning process works, but commits
later.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.log import get_logger
from zkconsumer.net.connection_threads import shut_down
from zkconsumer.spark.keyed_server import LOOPBACK, KeyedServer, ServerAddress, messages, to_line
from zkconsumer.threads import OwnedThread

_THREAD_NAME = "zkconsumer-driver-link"
#: Maximum seconds to connect, to authenticate, and to send a message.
_TIMEOUT_S = 5.0
#: Maximum number of queued messages per connection.
_MAX_QUEUED = 100


class _Outbox:
    """Sends messages over a connection in a separate thread, so that callers do not block if the receiver hangs.

    The connection is closed if the queue is full, or if a message cannot be sent in time, because a part of the message
    may have been sent.

    Args:
        timeout_s: maximum seconds to send a message.
    """

    def __init__(self, connection: socket.socket, *, timeout_s: float = _TIMEOUT_S) -> None:
        seconds, microseconds = divmod(round(timeout_s * 1_000_000), 1_000_000)
        connection.settimeout(None)  # a timeout would also apply to the receiving thread
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, microseconds))
        self._connection = connection
        self._timeout_s = timeout_s
        self._lines: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        self._thread = OwnedThread(self._run, f"{_THREAD_NAME}-sender", _log_crash)

    def start(self) -> None:
        """Start the sender thread."""
        self._thread.start()

    def put(self, message: Any) -> None:
        """Queue a message for sending. If the queue is full, close the connection."""
        self._put(to_line(message))

    def close(self) -> None:
        """Send the queued messages, and wait for the thread."""
        self._put(None)
        self._thread.join(self._timeout_s)

    def _put(self, line: bytes | None) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            shut_down(self._connection)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the receiver disconnected, or hangs
            while (line := self._lines.get()) is not None:
                self._connection.sendall(line)
        shut_down(self._connection)


class PlannerConnections:
    """The driver's side of the link: accepts connections from planning processes.

    Args:
        on_message: callback for each message, called with the consumer id of the planning process and the message, in
            the connection's thread.
    """

    def __init__(self, on_message: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_message = on_message
        self._lock = threading.Lock()  # guards _outboxes and _greeting
        self._outboxes: dict[str, _Outbox] = {}
        self._greeting: dict[str, Any] = {}
        self._server = KeyedServer(self._receive, host=LOOPBACK, bind=LOOPBACK, name=_THREAD_NAME, timeout_s=_TIMEOUT_S)
        self.address = self._server.address

    def start(self) -> None:
        """Start the listening thread."""
        self._server.start()

    @property
    def connected(self) -> frozenset[str]:
        """Consumer ids of the connected planning processes."""
        with self._lock:
            return frozenset(self._outboxes)

    def send(self, consumer_id: str, message: Mapping[str, Any]) -> None:
        """Send a message to a planning process, if it is connected. Does not block."""
        with self._lock:
            outbox = self._outboxes.get(consumer_id)
        if outbox is not None:
            outbox.put(message)

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Send a message to all planning processes, including processes that connect later. Does not block."""
        with self._lock:
            self._greeting.update(message)
            for outbox in self._outboxes.values():
                outbox.put(message)

    def close(self) -> None:
        """Close the port and all connections, and wait for the threads."""
        self._server.close()

    def _receive(self, connection: socket.socket) -> None:
        """Handle the messages of a planning process. The first message is its consumer id."""
        received = messages(connection)
        consumer_id = next(received, None)
        if consumer_id is None:
            return
        outbox = _Outbox(connection)
        outbox.start()
        with self._lock:
            self._outboxes[consumer_id] = outbox
            outbox.put(self._greeting)
        try:
            for message in received:
                self._on_message(consumer_id, message)
        finally:
            with self._lock:
                if self._outboxes.get(consumer_id) is outbox:
                    del self._outboxes[consumer_id]
            outbox.close()


class DriverLink:
    """The planning process's side of the link. One thread receives messages from the driver.

    Args:
        consumer_id: consumer id of the planning process.
        cores: initial number of executor cores; the driver may report a new number.
        on_finished: callback for finished batches, called in the receiving thread with the batch offset; returns
            whether the batch was committed.
        timeout_s: maximum seconds to connect, to send a message, and for ``close`` to wait for each thread.

    Attributes:
        cores: number of executor cores.
    """

    def __init__(
        self,
        consumer_id: str,
        cores: int,
        on_finished: Callable[[dict[str, Any]], bool],
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.cores = cores
        self._timeout_s = timeout_s
        self._consumer_id = consumer_id
        self._on_finished = on_finished
        self._socket: socket.socket | None = None
        self._outbox: _Outbox | None = None
        self._is_closing = False
        self._thread = OwnedThread(self._run, _THREAD_NAME, _log_crash)

    def connect(self, address: ServerAddress) -> None:
        """Connect to the driver; log a warning if it is unreachable."""
        try:
            connection = address.connect(self._timeout_s)
        except OSError as error:
            _log_unreachable(repr(error))
            return
        self._socket, self._outbox = connection, _Outbox(connection, timeout_s=self._timeout_s)
        self._outbox.start()
        self._outbox.put(self._consumer_id)
        self._thread.start()

    def send(self, **message: Any) -> None:
        """Send a message to the driver, if it is connected. Does not block."""
        if self._outbox is not None:
            self._outbox.put(message)

    def close(self) -> None:
        """Send the queued messages, close the connection, and wait for the threads."""
        self._is_closing = True
        if self._outbox is not None:
            self._outbox.close()
        if self._socket is not None:
            shut_down(self._socket)
            self._socket.close()
        self._thread.join(self._timeout_s)

    def _run(self) -> None:
        assert self._socket is not None
        is_accepted = False
        with contextlib.suppress(OSError):  # the driver exited
            for message in messages(self._socket):
                is_accepted = True
                self._handle(message)
        if not (is_accepted or self._is_closing):
            _log_unreachable("the listener belongs to another application, or was closed")

    def _handle(self, message: Any) -> None:
        try:
            self.cores = int(message.get("cores", self.cores))
            if "finished" in message and self._on_finished(message["finished"]):
                self.send(committed=message["number"])
        except Exception as error:  # continue with the next message
            _log_crash(error)


def send_once(address: ServerAddress, sender: str, message: Mapping[str, Any]) -> None:
    """Send a message to the driver, and wait until it was handled; log a warning if the driver is unreachable.

    Args:
        address: address of the driver listener.
        sender: name of the connection, instead of the consumer id of a planning process.
        message: the message.
    """
    try:
        with address.connect(_TIMEOUT_S) as connection:
            connection.sendall(to_line(sender) + to_line(message))
            connection.shutdown(socket.SHUT_WR)
            if not list(messages(connection)):  # the listener closes the connection after it handled the message
                raise ConnectionError("the listener belongs to another application, or was closed")
    except OSError as error:
        _log_unreachable(repr(error))


def _log_crash(error: BaseException) -> None:
    get_logger("zkconsumer.spark").error("driver_message_failed", exc_info=error)


def _log_unreachable(error: str) -> None:
    get_logger("zkconsumer.spark").warning("driver_listener_unreachable", error=error)
