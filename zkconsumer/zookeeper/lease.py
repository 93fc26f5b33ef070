"""Lease: how long the session of a connection is certain to exist on the server."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any

from zkconsumer.log import get_logger
from zkconsumer.zookeeper.connection import Connection

#: Renewals of the lease in a session timeout.
_RENEWALS = 6

#: Consecutive renewal intervals without any answer after which the connection is dropped: between half and two
#: thirds of the session timeout, which leaves a third for another server. ZooKeeper's Java client waits two thirds.
_SILENT_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A request that renews the lease of a session when it is answered."""

    sent_at: float  #: ``time.monotonic()`` just before it was sent
    result: Any  #: kazoo's


class Lease:
    """The lease of a session, which a thread renews, so that a busy member thread does not let it lapse.

    The same thread drops a connection whose server does not answer: kazoo sends pings only while it sends no requests,
    and does not expect answers to those.

    Args:
        session_timeout: seconds.
        closing: ends the thread when it is set.
    """

    def __init__(self, connection: Connection, session_timeout: float, closing: threading.Event) -> None:
        self._connection = connection
        self._session_timeout = session_timeout
        self._closing = closing
        self._lock = threading.Lock()  # guards the two fields below; never held over a wait
        self._renewed_at = -math.inf  # when the last answered renewal was sent
        self._renewal: _Renewal | None = None  # sent, and not known to be answered
        self._thread = threading.Thread(target=self._run, name="zkconsumer-zookeeper-lease", daemon=True)
        self._log = get_logger("zkconsumer.zookeeper")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, if it was started."""
        if self._thread.is_alive():
            self._thread.join()

    @property
    def remaining_s(self) -> float:
        """Seconds until the session may have expired on the server; 0 without a session.

        The server counts from the last request that it received, so this counts from when the last answered renewal
        was sent, whatever the state of the connection.
        """
        with self._lock:
            self._update()
            return max(0.0, self._renewed_at + self._session_timeout - time.monotonic())

    def renew(self) -> bool:
        """Send a request whose answer renews the lease; returns False while the last one is not answered.

        Answers come in the order of the requests, so the lease is renewed once a later request has been answered.
        """
        with self._lock:
            self._update()
            if self._renewal is not None:
                return False
            if self._connection.is_connected:
                self._renewal = _Renewal(time.monotonic(), self._connection.client.exists_async("/"))
            return True

    def end(self) -> None:
        """End the lease: the session has expired."""
        with self._lock:
            self._renewed_at, self._renewal = -math.inf, None

    def _update(self) -> None:  # with the lock
        """Count the lease from the last renewal once it is answered.

        A callback of kazoo may run only after the result of a later request is known.
        """
        if self._renewal is not None and self._renewal.result.ready():
            if self._renewal.result.successful():
                self._renewed_at = self._renewal.sent_at
            self._renewal = None

    def _run(self) -> None:
        """Renew the lease until the session is closed, and drop a connection over which nothing is answered.

        kazoo then connects to the next server, within the same session. Intervals are counted and not seconds: after
        the process was suspended, the answer may be waiting in the socket.
        """
        silent = 0
        while not self._closing.wait(self._session_timeout / _RENEWALS):
            is_answered = self._connection.take_answered()
            is_waiting = self._connection.is_connected and not self.renew()
            silent = silent + 1 if is_waiting and not is_answered else 0
            if silent == _SILENT_INTERVALS:
                silent = 0
                self._log.warning(
                    "zookeeper_connection_dropped", endpoint=self._connection.hosts, error="no request is answered"
                )
                self._connection.drop()
