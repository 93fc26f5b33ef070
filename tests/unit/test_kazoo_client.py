"""Tests of the kazoo client with a hand-written ZooKeeper server that speaks TLS."""

from __future__ import annotations

import queue
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from helpers.threads import in_thread

from zkconsumer import ConsumerConfig
from zkconsumer.zookeeper.session import ZooKeeperSession


class FakeServer:
    """A server of one connection. It answers two requests at a time, in one TLS record."""

    def __init__(self, authority: trustme.CA) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = in_thread(self._serve)

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        with self._context.wrap_socket(plain, server_side=True) as connection:
            _read_frame(connection)
            connection.sendall(_frame(struct.pack(">iiqi16sb", 0, 30_000, 1, 16, b"", 0)))
            while (first := _read_frame(connection)) is not None and (second := _read_frame(connection)) is not None:
                connection.sendall(_no_node(first) + _no_node(second))

    def close(self) -> None:
        self._listener.close()
        self._thread.result()


def _read_frame(connection: ssl.SSLSocket) -> bytes | None:
    """Return a request, None at the end of the connection."""
    try:
        size = connection.recv(4)
        return connection.recv(struct.unpack(">i", size)[0]) if size else None
    except OSError:
        return None


def _frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _no_node(request: bytes) -> bytes:
    """Return the response to ``request`` with the error code of a missing znode."""
    return _frame(request[:4] + struct.pack(">qi", 1, -101))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    made = FakeServer(authority)
    yield made
    made.close()


@pytest.mark.timeout(20)
def test_responses_in_one_tls_record_are_read_at_once(server: FakeServer, tmp_path: Path) -> None:
    """Otherwise, the second one would wait for a third of the session timeout: its bytes are not in the socket."""
    config = ConsumerConfig.from_dict(
        {
            "zookeeper.connect": f"127.0.0.1:{server.port}",
            "group.id": "g",
            "zookeeper.session.timeout.ms": 30_000,
            "zookeeper.connection.timeout.ms": 2000,
            "zookeeper.ssl.client.enable": True,
            "zookeeper.ssl.ca.location": tmp_path / "ca.pem",
        }
    )
    session = ZooKeeperSession.from_config(config, queue.SimpleQueue())
    connected = session._client.start_async()
    try:
        assert connected.wait(10)
        assert session.znodes.get_many(["/a", "/b"]) == [None, None]
    finally:
        session.close()
