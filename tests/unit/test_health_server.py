"""Tests of the HTTP server that reports the health of a consumer."""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal

from zkconsumer import TopicPartition
from zkconsumer.errors import ClosedError, ConfigurationError
from zkconsumer.health import Health, HealthReason, HealthState
from zkconsumer.health_server import HealthServer

PARTITIONS = frozenset({TopicPartition("orders", 10), TopicPartition("orders", 3)})
REASON = HealthReason(HealthState.STALLED, "commit_failed", 1_795_426_206.4, "no response", PARTITIONS)
STALLED = {
    "state": "stalled",
    "reasons": [
        {
            "code": "commit_failed",
            "state": "stalled",
            "since": "2026-11-23T09:30:06Z",
            "message": "no response",
            "partitions": ["orders-3", "orders-10"],
        }
    ],
}


class Source:
    """An object with a health that a test sets."""

    def __init__(self) -> None:
        self.current: Health | Exception = Health()

    def set(self, state: HealthState) -> None:
        self.current = Health.of([HealthReason(state, "x", 0.0, "m")]) if state else Health()

    @property
    def health(self) -> Health:
        if isinstance(self.current, Exception):
            raise self.current
        return self.current


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[HealthServer]:
    with HealthServer(source, port=0, host="127.0.0.1") as started:
        yield started


def request(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> http.client.HTTPResponse:
    """Send a request; return the response, whose content is in ``content``."""
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        response.content = response.read()  # type: ignore[attr-defined]
        return response
    finally:
        connection.close()


def get(server: HealthServer, path: str) -> tuple[int, Any]:
    """Return the status and the JSON object of a path."""
    response = request(server.port, path)
    return response.status, json.loads(response.content)  # type: ignore[attr-defined]


# ---- responses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "live", "ready"),
    [
        (HealthState.HEALTHY, 200, 200),
        (HealthState.REBALANCING, 200, 200),
        (HealthState.STALLED, 200, 503),
        (HealthState.DISCONNECTED, 200, 503),
        (HealthState.FAILED, 503, 503),
    ],
)
def test_status_depends_on_path_and_state(
    state: HealthState, live: int, ready: int, source: Source, server: HealthServer
) -> None:
    source.set(state)

    assert [get(server, path)[0] for path in ("/live", "/ready", "/health")] == [live, ready, 200]
    assert {get(server, path)[1]["state"] for path in ("/live", "/ready", "/health")} == {state.name.lower()}


@pytest.mark.parametrize("path", ["/live", "/ready", "/health", "/health?verbose=1"])
def test_body_has_state_and_reasons(path: str, source: Source, server: HealthServer) -> None:
    assert get(server, path) == (200, {"state": "healthy", "reasons": []})

    source.current = Health.of([REASON])

    assert get(server, path)[1] == STALLED


@pytest.mark.parametrize("path", ["/", "/healthz", "/live/", "/Live"])
def test_other_paths_are_not_found(path: str, server: HealthServer) -> None:
    assert get(server, path) == (404, {"error": "unknown path; use one of /live, /ready, /health"})


@pytest.mark.parametrize(("path", "status"), [("/live", 200), ("/ready", 503), ("/nowhere", 404)])
def test_head_has_same_headers_without_body(path: str, status: int, source: Source, server: HealthServer) -> None:
    source.current = Health.of([REASON])
    names = ("Content-Type", "Content-Length", "Cache-Control")

    head, full = request(server.port, path, "HEAD"), request(server.port, path)

    assert (head.status, head.content) == (status, b"")  # type: ignore[attr-defined]
    assert [head.headers[name] for name in names] == [full.headers[name] for name in names]
    assert full.headers["Content-Type"] == "application/json"
    assert "Python" not in full.headers["Server"]


def test_other_methods_are_not_implemented(server: HealthServer) -> None:
    assert request(server.port, "/live", "POST").status == HTTPStatus.NOT_IMPLEMENTED


@pytest.mark.parametrize("path", ["/live", "/ready", "/health"])
def test_unreadable_health_is_unavailable(path: str, source: Source, server: HealthServer) -> None:
    source.current = KeyError("topic")

    assert get(server, path) == (503, {"error": "KeyError('topic')"})

    source.set(HealthState.HEALTHY)
    assert get(server, path)[0] == 200


def test_repeated_error_is_logged_once(source: Source, server: HealthServer, caplog: pytest.LogCaptureFixture) -> None:
    for error in (KeyError("a"), KeyError("a"), KeyError("b"), None, KeyError("b")):
        source.current = Health() if error is None else error
        get(server, "/live")

    assert [re.findall(r"error='?\"?(.*?)\"? ", message + " ")[0] for message in caplog.messages] == [
        "KeyError('a')",
        "KeyError('b')",
        "KeyError('b')",
    ]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert all("event='health_check_failed'" in message for message in caplog.messages)


def test_requests_are_not_printed(server: HealthServer, capfd: pytest.CaptureFixture[str]) -> None:
    get(server, "/live")
    request(server.port, "/live", "POST")
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert client.recv(10)

    assert capfd.readouterr() == ("", "")


# ---- clients -----------------------------------------------------------------------------------------------


def test_slow_client_does_not_block_others(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /live HT")
        started = time.monotonic()

        assert get(server, "/live")[0] == 200
        assert time.monotonic() - started < 3

        slow.sendall(b"TP/1.0\r\n\r\n")
        assert slow.recv(1000).startswith(b"HTTP/1.0 200 ")


def test_silent_client_is_disconnected(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.health_server._RequestHandler.timeout", 0.1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert silent.recv(1) == b""


def test_blocked_health_does_not_block_other_requests(source: Source) -> None:
    released = threading.Event()
    blocked = threading.Event()

    class Blocking:
        @property
        def health(self) -> Health:
            if not blocked.is_set():
                blocked.set()
                released.wait(20)
            return source.health

    with HealthServer(Blocking(), 0, "127.0.0.1") as server:
        first = in_thread(lambda: get(server, "/live"))
        assert blocked.wait(10)

        assert get(server, "/live")[0] == 200

        released.set()
        assert first.result()[0] == 200


def test_disconnected_clients_are_not_logged(server: HealthServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            # A reset connection: the server receives an error instead of the end of the stream.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /live HTTP/1.0\r\n\r\n")
    wait_until_equal(connection_threads, [])

    assert get(server, "/live")[0] == 200
    assert caplog.messages == []


def connection_threads() -> list[str]:
    """Return the names of the threads that serve a request."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zkconsumer-health-server-")]


def test_failed_accept_is_retried_with_backoff(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many open files, ``accept`` fails at once as long as a client waits."""
    monkeypatch.setattr("zkconsumer.health_server._ACCEPT_BACKOFF_S", 0.05)
    calls = []
    accept = socket.socket.accept

    def fail(listening: socket.socket) -> Any:
        if listening.getsockname()[1] != server.port:  # a server of another test
            return accept(listening)
        calls.append(time.monotonic())
        if len(calls) < 4:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fail)

    assert get(server, "/live")[0] == 200
    assert len(calls) == 4
    assert calls[3] - calls[0] >= 3 * 0.05


# ---- start and close ---------------------------------------------------------------------------------------


def test_close_releases_port_and_threads(source: Source) -> None:
    server = HealthServer(source, 0, "127.0.0.1")
    assert server.port == 0
    server.start()
    port = server.port
    assert get(server, "/live")[0] == 200
    names = {thread.name for thread in threading.enumerate()}
    assert "zkconsumer-health-server" in names

    server.close()

    assert server.port == port
    with pytest.raises(ConnectionRefusedError):
        request(port, "/live")
    with HealthServer(source, port, "127.0.0.1") as again:
        assert get(again, "/live")[0] == 200


def test_close_is_quick_and_idempotent(source: Source) -> None:
    server = HealthServer(source, 0, "127.0.0.1")
    server.close()  # before the start
    server.start()
    wait_for(lambda: get(server, "/live"), what="the server responds")
    started = time.monotonic()

    for call in [in_thread(server.close) for _ in range(3)]:
        call.result()
    server.close()

    assert time.monotonic() - started < 1


def test_close_does_not_wait_for_silent_client(source: Source) -> None:
    server = HealthServer(source, 0, "127.0.0.1")
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)):
        wait_for(connection_threads, what="the connection is accepted")
        started = time.monotonic()
        server.close()
        assert time.monotonic() - started < 2


def test_server_starts_once(server: HealthServer, source: Source) -> None:
    with pytest.raises(ClosedError, match="can be started only once"):
        server.start()

    assert get(server, "/live")[0] == 200


def test_used_port_is_named(server: HealthServer, source: Source) -> None:
    second = HealthServer(source, server.port, "127.0.0.1")

    with pytest.raises(ConfigurationError, match=rf"'127.0.0.1', port {server.port}: Address already in use"):
        second.start()
    second.close()


@pytest.mark.parametrize("port", [-1, 65_536, "8080", 8080.0, True, None])
def test_invalid_port_is_rejected(port: Any, source: Source) -> None:
    with pytest.raises(ConfigurationError, match="port must be an integer between 0 and 65535, got"):
        HealthServer(source, port)


def test_ipv6_address_is_supported(source: Source) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    with HealthServer(source, 0, "::1") as server:
        assert request(server.port, "/live", host="::1").status == 200


def test_forked_process_does_not_stop_server(server: HealthServer) -> None:
    if (child := os.fork()) == 0:
        server.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert get(server, "/live")[0] == 200
