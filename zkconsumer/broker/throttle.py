"""Throttle: the delay between requests that a broker requests."""

from __future__ import annotations

import time


class Throttle:
    """The delay that a broker requests by ``throttle_time_ms``. Clients have to apply it since Kafka 2.0 (KIP-219).

    Args:
        max_delay_s: maximum delay, so that a corrupt value does not stop the client for days. The broker mutes
            the connection for a longer delay anyway.
    """

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s = max_delay_s
        self._until = 0.0

    def update(self, throttle_time_ms: int) -> None:
        """Apply the throttle time of a response."""
        if throttle_time_ms > 0:
            self._until = time.monotonic() + min(self._max_delay_s, throttle_time_ms / 1000)

    def remaining(self) -> float:
        """Return the seconds to wait before the next request."""
        return max(0.0, self._until - time.monotonic())
