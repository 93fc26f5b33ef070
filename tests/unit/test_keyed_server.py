"""Tests of the TCP servers of the driver's host, over real sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from faults.faults import full_backlog
from helpers.teardown import started
from helpers.waiting import wait_for

from zkconsumer.net.host_names import Addresses
from zkconsumer.spark import keyed_server
from zkconsumer.spark.keyed_server import KeyedServer, ServerAddress, messages, to_line

pytestmark = pytest.mark.timeout(30)

Start = Callable[..., KeyedServer]


def echo(connection: socket.socket) -> None:
    for message in messages(connection):
        connection.sendall(to_line(message))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers, and check that they end with all of their threads."""
    before = set(threading.enumerate())

    def make(serve: Callable[[socket.socket], None], timeout_s: float) -> KeyedServer:
        return KeyedServer(serve, host="127.0.0.1", bind="127.0.0.1", name="zkconsumer-test", timeout_s=timeout_s)

    def start(serve: Callable[[socket.socket], None] = echo, timeout_s: float = 5.0) -> KeyedServer:
        server = create(serve, timeout_s)
        server.start()
        return server

    with started(make, KeyedServer.close) as create:
        yield start
    assert set(threading.enumerate()) <= before


def connected(server: KeyedServer) -> socket.socket:
    """Return a connection that the server serves."""
    connection = server.address.connect(5.0)
    connection.sendall(to_line("hello"))
    assert connection.recv(100) == b'"hello"\n'
    return connection


def is_listening(server: KeyedServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((server.address.host, server.address.port)) == 0


def test_threads_of_connections_are_named(start: Start) -> None:
    server = start()
    with connected(server), connected(server):
        names = {thread.name for thread in threading.enumerate() if thread.name.startswith("zkconsumer-test")}
    assert names == {"zkconsumer-test", "zkconsumer-test-0", "zkconsumer-test-1"}


def test_wrong_key_closes_the_connection(start: Start) -> None:
    address = dataclasses.replace(start().address, key=b"x" * 32)
    with address.connect(5.0) as connection:
        assert connection.recv(100) == b""


def test_unresolved_host_name_ends_connect_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup: Future[Addresses] = Future()
    monkeypatch.setattr(keyed_server, "resolve", lambda _host, _port: lookup)
    with pytest.raises(TimeoutError, match=r"'driver' was not resolved within 0\.05 s"):
        ServerAddress("driver", 1, b"").connect(0.05)
    assert lookup.cancelled()


def test_silent_address_leaves_time_for_the_next(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    with full_backlog() as silent:
        lookup: Future[Addresses] = Future()
        lookup.set_result(
            [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (silent, server.address.port)]
        )
        monkeypatch.setattr(keyed_server, "resolve", lambda _host, _port: lookup)
        started = time.monotonic()
        with server.address.connect(2.0) as connection:
            assert time.monotonic() - started < 1.9
            connection.settimeout(5)
            connection.sendall(to_line("hello"))
            assert connection.recv(100) == b'"hello"\n'


def test_key_is_not_in_the_representation(start: Start) -> None:
    address = start().address
    assert repr(address) == f"ServerAddress(host='127.0.0.1', port={address.port})"


def test_timeout_applies_to_the_whole_key(start: Start) -> None:
    """A client that sends a byte of the key from time to time keeps no thread."""
    server = start(timeout_s=0.5)
    started = time.monotonic()
    with socket.create_connection((server.address.host, server.address.port)) as connection:
        connection.settimeout(0.1)
        for byte in server.address.key[:31]:
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - started < 2


def test_silent_client_of_serve_is_disconnected(start: Start) -> None:
    with start(timeout_s=0.2).address.connect(5.0) as connection:
        assert connection.recv(100) == b""


def test_close_ends_connections_and_their_threads(start: Start) -> None:
    server = start(timeout_s=20.0)
    half_open = socket.create_connection((server.address.host, server.address.port))
    with half_open, connected(server) as connection:
        wait_for(lambda: "zkconsumer-test-1" in {thread.name for thread in threading.enumerate()})
        server.close()
        assert connection.recv(100) == b""
        assert half_open.recv(100) == b""
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("zkconsumer-test")]
    assert not is_listening(server)


def test_close_completes_the_message_in_progress(start: Start) -> None:
    is_serving, may_answer = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        for message in messages(connection):
            is_serving.set()
            assert may_answer.wait(10)
            connection.sendall(to_line(message))

    server = start(serve)
    with server.address.connect(5.0) as connection:
        connection.sendall(to_line(1))
        assert is_serving.wait(10)
        closing = threading.Thread(target=server.close)
        closing.start()
        wait_for(lambda: not is_listening(server))
        may_answer.set()
        assert connection.recv(100) == b"1\n"
        assert connection.recv(100) == b""
        closing.join()


def test_close_waits_for_all_threads_together(start: Start) -> None:
    may_end = threading.Event()

    def serve(_connection: socket.socket) -> None:
        may_end.wait(20)

    server = start(serve, timeout_s=0.5)
    with contextlib.ExitStack() as connections:
        for _ in range(5):
            connections.enter_context(server.address.connect(5.0))
        wait_for(lambda: len(server._connections) == 5)
        started = time.monotonic()
        server.close()
        elapsed = time.monotonic() - started
        may_end.set()
        wait_for(lambda: not server._connections)
    assert elapsed < 1.5


def test_connection_without_thread_ends_no_others(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, start_thread = start(), threading.Thread.start
    failed: list[str] = []

    def fail_once(thread: threading.Thread) -> None:
        if thread.name.startswith("zkconsumer-test-") and not failed:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    with server.address.connect(5.0) as connection, contextlib.suppress(ConnectionError):
        assert connection.recv(100) == b""
    assert failed == ["zkconsumer-test-0"]
    assert "query_message_failed" in caplog.text
    connected(server).close()


def test_server_that_was_not_started_can_be_closed() -> None:
    server = KeyedServer(echo, host="127.0.0.1", bind="127.0.0.1", name="zkconsumer-test", timeout_s=5.0)
    assert is_listening(server)
    server.close()
    assert not is_listening(server)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_close_in_forked_process_leaves_connections(start: Start) -> None:
    server = start()
    with connected(server) as connection:
        child = os.fork()
        if child == 0:
            server.close()
            os._exit(0)
        wait_for(lambda: os.waitpid(child, os.WNOHANG)[0])
        connection.sendall(to_line("still served"))
        assert connection.recv(100) == b'"still served"\n'
        connected(server).close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_close_takes_the_port_from_forked_processes(start: Start) -> None:
    server = start()
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    os.close(ended)
    server.close()
    assert not is_listening(server)
    os.close(end)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("content", [b"no json\n", b'"' + b"x" * (9 << 20) + b'"\n'], ids=["text", "long"])
def test_unusable_message_is_logged(start: Start, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with start().address.connect(5.0) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(content)
        assert connection.recv(100) == b""
    wait_for(lambda: "query_message_failed" in caplog.text)


def test_incomplete_message_is_ignored(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start()
    with connected(server) as connection:
        connection.sendall(b'{"half":')
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "zkconsumer-test-0"])
    assert caplog.text == ""
