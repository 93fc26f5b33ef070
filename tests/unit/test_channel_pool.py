"""Tests of the pool of connections, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from helpers.configurations import plaintext
from helpers.waiting import wait_for

from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.fetcher.channel_pool import ChannelPool
from zkconsumer.message import Endpoint

CONNECTING = plaintext(5)


class Server:
    """Accepts connections; the endpoint is that of a broker without ApiVersions requests."""

    def __init__(self, **limits: Any) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listening.getsockname()[1], has_api_versions=False)
        self.pool = ChannelPool(**limits)

    def connected(self) -> tuple[BrokerChannel, socket.socket]:
        """Take a channel that is not in the pool, and connect it; return both ends."""
        channel = self.pool.take(self.endpoint, CONNECTING).connect()
        return channel, self._listening.accept()[0]

    def close(self) -> None:
        self.pool.close()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_returned_connection_is_used_again(server: Server) -> None:
    first, _peer = server.connected()
    server.pool.put(first, CONNECTING)
    assert server.pool.take(server.endpoint, plaintext(client_id="other")) is not first, "the client ids differ"
    assert server.pool.take(server.endpoint, CONNECTING) is first
    server.pool.put(first, CONNECTING)


def test_connection_closed_by_broker_is_replaced(server: Server) -> None:
    first, peer = server.connected()
    server.pool.put(first, CONNECTING)
    peer.close()
    wait_for(lambda: not first.is_reusable)
    assert server.pool.take(server.endpoint, CONNECTING) is not first


def test_connection_with_unread_response_is_closed(server: Server) -> None:
    first, peer = server.connected()
    peer.sendall(b"late")
    wait_for(lambda: not first.is_reusable)
    server.pool.put(first, CONNECTING)
    assert server.pool.take(server.endpoint, CONNECTING) is not first
    with pytest.raises(ConnectionResetError):
        peer.recv(1)


def test_idle_connection_is_closed_after_limit() -> None:
    with closing(Server(max_idle_s=0.0)) as server:
        first, _peer = server.connected()
        server.pool.put(first, CONNECTING)
        assert server.pool.take(server.endpoint, CONNECTING) is not first
        assert not first.is_reusable


def test_unused_connections_are_limited() -> None:
    with closing(Server(max_channels=1)) as server:
        ends = [server.connected() for _ in range(2)]
        for channel, _peer in ends:
            server.pool.put(channel, CONNECTING)
        assert [channel.is_reusable for channel, _peer in ends] == [False, True]
