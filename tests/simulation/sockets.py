"""Simulated TCP sockets, in place of those of ``socket``, ``select`` and ``selectors``."""

from __future__ import annotations

import errno
import itertools
import select
import selectors
import socket
from collections.abc import Callable, Iterable
from typing import Any

from .kernel import Process, Task, kernel
from .network import Connection, network

_numbers = itertools.count(1_000)
_open: dict[int, Socket] = {}


class Socket:
    """Like ``socket.socket`` for TCP clients, and for the pairs with which threads wake each other."""

    def __init__(self, *_arguments: object, **_settings: object) -> None:
        task = kernel().current
        assert task is not None
        self.process: Process = task.process
        self._timeout: float | None = None
        self._received = bytearray()
        self._has_end = False
        self._is_connected = self._is_closed = False
        self._connection: Connection | None = None
        self._peer: Socket | None = None
        self._waiting: list[Task] = []
        self._address = "", 0
        self._number = next(_numbers)
        _open[self._number] = self
        self.process.on_end.append(self._end)

    # ---- as in the socket module ----

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, is_blocking: bool) -> None:
        self._timeout = None if is_blocking else 0.0

    def setsockopt(self, *_arguments: object) -> None:
        pass

    def fileno(self) -> int:
        return -1 if self._is_closed else self._number

    def getpeername(self) -> tuple[str, int]:
        return self._address

    def connect(self, address: tuple[str, int]) -> None:
        self._check()
        self._address = address
        outcomes: list[Connection | None] = []

        def arrive() -> None:
            server = network().find(address)
            connection = None if server is None else Connection(network(), self, server, address)
            if server is not None and connection is not None:
                server.accept(connection)
                if self._is_closed or self._has_end:  # the client has given up
                    connection.close_by_client()
            outcomes.append(connection)
            self._wake()

        network().deliver((self.process.address, address[0]), arrive, 0.0)
        if not self._wait(lambda: bool(outcomes) or self._has_end or self._is_closed):
            self._has_end = True
            raise TimeoutError("timed out")
        if outcomes and outcomes[0] is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        if self._is_closed or not outcomes:
            raise OSError(errno.ENOTCONN, "the connection was shut down")
        self._connection = outcomes[0]
        self._is_connected = True

    def send(self, data: Any) -> int:
        self._check()
        if self._has_end or not (self._is_connected or self._peer):
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        content = bytes(data)
        kernel().pause()
        if self._peer is not None:
            self._peer.arrive(content)
        elif self._connection is not None:
            self._connection.send_to_server(content)
        return len(content)

    def sendall(self, data: Any) -> None:
        self.send(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self._check()
        minimum = size if flags & socket.MSG_WAITALL else 1
        if len(self._received) < minimum and not self._has_end:
            if self._timeout == 0.0:
                raise BlockingIOError(errno.EAGAIN, "no data")
            if not self._wait(lambda: len(self._received) >= minimum or self._has_end or self._is_closed):
                raise TimeoutError("timed out")
        self._check()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def recv_into(self, target: memoryview) -> int:
        data = self.recv(len(target))
        target[: len(data)] = data
        return len(data)

    def shutdown(self, _how: int) -> None:
        if not self._is_connected or self._is_closed:
            raise OSError(errno.ENOTCONN, "not connected")
        self._leave()
        self.arrive_end()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            _open.pop(self._number, None)
            self._leave()
            self._wake()
            if self._end in self.process.on_end:
                self.process.on_end.remove(self._end)

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # ---- for the network ----

    def arrive(self, data: bytes) -> None:
        """Take data from the peer."""
        if not self._has_end:
            self._received += data
            self._wake()

    def arrive_end(self) -> None:
        """Take the end of the stream."""
        self._has_end = True
        self._wake()

    def is_readable(self) -> bool:
        """Whether ``recv`` would not wait."""
        return bool(self._received) or self._has_end or self._is_closed

    def wait_with(self, task: Task) -> None:
        """Wake a thread at the next event."""
        self._waiting.append(task)

    def pair_with(self, peer: Socket) -> None:
        """Connect to a socket of the same process."""
        self._peer = peer

    def _wait(self, is_done: Callable[[], bool]) -> bool:
        task = kernel().current
        assert task is not None
        deadline = None if self._timeout is None else kernel().now + self._timeout
        while not is_done():
            remaining = None if deadline is None else deadline - kernel().now
            if remaining is not None and remaining <= 0:
                return False
            self._waiting.append(task)
            kernel().park(remaining)
            if task in self._waiting:
                self._waiting.remove(task)
        return True

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            kernel().wake(task)

    def _leave(self) -> None:
        if self._connection is not None and self._is_connected:
            self._is_connected = False
            self._connection.close_by_client()

    def _end(self) -> None:
        self._is_closed = True
        _open.pop(self._number, None)
        self._leave()

    def _check(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the socket is closed")


def wait_for_sockets(sockets: Iterable[Socket], timeout_s: float | None) -> list[Socket]:
    """Wait until one of the sockets is readable, and return those that are."""
    watched = list(sockets)
    deadline = None if timeout_s is None else kernel().now + timeout_s
    task = kernel().current
    assert task is not None
    kernel().pause()
    while True:
        ready = [one for one in watched if one.is_readable()]
        remaining = None if deadline is None else deadline - kernel().now
        if ready or (remaining is not None and remaining <= 0):
            return ready
        for one in watched:
            one.wait_with(task)
        kernel().park(remaining)
        for one in watched:
            if task in one._waiting:
                one._waiting.remove(task)


class _Selector:
    """Like ``selectors.DefaultSelector``; sockets can always be written."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Socket, int]] = {}

    def register(self, file: Any, events: int, _data: object = None) -> None:
        sock = file if isinstance(file, Socket) else _open.get(file)
        if sock is None or sock.fileno() < 0:
            raise ValueError("invalid file descriptor")
        self._keys[sock.fileno()] = sock, events

    def select(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        writable = [number for number, (_, events) in self._keys.items() if events & selectors.EVENT_WRITE]
        readers = [sock for sock, events in self._keys.values() if events & selectors.EVENT_READ]
        found = {id(sock) for sock in wait_for_sockets(readers, 0.0 if writable else timeout)}
        ready = []
        for number, (sock, events) in self._keys.items():
            mask = (selectors.EVENT_READ if id(sock) in found else 0) | (events & selectors.EVENT_WRITE)
            if mask:
                ready.append((selectors.SelectorKey(number, number, events, None), mask))
        return ready

    def close(self) -> None:
        self._keys.clear()


class _Poll:
    """Like ``select.poll``, for one socket and a timeout of 0."""

    def register(self, sock: Socket, _events: int) -> None:
        self._socket = sock

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        assert timeout == 0
        return [(self._socket.fileno(), select.POLLIN)] if self._socket.is_readable() else []


def _pair(*_arguments: object) -> tuple[Socket, Socket]:
    first, second = Socket(), Socket()
    first.pair_with(second)
    second.pair_with(first)
    return first, second


def _resolve(host: str, port: int, *_arguments: object, **_settings: object) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


def _host_name() -> str:
    task = kernel().current
    return "simulation" if task is None else task.process.name


def install() -> None:
    """Replace the sockets of this interpreter."""
    module: Any = socket
    module.socket, module.socketpair = Socket, _pair
    module.getaddrinfo, module.gethostname = _resolve, _host_name
    for other, name, value in ((select, "poll", _Poll), (selectors, "DefaultSelector", _Selector)):
        setattr(other, name, value)


__all__ = ["Socket", "install", "wait_for_sockets"]
