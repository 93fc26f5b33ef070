"""Wait for conditions with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

#: Default timeout in seconds, for conditions that are reached immediately on an idle machine.
TIMEOUT_S = 20.0


def wait_for(
    condition: Callable[[], T | Literal[False] | None],
    timeout: float = TIMEOUT_S,
    *,
    what: str = "",
    interval: float = 0.01,
) -> T:
    """Call ``condition`` every ``interval`` seconds until its result is true, and return the result.

    Raises:
        AssertionError: the result was not true within ``timeout`` seconds. The message contains the last result.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or 'the condition'}; last result {answer!r}")
        time.sleep(interval)


def wait_until_equal(actual: Callable[[], object], expected: object, timeout: float = TIMEOUT_S) -> None:
    """Call ``actual`` until its result equals ``expected``; fail with both values after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while (found := actual()) != expected:
        if time.monotonic() > deadline:
            assert found == expected, f"not within {timeout:g} s"
        time.sleep(0.01)
