"""Retries calls that raise ``RetriableError``, and polls until a call returns True."""

from __future__ import annotations

import threading
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_fixed,
)

from zkconsumer.errors import RetriableError


def retrying(timeout_s: float, *, interval_s: float = 0.1, stop: threading.Event | None = None) -> Retrying:
    """Return a tenacity ``Retrying`` that repeats a call for as long as it raises ``RetriableError``.

    ``Retrying`` sleeps between two calls, and raises the last error when the timeout expires.

    Args:
        timeout_s: seconds after which the call is no longer retried.
        interval_s: seconds between two calls.
        stop: event that ends the retries; it interrupts the wait between two calls, and at most one more call follows.
    """
    return Retrying(retry=retry_if_exception_type(RetriableError), reraise=True, **_limits(timeout_s, interval_s, stop))


def polling(timeout_s: float, *, interval_s: float, stop: threading.Event) -> Retrying:
    """Return a tenacity ``Retrying`` that repeats a call until it returns True or the timeout expires.

    ``Retrying`` returns the result of the last call. Exceptions are not retried. See ``retrying`` for the arguments.
    """
    return Retrying(
        retry=retry_if_result(lambda is_done: not is_done),
        retry_error_callback=_last_result,
        **_limits(timeout_s, interval_s, stop),
    )


def _limits(timeout_s: float, interval_s: float, stop: threading.Event | None) -> dict[str, Any]:
    timeout, wait = stop_after_delay(timeout_s), wait_fixed(interval_s)
    if stop is None:
        return {"wait": wait, "stop": timeout}
    return {"wait": wait, "stop": timeout | stop_when_event_set(stop), "sleep": sleep_using_event(stop)}


def _last_result(state: RetryCallState) -> Any:
    return None if state.outcome is None else state.outcome.result()
