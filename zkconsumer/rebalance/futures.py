"""Functions that run in one thread for another: their results, and waiting for them while events are processed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def complete_future(future: Future[T], function: Callable[[], T | Future[T]]) -> None:
    """Run a function, unless its future has been cancelled, and complete the future with the result or the error.

    If the function returns a future, the result or the error of that future is used when it is done.
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
    """Wait until a future is done; returns False if it is not done at the deadline.

    Args:
        wait: processes events for at most that many seconds; returns early when the future is done.
        deadline: ``time.monotonic``.
    """
    while not future.done():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        wait(remaining)
    return True
