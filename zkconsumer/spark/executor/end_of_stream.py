"""Reports the end of the stream from the task whose decoder detected it to the planning process.

Spark has no channel from tasks to a Python data source. The planning process therefore listens on a TCP port of the
driver's host, and the task connects to it.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import socketserver
import threading
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import BrokerUnavailableError

#: Maximum seconds to wait for a connection, a request or a response.
_TIMEOUT = 10.0

_KEY_BYTES = 32
_ACKNOWLEDGEMENT = b"ok"


@dataclass(frozen=True)
class EndSignal:
    """Address and secret key of an ``EndListener``; pickled with each task."""

    host: str
    port: int
    key: bytes

    def send(self) -> None:
        """Report the end of the stream, and wait for the acknowledgement.

        Raises:
            BrokerUnavailableError: the listener is unreachable, or belongs to another query.
        """
        try:
            with socket.create_connection((self.host, self.port), _TIMEOUT) as connection:
                connection.sendall(self.key)
                if connection.recv(len(_ACKNOWLEDGEMENT)) != _ACKNOWLEDGEMENT:
                    raise ConnectionError("the listener belongs to another query")
        except OSError as error:
            raise BrokerUnavailableError(
                f"could not report the end of the stream to the driver at {self.host}:{self.port}: {error!r}. If "
                "executors run on other machines, call zkconsumer.spark.register(spark), which sets the driver's host"
            ) from error


class EndListener:
    """Listens for the end of the stream.

    Args:
        host: host name of the driver, as executors resolve it.
        bind: address to listen on; by default the address of ``host``.
    """

    def __init__(self, host: str, bind: str | None = None) -> None:
        key = secrets.token_bytes(_KEY_BYTES)
        received = self._received = threading.Event()

        class Handler(socketserver.StreamRequestHandler):
            timeout = _TIMEOUT

            def handle(self) -> None:
                if hmac.compare_digest(self.rfile.read(_KEY_BYTES), key):
                    received.set()
                    self.wfile.write(_ACKNOWLEDGEMENT)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that time out or disconnect; only tasks have the key."""

        self._server = Server((bind or host, 0), Handler)
        self.signal = EndSignal(host, self._server.server_address[1], key)
        self._thread = threading.Thread(target=self._server.serve_forever, name="zkconsumer-end-of-stream", daemon=True)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

    @property
    def is_received(self) -> bool:
        """Whether a task has reported the end of the stream."""
        return self._received.is_set()

    def close(self) -> None:
        """Stop the listening thread and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
