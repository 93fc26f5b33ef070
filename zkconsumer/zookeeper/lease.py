"""Lease: the time for which a ZooKeeper session is assumed not to have expired on the server.

The lease uses the requested session timeout. It is too long if the server has negotiated a shorter one, and while a
server that is cut off from the leader of the ensemble still responds.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any

from zkconsumer.log import get_logger
from zkconsumer.zookeeper.connection import Connection

#: Renewals per session timeout.
_RENEWALS = 6

#: Consecutive renewal intervals without any response after which the connection is dropped. They take between half and
#: two thirds of the session timeout, which leaves a third to connect to another server. ZooKeeper's Java client waits
#: two thirds.
_MAX_SILENT_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A request whose response renews the lease."""

    sent_at: float  #: ``time.monotonic()`` just before the request was sent
    result: Any  #: kazoo's asynchronous result


class Lease:
    """The lease of a session. A separate thread renews it, even while the member thread is busy.

    The same thread drops the connection when the server does not respond. kazoo does not detect that: it sends pings
    only while it has no requests to send, and does not require responses to them.

    Args:
        session_timeout: session timeout in seconds.
        closing: stops the thread when it is set.
    """

    def __init__(self, connection: Connection, session_timeout: float, closing: threading.Event) -> None:
        self._connection = connection
        self._session_timeout = session_timeout
        self._closing = closing
        self._lock = threading.Lock()  # guards the two fields below; never held while blocking
        self._renewed_at = -math.inf  # send time of the last renewal that received a response
        self._renewal: _Renewal | None = None  # the renewal in flight
        self._thread = threading.Thread(target=self._run, name="zkconsumer-zookeeper-lease", daemon=True)
        self._log = get_logger("zkconsumer.zookeeper")

    def start(self) -> None:
        """Start the renewal thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has terminated, if it was started."""
        if self._thread.is_alive():
            self._thread.join()

    @property
    def remaining_s(self) -> float:
        """Seconds for which the session is assumed not to have expired; 0 without a session.

        The server measures the session timeout from the last request that it received. The lease is measured from the
        send time of the last renewal that received a response; the state of the connection does not matter.
        """
        with self._lock:
            self._update()
            return max(0.0, self._renewed_at + self._session_timeout - time.monotonic())

    def renew(self) -> bool:
        """Send a request whose response renews the lease.

        Responses arrive in the order of requests: when a later request has received its response, the lease is renewed.

        Returns:
            False if the previous renewal is still in flight; no request is sent then.
        """
        with self._lock:
            self._update()
            if self._renewal is not None:
                return False
            if self._connection.is_connected:
                self._renewal = _Renewal(time.monotonic(), self._connection.client.exists_async("/"))
            return True

    def end(self) -> None:
        """End the lease, because the session has expired."""
        with self._lock:
            self._renewed_at, self._renewal = -math.inf, None

    def _update(self) -> None:  # with the lock held
        """Extend the lease if the renewal in flight has received its response.

        A kazoo callback could not do this: it may run after the result of a later request is available.
        """
        if self._renewal is not None and self._renewal.result.ready():
            if self._renewal.result.successful():
                self._renewed_at = self._renewal.sent_at
            self._renewal = None

    def _run(self) -> None:
        """Renew the lease until the session is closed, and drop the connection when the server does not respond.

        kazoo then connects to the next server, with the same session. The method counts intervals instead of seconds:
        when the process resumes after a suspension, the response may be waiting in the socket.
        """
        silent_intervals = 0
        while not self._closing.wait(self._session_timeout / _RENEWALS):
            try:
                has_response = self._connection.poll_response()
                is_waiting = self._connection.is_connected and not self.renew()
                silent_intervals = silent_intervals + 1 if is_waiting and not has_response else 0
                if silent_intervals == _MAX_SILENT_INTERVALS:
                    silent_intervals = 0
                    error = "the server does not respond"
                    self._log.warning("zookeeper_connection_dropped", endpoint=self._connection.hosts, error=error)
                    self._connection.drop()
            except Exception:  # without this thread, the member would lose its partitions for good
                self._log.error("lease_renewal_failed", endpoint=self._connection.hosts, exc_info=True)
