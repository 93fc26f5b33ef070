"""Resolve host names with a deadline.

``socket.getaddrinfo`` has none, and cannot be interrupted: it may block for minutes if no name server responds.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from typing import Any

#: A tuple of ``socket.getaddrinfo`` for stream sockets.
Address = tuple[Any, Any, int, str, Any]
Addresses = list[Address]


class _Lookups:
    """The lookups in progress: one thread for each host and port, however often they are requested."""

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
    """Forget lookups whose threads do not exist in a forked process."""
    global _lookups
    _lookups = _Lookups()


os.register_at_fork(after_in_child=_reset)


def resolve(host: str, port: int) -> Future[Addresses]:
    """Start to resolve a host name or an IP address.

    Returns:
        the result of ``socket.getaddrinfo`` or its error (``socket.gaierror``, or ``UnicodeError`` for a malformed
        name); it is complete at once for an IP address. Cancel it when its deadline has passed.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return _lookups.add(host, port)
    future: Future[Addresses] = Future()
    future.set_result(found)
    return future


__all__ = ["Address", "Addresses", "resolve"]
