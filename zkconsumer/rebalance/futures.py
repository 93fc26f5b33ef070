"""Completes futures with the results of functions, and waits for futures while processing events."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def complete_future(future: Future[T], function: Callable[[], T | Future[T]]) -> None:
    """Run ``function`` unless ``future`` was cancelled, and complete ``future`` with its result or exception.

    If ``function`` itself returns a future, the result or exception of that future is used once it is done.
    """
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
        return
    if isinstance(result, Future):
        result.add_done_callback(lambda done: _copy_result(done, future))
    else:
        future.set_result(result)


def _copy_result(source: Future[T], target: Future[T]) -> None:
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


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
