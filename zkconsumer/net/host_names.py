"""Asynchronous host name resolution.

``socket.getaddrinfo`` has no timeout and cannot be interrupted: it may block for minutes if no name server responds.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from typing import Any

#: A tuple in the result of ``socket.getaddrinfo``, for stream sockets.
Address = tuple[Any, Any, int, str, Any]
Addresses = list[Address]


class _Lookups:
    """Lookups in progress: one thread per host and port, shared by concurrent requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while blocking
        self._waiting: dict[tuple[str, int], list[Future[Addresses]]] = {}

    def add(self, host: str, port: int) -> Future[Addresses]:
        future: Future[Addresses] = Future()
        with self._lock:
            waiting = self._waiting.get((host, port), [])
            if not waiting:
                name = f"zkconsumer-resolve-{host}"
                threading.Thread(target=self._run, args=(host, port), name=name, daemon=True).start()
            self._waiting[host, port] = [one for one in waiting if not one.cancelled()] + [future]
        return future

    def _run(self, host: str, port: int) -> None:
        found: Addresses = []
        failure: BaseException | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except BaseException as error:
            failure = error
        with self._lock:
            waiting = self._waiting.pop((host, port))
        for future in waiting:
            if not future.set_running_or_notify_cancel():
                continue
            if failure is None:
                future.set_result(found)
            else:
                future.set_exception(failure)


_lookups = _Lookups()


def _reset() -> None:
    """Discard the lookups in a forked process, because their threads do not exist there."""
    global _lookups
    _lookups = _Lookups()


os.register_at_fork(after_in_child=_reset)


def resolve(host: str, port: int) -> Future[Addresses]:
    """Start resolving a host name or IP address.

    Returns:
        a future with the result of ``socket.getaddrinfo`` or its exception (``socket.gaierror``, or ``UnicodeError``
        for an invalid name). For an IP address, the future is done immediately. Cancel it if the lookup times out.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return _lookups.add(host, port)
    future: Future[Addresses] = Future()
    future.set_result(found)
    return future


__all__ = ["Address", "Addresses", "resolve"]
