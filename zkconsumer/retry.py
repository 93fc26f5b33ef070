"""Retries of calls that raise ``RetriableError``."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from zkconsumer.errors import RetriableError


def retrying(timeout_s: float, *, interval_s: float = 0.1) -> Retrying:
    """Return a tenacity ``Retrying`` that calls a function again while it raises ``RetriableError``.

    It blocks between two calls. When the timeout has expired, it raises the last error.

    Args:
        timeout_s: seconds after which there is no further call.
        interval_s: seconds between two calls.
    """
    return Retrying(
        retry=retry_if_exception_type(RetriableError),
        wait=wait_fixed(interval_s),
        stop=stop_after_delay(timeout_s),
        reraise=True,
    )
