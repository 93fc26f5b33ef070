"""ChannelPool: keeps connections of closed fetchers for reuse by later fetchers.

A Spark worker runs one task after another, and each task has its own fetchers. Without the pool, connecting, TLS and
SASL would cost several round trips per task.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.message import Endpoint

#: Maximum seconds to keep an unused connection. Spark terminates workers that are idle for one minute, and
#: brokers close connections that are idle for ten minutes (``connections.max.idle.ms``).
_MAX_IDLE_S = 60.0

#: Maximum number of unused connections to keep.
_MAX_CHANNELS = 64

_Key = tuple[Endpoint, Connecting]


class ChannelPool:
    """Pool of unused connections, by broker and connection settings. Thread-safe.

    Args:
        max_idle_s: maximum seconds to keep an unused connection.
        max_channels: maximum number of unused connections to keep.
    """

    def __init__(self, *, max_idle_s: float = _MAX_IDLE_S, max_channels: int = _MAX_CHANNELS) -> None:
        self._max_idle_s, self._max_channels = max_idle_s, max_channels
        self._lock = threading.Lock()
        self._number = 0
        #: Sequence number -> (key, time at which the channel was returned, channel), oldest first.
        self._unused: OrderedDict[int, tuple[_Key, float, BrokerChannel]] = OrderedDict()

    def take(self, endpoint: Endpoint, connecting: Connecting) -> BrokerChannel:
        """Return an open, unused connection, or else a new channel."""
        while (channel := self._pop((endpoint, connecting))) is not None:
            if channel.is_reusable:
                return channel
            channel.close()
        return connecting.channel(endpoint)

    def put(self, channel: BrokerChannel, connecting: Connecting) -> None:
        """Return a connection to the pool; close it if it is not reusable."""
        if not channel.is_reusable:
            channel.close()
            return
        with self._lock:
            self._number += 1
            self._unused[self._number] = (channel.endpoint, connecting), time.monotonic(), channel
        self._close_excess()

    def close(self) -> None:
        """Close the unused connections."""
        with self._lock:
            unused = list(self._unused.values())
            self._unused.clear()
        for _, _, channel in unused:
            channel.close()

    def _pop(self, key: _Key) -> BrokerChannel | None:
        self._close_excess()
        with self._lock:
            number = next((n for n in reversed(self._unused) if self._unused[n][0] == key), None)
            return None if number is None else self._unused.pop(number)[2]

    def _close_excess(self) -> None:
        """Close connections that have been idle for too long, and the oldest connections if there are too many."""
        excess = []
        with self._lock:
            while self._unused:
                number, (_, since, channel) = next(iter(self._unused.items()))
                if len(self._unused) <= self._max_channels and time.monotonic() - since <= self._max_idle_s:
                    break
                del self._unused[number]
                excess.append(channel)
        for channel in excess:
            channel.close()
