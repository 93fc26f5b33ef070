"""HealthServer: serves a consumer's health over HTTP, for probes by Kubernetes, load balancers and monitoring tools."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol

from zkconsumer.argument_checks import check_attribute, check_integer, check_type
from zkconsumer.errors import ClosedError, ConfigurationError
from zkconsumer.health import Health, HealthState
from zkconsumer.log import get_logger
from zkconsumer.net.connection_threads import ConnectionThreads, shut_down
from zkconsumer.threads import OwnedThread

#: Timeout in seconds for each read from a client's socket, and for sending the response.
_SOCKET_TIMEOUT_S = 5.0

#: Back-off in seconds after ``accept`` fails, for example because too many files are open.
_ACCEPT_BACKOFF_S = 0.5

#: Maximum seconds to wait for the threads to terminate when the server is closed.
_JOIN_TIMEOUT_S = 2.0

#: Highest TCP port.
_MAX_PORT = 65_535

#: Health states for which a path returns status 200, by path; it returns status 503 for all other states.
_OK_STATES: Mapping[str, frozenset[HealthState]] = {
    "/live": frozenset(HealthState) - {HealthState.FAILED},
    "/ready": frozenset({HealthState.HEALTHY, HealthState.REBALANCING}),
    "/health": frozenset(HealthState),
}


class HealthSource(Protocol):
    """An object that has a ``health`` property, such as a consumer, a ``StreamsApp`` or a ``QueryListener``."""

    @property
    def health(self) -> Health:
        """Current health. Several threads may read it concurrently."""


class HealthServer:
    """Serves the health of a consumer over HTTP.

    ::

        with HealthServer(consumer, port=8080), consumer:
            [stream] = consumer.create_message_streams({"orders": 1})["orders"]

    ===========  ============================================================
    path         status
    ===========  ============================================================
    ``/live``    503 if the state is ``failed``, otherwise 200
    ``/ready``   200 if the state is ``healthy`` or ``rebalancing``, otherwise 503
    ``/health``  200
    ===========  ============================================================

    The body is a JSON object with ``state`` and ``reasons``. Each reason has ``code``, ``state``, ``since`` (ISO 8601),
    ``message`` and ``partitions``, such as ``["orders-3"]``. If the health cannot be read, the status is 503, and the
    body contains ``error``. Only GET and HEAD requests are supported.

    The methods may be called from any thread.

    Args:
        source: consumer or application whose ``health`` is read for each request.
        port: TCP port; 0 selects a free port when the server is started.
        host: address to listen on; ``::`` for IPv6.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range.
    """

    def __init__(self, source: HealthSource, port: int = 8080, host: str = "0.0.0.0") -> None:
        check_attribute("source", source, "health", "a consumer, a StreamsApp or a QueryListener")
        check_type("host", host, str, "a str")
        self._source = source
        self._host = host
        self._port = check_integer("port", port, 0, _MAX_PORT)
        self._server: _Server | None = None
        self._log = get_logger("zkconsumer.health")
        self._last_error = ""  # last logged error; written by connection threads

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The TCP port. If the argument ``port`` was 0, this is 0 until the server is started."""
        return self._server.server_address[1] if self._server is not None else self._port

    def start(self) -> None:
        """Listen on the port, and serve requests in other threads.

        Raises:
            ConfigurationError: the server cannot listen on the port, for example because the port is in use.
            ClosedError: the server was already started.
        """
        if self._server is not None:
            raise ClosedError("a HealthServer can be started only once; create a new one")
        try:
            self._server = _Server(self._host, self._port, self._respond, self._log_failure)
        except OSError as error:
            raise ConfigurationError(
                f"the health server could not listen on {self._host!r}, port {self._port}: {error.strerror}; check the "
                "arguments host and port"
            ) from error
        self._server.start()

    def close(self) -> None:
        """Stop listening, and wait a limited time for the threads to terminate. Further calls have no effect."""
        if self._server is not None:
            self._server.close()

    def _respond(self, path: str) -> tuple[HTTPStatus, Mapping[str, object]]:
        """Return the HTTP status and the JSON body for a path."""
        if path not in _OK_STATES:
            return HTTPStatus.NOT_FOUND, {"error": f"unknown path; use one of {', '.join(_OK_STATES)}"}
        try:
            health = self._source.health
            status = HTTPStatus.OK if health.state in _OK_STATES[path] else HTTPStatus.SERVICE_UNAVAILABLE
            content = health.as_json()
        except Exception as error:
            text = repr(error)
            if text != self._last_error:  # log an error once, because probes repeat the request
                self._last_error = text
                self._log_failure(error)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": text}
        self._last_error = ""
        return status, content

    def _log_failure(self, error: BaseException) -> None:
        self._log.error("health_check_failed", error=repr(error), exc_info=error)


class _Server(ThreadingHTTPServer):
    """The HTTP server of a ``HealthServer``. It listens on the port as soon as it is created.

    One thread accepts connections. A separate thread for each connection serves one request.

    Args:
        respond: function that returns the HTTP status and the JSON body for a path.
        on_failure: function that is called with an unexpected exception that a thread raised.
    """

    #: False, so that two processes cannot listen on the same port.
    allow_reuse_port = False

    def __init__(
        self,
        host: str,
        port: int,
        respond: Callable[[str], tuple[HTTPStatus, Mapping[str, object]]],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.respond = respond
        self._on_failure = on_failure
        self._closing = threading.Event()
        self._connections = ConnectionThreads(on_failure)
        self._thread = OwnedThread(self.serve_forever, "zkconsumer-health-server", on_failure)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _RequestHandler)

    def start(self) -> None:
        """Start the thread that accepts connections."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, finish sending responses, and wait a limited time for the threads to terminate."""
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        self._closing.set()
        if self._thread.is_alive:  # false in a forked process
            # Shutting down the socket wakes the thread, which otherwise checks only twice per second whether to stop.
            # It also closes the port if a forked process has a copy of the socket.
            shut_down(self.socket)
            self.shutdown()
            self._thread.join(_JOIN_TIMEOUT_S)
            self._connections.close(deadline)
        self.server_close()

    # ---- called by the thread that accepts connections ----

    def server_bind(self) -> None:
        """Bind the socket. ``HTTPServer`` would also look up a host name, which can block for seconds."""
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; back off after a failure, because an immediate retry would probably fail as well."""
        try:
            return super().get_request()
        except OSError:
            self._closing.wait(_ACCEPT_BACKOFF_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a separate thread. If it cannot be started, the base class closes the connection."""
        serve = partial(self.process_request_thread, request, client_address)
        self._connections.start(request, serve, f"{self._thread.name}-{client_address[1]}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an exception unless it is an I/O error, which is raised, for example, when the client disconnects."""
        del request, client_address
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self._on_failure(error)


class _RequestHandler(BaseHTTPRequestHandler):
    """Handles one HTTP request."""

    server: _Server
    timeout = _SOCKET_TIMEOUT_S
    server_version = "zkconsumer"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the response to a GET or HEAD request."""
        status, content = self.server.respond(self.path.partition("?")[0])
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes repeat their requests every few seconds."""
        del format, args


__all__ = ["HealthServer", "HealthSource"]
