"""How a task tells the process that plans that a decoder has seen the end of the stream.

Spark has no way for that; so the one listens where the driver is reachable, and the other calls once.
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

#: Seconds that a caller, or the driver, may be silent.
_TIMEOUT = 10.0

_KEY_BYTES = 32
_HEARD = b"ok"


@dataclass(frozen=True)
class EndSignal:
    """Where to call; travels with each task."""

    host: str
    port: int
    key: bytes

    def tell(self) -> None:
        """Tell it, and wait until it is known.

        Raises:
            BrokerUnavailableError: the driver is not reachable there.
        """
        try:
            with socket.create_connection((self.host, self.port), _TIMEOUT) as connection:
                connection.sendall(self.key)
                if connection.recv(len(_HEARD)) != _HEARD:
                    raise ConnectionError("it does not know this query")
        except OSError as error:
            raise BrokerUnavailableError(
                f"the end of the stream cannot be told to the driver at {self.host}:{self.port}: {error!r}. Where "
                "executors run on other machines, zkconsumer.spark.register(spark) tells the source the driver's name"
            ) from error


class EndListener:
    """Waits for the end of the stream.

    Args:
        host: of the driver, as the executors know it.
        bind: the address to listen at; that of the host by default.
    """

    def __init__(self, host: str, bind: str | None = None) -> None:
        key = secrets.token_bytes(_KEY_BYTES)
        told = self._told = threading.Event()

        class Call(socketserver.StreamRequestHandler):
            timeout = _TIMEOUT

            def handle(self) -> None:
                if hmac.compare_digest(self.rfile.read(_KEY_BYTES), key):
                    told.set()
                    self.wfile.write(_HEARD)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A stranger who is silent or hangs up."""

        self._server = Server((bind or host, 0), Call)
        self.signal = EndSignal(host, self._server.server_address[1], key)
        self._thread = threading.Thread(target=self._server.serve_forever, name="zkconsumer-end-of-stream", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()

    @property
    def is_told(self) -> bool:
        """Whether a task has told it."""
        return self._told.is_set()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
