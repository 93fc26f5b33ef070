"""Trying again for a while what may succeed later."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from zkconsumer.errors import RetriableError


def retrying(seconds: float, *, every: float = 0.1) -> Retrying:
    """Return what calls a function again and again while it raises ``RetriableError``, for so many seconds.

    Args:
        every: seconds between two calls.
    """
    return Retrying(
        retry=retry_if_exception_type(RetriableError),
        wait=wait_fixed(every),
        stop=stop_after_delay(seconds),
        reraise=True,
    )
