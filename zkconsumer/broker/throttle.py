"""Throttle: the delay before the next request, as requested by the broker."""

from __future__ import annotations

import time


class Throttle:
    """Delay requested by a broker through ``throttle_time_ms``; as of Kafka 2.0, clients must apply it (KIP-219).

    Args:
        max_delay_s: maximum delay in seconds, so that a corrupt value cannot stop the client for days. If the requested
            delay is longer, the broker mutes the connection anyway.
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
