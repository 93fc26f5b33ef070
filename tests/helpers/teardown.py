"""Stop what a fixture started."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def started(make: Callable[P, T], stop: Callable[[T], object]) -> Iterator[Callable[P, T]]:
    """Yield a function that calls ``make``; at the end of the block, call ``stop`` with each of its results.

    The last result is stopped first. If ``stop`` raises an exception, the other results are stopped nevertheless, and
    the exception is raised afterwards.
    """
    with contextlib.ExitStack() as stack:

        def start(*args: P.args, **kwargs: P.kwargs) -> T:
            one = make(*args, **kwargs)
            stack.callback(stop, one)
            return one

        yield start
