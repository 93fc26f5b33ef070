"""Sending and receiving over a broker connection, within a time limit.

See docs/decisions/37-receive-without-the-gil.rst.
"""

from __future__ import annotations

import socket
import ssl
import time

from zkconsumer.version import IS_PURE, explain_missing_module

if not IS_PURE:
    try:
        from zkconsumer.broker import _transfer
    except ImportError as error:
        raise ImportError(explain_missing_module()) from error


def transfer(sock: socket.socket, request: bytes, target: memoryview, minimum: int, timeout_s: float) -> int:
    """Send a request, and receive bytes until ``target`` contains at least ``minimum`` bytes.

    Returns:
        the number of bytes received. It is less than ``minimum`` if the broker closed the connection, or if an error
        occurred after some bytes were received; the next call then returns 0, or raises the same or another error.

    Raises:
        TimeoutError: the time limit expired.
        OSError: the connection failed.
    """
    if IS_PURE or isinstance(sock, ssl.SSLSocket):
        return transfer_by_socket(sock, request, target, minimum, timeout_s)
    return _transfer.transfer(sock.fileno(), request, target, minimum, timeout_s)


def transfer_by_socket(sock: socket.socket, request: bytes, target: memoryview, minimum: int, timeout_s: float) -> int:
    """Like ``transfer``, with the methods of the socket; for TLS, and for the pure Python modules."""
    deadline = time.monotonic() + timeout_s
    if request:
        sock.settimeout(timeout_s)
        sock.sendall(request)
    received = 0
    while received < minimum:
        try:
            sock.settimeout(remaining_s(deadline))
            count = sock.recv_into(target[received:])
        except OSError as error:
            if not received or isinstance(error, ssl.SSLError):  # OpenSSL raises an error only once
                raise
            return received
        if not count:
            break
        received += count
    return received


def remaining_s(deadline: float) -> float:
    """Return the seconds until a time (``time.monotonic``).

    Raises:
        TimeoutError: the time has passed.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
