"""Sending and receiving over a broker connection: the compiled function, and the one that uses the socket's methods."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from zkconsumer.broker import _transfer
from zkconsumer.broker.transfer import transfer_by_socket

Transfer = Callable[..., int]


def by_descriptor(sock: socket.socket, request: bytes, target: memoryview, minimum: int, timeout_s: float) -> int:
    return _transfer.transfer(sock.fileno(), request, target, minimum, timeout_s)


@pytest.fixture(params=["c", "python"])
def transfer(request: pytest.FixtureRequest) -> Transfer:
    return by_descriptor if request.param == "c" else transfer_by_socket


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with client, peer:
        client.settimeout(5)
        peer.settimeout(10)
        yield client, peer


@contextlib.contextmanager
def running(function: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
        assert not thread.is_alive()


def buffer(size: int) -> memoryview:
    return memoryview(bytearray(size))


def test_request_is_sent_and_response_is_received(
    transfer: Transfer, ends: tuple[socket.socket, socket.socket]
) -> None:
    client, peer = ends
    target = buffer(100)

    def answer() -> None:
        assert peer.recv(100) == b"request"
        peer.sendall(b"res")
        peer.sendall(b"ponse")

    with running(answer):
        assert transfer(client, b"request", target, 8, 5) == 8
    assert bytes(target[:8]) == b"response"


def test_all_available_bytes_are_received(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    peer.sendall(b"0123456789")
    target = buffer(8)
    assert transfer(client, b"", target, 4, 5) == 8
    assert bytes(target) == b"01234567"


def test_nothing_is_received_for_minimum_of_zero(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    peer.sendall(b"0123456789")
    assert transfer(client, b"request", buffer(8), 0, 5) == 0
    assert peer.recv(100) == b"request"


def test_large_request_is_sent_completely(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    request = os.urandom(8 << 20)
    received = bytearray()

    def read() -> None:
        while len(received) < len(request):
            received.extend(peer.recv(1 << 16))
        peer.sendall(b"done")

    with running(read):
        assert transfer(client, request, buffer(4), 4, 10) == 4
    assert received == request


def test_end_of_stream_shortens_result(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    peer.sendall(b"alert")
    peer.close()
    target = buffer(8)
    assert transfer(client, b"", target, 8, 5) == 5
    assert bytes(target[:5]) == b"alert"
    assert transfer(client, b"", target, 8, 5) == 0


def test_bytes_before_error_are_returned(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    target = buffer(8)

    def send_and_reset() -> None:
        peer.sendall(b"alert")
        deadline = time.monotonic() + 10
        while bytes(target[:5]) != b"alert" and time.monotonic() < deadline:
            time.sleep(0.001)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    with running(send_and_reset):
        assert transfer(client, b"", target, 8, 5) == 5
    with contextlib.suppress(ConnectionResetError):
        assert transfer(client, b"", target, 8, 5) == 0


def test_reset_connection_raises_error(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, peer = ends
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(ConnectionResetError):
        transfer(client, b"", buffer(8), 8, 5)
    with pytest.raises(ConnectionError):
        transfer(client, b"request", buffer(8), 8, 5)


def test_closed_socket_raises_error(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, _ = ends
    client.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        transfer(client, b"request", buffer(8), 8, 5)


def test_silent_peer_raises_timeout(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, _ = ends
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        transfer(client, b"request", buffer(8), 8, 0.2)
    assert 0.2 <= time.monotonic() - started < 5


def test_peer_that_does_not_read_raises_timeout(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, _ = ends
    with pytest.raises(TimeoutError):
        transfer(client, bytes(32 << 20), buffer(8), 8, 0.2)


def test_time_limit_applies_to_whole_call(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    """A peer that sends single bytes does not extend the time limit."""
    client, peer = ends
    stop = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not stop.wait(0.02):
                peer.sendall(b".")

    started = time.monotonic()
    with running(trickle):
        received = transfer(client, b"", buffer(10_000), 10_000, 0.3)
        elapsed_s = time.monotonic() - started
        stop.set()
    assert 0 < received < 10_000
    assert 0.3 <= elapsed_s < 5


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_no_time_left_raises_timeout(
    transfer: Transfer, ends: tuple[socket.socket, socket.socket], timeout_s: float
) -> None:
    client, _ = ends
    with pytest.raises(TimeoutError):
        transfer(client, b"", buffer(8), 8, timeout_s)


def test_shutdown_by_another_thread_ends_call(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    client, _ = ends
    timer = threading.Timer(0.1, functools.partial(client.shutdown, socket.SHUT_RDWR))
    timer.start()
    try:
        assert transfer(client, b"", buffer(8), 8, 30) == 0
    finally:
        timer.join()


def test_signal_handler_runs_during_call(transfer: Transfer, ends: tuple[socket.socket, socket.socket]) -> None:
    """A handler that returns does not end the call; one that raises does."""
    client, peer = ends
    handled: list[int] = []

    def handle(number: int, _frame: object) -> None:
        handled.append(number)
        if len(handled) == 1:
            peer.sendall(b"response")
        else:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert transfer(client, b"", buffer(8), 8, 30) == 8
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            transfer(client, b"", buffer(8), 8, 30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(handled) == 2


def test_signal_to_another_thread_is_handled_during_call(
    transfer: Transfer, ends: tuple[socket.socket, socket.socket]
) -> None:
    """The handler runs in the main thread, which the signal does not interrupt."""
    client, peer = ends
    ended = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            for number in range(300):
                peer.sendall(b".")
                if ended.wait(0.02):
                    return
                if number == 3:
                    signal.pthread_kill(threading.get_ident(), signal.SIGALRM)

    def handle(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, handle)
    started = time.monotonic()
    try:
        with running(trickle):
            with pytest.raises(KeyboardInterrupt):
                transfer(client, b"", buffer(10_000), 10_000, 30)
            elapsed_s = time.monotonic() - started
            ended.set()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert elapsed_s < 3


def test_tls_error_after_other_bytes_is_raised(ends: tuple[socket.socket, socket.socket]) -> None:
    """OpenSSL raises an error once; the next call would report that the broker closed the connection."""

    class BrokenTls(socket.socket):
        def recv_into(self, target: memoryview, *_: int) -> int:  # type: ignore[override]
            if self.recv(3, socket.MSG_PEEK) == b"abc":
                return super().recv_into(target, 3)
            raise ssl.SSLError("bad record")

    client, peer = ends
    peer.sendall(b"abcdef")
    with BrokenTls(fileno=os.dup(client.fileno())) as broken, pytest.raises(ssl.SSLError, match="bad record"):
        transfer_by_socket(broken, b"", buffer(6), 6, 5)


def test_read_only_target_is_rejected(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(TypeError):
        by_descriptor(ends[0], b"", memoryview(b"12345678"), 8, 5)
