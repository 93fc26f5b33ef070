"""Connections that are served in threads: they are removed when they end, and close waits for them."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from helpers.waiting import wait_for

from zkconsumer.net.connection_threads import ConnectionThreads
from zkconsumer.threads import OwnedThread


def receive(connection: socket.socket, received: list[bytes]) -> None:
    with connection:
        while data := connection.recv(10):
            received.append(data)


def test_close_lets_threads_process_received_data() -> None:
    crashes: list[BaseException] = []
    threads, received = ConnectionThreads(crashes.append), list[bytes]()
    pairs = [socket.socketpair() for _ in range(3)]
    for number, (own, _) in enumerate(pairs):
        threads.start(own, lambda own=own: receive(own, received), f"one-{number}")  # type: ignore[misc]
    assert {"one-0", "one-1", "one-2"} <= {thread.name for thread in threading.enumerate()}
    for _, peer in pairs:
        peer.sendall(b"last")
    threads.close(time.monotonic() + 10)

    assert (received, len(threads), crashes) == ([b"last"] * 3, 0, [])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("one-")]
    for _, peer in pairs:
        peer.close()


def test_failed_connection_is_reported_and_removed() -> None:
    crashes: list[BaseException] = []
    threads = ConnectionThreads(crashes.append)
    own, peer = socket.socketpair()
    error = ValueError("bad message")

    def fail() -> None:
        with own:
            raise error

    threads.start(own, fail, "one")
    wait_for(lambda: crashes, 10)
    assert (crashes, len(threads)) == ([error], 0)
    peer.close()


def test_thread_that_cannot_start_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: OwnedThread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(OwnedThread, "start", fail)
    threads = ConnectionThreads(lambda error: None)
    own, peer = socket.socketpair()
    with pytest.raises(RuntimeError):
        threads.start(own, lambda: None, "one")
    assert len(threads) == 0
    own.close()
    peer.close()
