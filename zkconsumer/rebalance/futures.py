"""Completes futures with the results of functions, and waits for futures while processing events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

T = TypeVar("T")


def complete_future(future: Future[T], function: Callable[[], T]) -> None:
    """Run ``function``, and complete ``future`` with its result or exception unless it is already done."""
    try:
        result = function()
    except BaseException as error:
        fail_future(future, error)
        return
    with contextlib.suppress(InvalidStateError):
        future.set_result(result)


def fail_future(future: Future[Any], error: BaseException) -> None:
    """Complete ``future`` with an exception unless it is already done; another thread may complete it concurrently."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def wait_until_done(future: Future[T], wait: Callable[[float], object], deadline: float) -> bool:
    """Wait until a future is done; return False if it is not done by the deadline.

    Args:
        future: future to wait for.
        wait: function that processes events for a given maximum time in seconds, and returns early when ``future`` is
            done.
        deadline: deadline, as a value of ``time.monotonic()``.
    """
    while not future.done():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        wait(remaining)
    return True
