"""Tests of the explanation of servers with which no ZooKeeper session can be established."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults.faults import full_backlog

from zkconsumer.devcluster.process import free_port
from zkconsumer.zookeeper.connection_diagnosis import explain

Answer = Callable[[socket.socket], object]


@pytest.fixture
def server() -> Iterator[Callable[[Answer], int]]:
    """Start a server that handles each connection with a function; return its port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: Answer) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                answer(connection)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def as_broker(connection: socket.socket) -> None:
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    key, version, correlation_id, client_id = struct.unpack(">hhih", connection.recv(size, socket.MSG_WAITALL))
    assert (key, version, client_id) == (18, 0, -1), "an ApiVersions request that every broker since 0.10 answers"
    connection.sendall(struct.pack(">iihi", 10, correlation_id, 0, 0))


def test_refused_port_and_unknown_host_are_distinguished() -> None:
    port = free_port()

    text = explain(f"127.0.0.1:{port},no-such-host.invalid:2181/chroot", "x", uses_tls=False)

    assert text == (
        f"127.0.0.1:{port} refused the connection; no-such-host.invalid:2181 could not be resolved; "
        "check zookeeper.connect and whether the ensemble is running"
    )


def test_broker_is_recognized(server: Callable[[Answer], int]) -> None:
    assert "is a Kafka broker, not a ZooKeeper server" in explain(f"127.0.0.1:{server(as_broker)}", "x", uses_tls=False)


@pytest.mark.parametrize("answer", [b"imok", b"ruok is not executed because it is not in the whitelist.\n"])
def test_zookeeper_without_tls_is_recognized(answer: bytes, server: Callable[[Answer], int]) -> None:
    def talk(connection: socket.socket) -> None:
        assert connection.recv(4, socket.MSG_WAITALL) == b"ruok"
        connection.sendall(answer)

    address = f"127.0.0.1:{server(talk)}"
    text = explain(address, "x", uses_tls=True)
    assert text == f"{address} does not use TLS on this port; check zookeeper.connect and zookeeper.ssl.client.enable"


def test_server_that_closes_connection_may_lack_quorum(server: Callable[[Answer], int]) -> None:
    text = explain(
        f"127.0.0.1:{server(lambda connection: connection.recv(14, socket.MSG_WAITALL))}",
        "the.property",
        uses_tls=False,
    )

    assert "check that the ensemble has a quorum" in text
    assert "or increase the.property" in text


@pytest.mark.parametrize("data", [b"", b"\xff" * 100], ids=["silent", "noise"])
def test_explanation_takes_limited_time(data: bytes, server: Callable[[Answer], int]) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.recv(100, socket.MSG_WAITALL)  # until the client closes the connection

    started = time.monotonic()
    text = explain(",".join(f"127.0.0.1:{server(talk)}" for _ in range(3)), "x", uses_tls=False)

    assert time.monotonic() - started < 4
    assert ("did not respond" in text) == (data == b"")


@pytest.mark.timeout(30)
def test_explanation_does_not_wait_for_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    original = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **more: Any) -> Any:
        if host.endswith(".test") and not more.get("flags"):
            end.wait(60)
        return original(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    started = time.monotonic()
    try:
        text = explain("z.test:1,127.0.0.1:1", "x", uses_tls=False)
    finally:
        end.set()

    assert time.monotonic() - started < 5
    assert "z.test:1 could not be resolved; 127.0.0.1:1 refused the connection" in text


@pytest.mark.timeout(30)
def test_server_that_drops_packets_does_not_answer() -> None:
    started = time.monotonic()
    with full_backlog() as port:
        assert f"127.0.0.1:{port} did not respond; check zookeeper.connect" in explain(
            f"127.0.0.1:{port}", "x", uses_tls=False
        )
    assert time.monotonic() - started < 10


def test_silent_server_leaves_time_for_others(server: Callable[[Answer], int]) -> None:
    def answer_late(connection: socket.socket) -> None:
        time.sleep(0.3)  # simulates a slow connection
        as_broker(connection)

    silent = server(lambda connection: connection.recv(100, socket.MSG_WAITALL))

    text = explain(f"127.0.0.1:{silent},127.0.0.1:{server(answer_late)}", "x", uses_tls=False)

    assert "is a Kafka broker" in text
