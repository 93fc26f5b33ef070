"""Network: links between processes and servers, with latencies.

Bytes arrive in order. While a link is cut, they wait, as TCP repeats lost packets; a new connection is not established.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .kernel import Process, kernel


class Server(Protocol):
    """A process that accepts connections."""

    def accept(self, connection: Connection) -> None:
        """Take a new connection."""

    def receive(self, connection: Connection, data: bytes) -> None:
        """Take data that arrived."""

    def lose(self, connection: Connection) -> None:
        """Forget a connection that was closed by its client."""


class Client(Protocol):
    """A client's end of a connection."""

    process: Process

    def arrive(self, data: bytes) -> None:
        """Take data from the server."""

    def arrive_end(self) -> None:
        """Take the end of the stream."""


class Network:
    """Addresses and links.

    Attributes:
        latency_s: range of the seconds that data takes in one direction.
        slow: additional seconds by server address.
    """

    def __init__(self) -> None:
        self.latency_s = 0.0002, 0.002
        self.slow: dict[str, float] = {}
        self._servers: dict[tuple[str, int], Server] = {}
        self._cut: dict[tuple[str, str], list[Callable[[], object]]] = {}

    def listen(self, address: tuple[str, int], server: Server) -> None:
        """Let a server accept connections at an address."""
        self._servers[address] = server

    def unlisten(self, address: tuple[str, int]) -> None:
        """Reject connections to an address from now on."""
        self._servers.pop(address, None)

    def find(self, address: tuple[str, int]) -> Server | None:
        """Return the server at an address."""
        return self._servers.get(address)

    def cut(self, client: str, server: str) -> None:
        """Hold back everything between two hosts."""
        self._cut.setdefault((client, server), [])

    def join(self, client: str, server: str) -> None:
        """Deliver what was held back, and everything from now on."""
        for function in self._cut.pop((client, server), ()):
            function()

    def join_all(self) -> None:
        """Repair all links."""
        self.slow.clear()
        for client, server in list(self._cut):
            self.join(client, server)

    def deliver(self, link: tuple[str, str], function: Callable[[], object], not_before: float) -> float:
        """Call a function after the latency of a link; return the time."""
        time = max(not_before, kernel().now + kernel().random.uniform(*self.latency_s) + self.slow.get(link[1], 0.0))
        kernel().call_at(time, lambda: self._arrive(link, function))
        return time

    def _arrive(self, link: tuple[str, str], function: Callable[[], object]) -> None:
        if link in self._cut:
            self._cut[link].append(function)
        else:
            function()


class Connection:
    """The server's end of a connection.

    Attributes:
        client: process of the client.
        state: what the server knows about the connection.
    """

    def __init__(self, network: Network, sock: Client, server: Server, address: tuple[str, int]) -> None:
        self.client = sock.process
        self.state: Any = None
        self.is_open = True
        self._network, self._socket, self._server = network, sock, server
        self._link = sock.process.address, address[0]
        self._next = {True: 0.0, False: 0.0}

    def send(self, data: bytes) -> None:
        """Send data to the client."""
        if self.is_open:
            self._to_client(lambda: self._socket.arrive(data))

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            self.is_open = False
            self._to_client(self._socket.arrive_end)

    def send_to_server(self, data: bytes) -> None:
        """Send data to the server."""
        self._to_server(lambda: self._server.receive(self, data) if self.is_open else None)

    def close_by_client(self) -> None:
        """Let the server know that the client has closed the connection."""

        def lose() -> None:
            if self.is_open:
                self.is_open = False
                self._server.lose(self)

        self._to_server(lose)

    def _to_client(self, function: Callable[[], object]) -> None:
        self._next[True] = self._network.deliver(self._link, function, self._next[True])

    def _to_server(self, function: Callable[[], object]) -> None:
        self._next[False] = self._network.deliver(self._link, function, self._next[False])


def take_frames(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete frames from the received bytes; each of them follows its size."""
    while len(buffer) >= 4:
        [size] = struct.unpack_from(">i", buffer)
        if len(buffer) < 4 + size:
            return
        frame = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        yield frame


_networks: list[Network] = []


def install_network(new: Network) -> None:
    """Set the network of this process."""
    _networks[:] = [new]


def network() -> Network:
    """Return the network of this process."""
    return _networks[0]


__all__ = ["Client", "Connection", "Network", "Server", "install_network", "network", "take_frames"]
