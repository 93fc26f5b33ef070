"""Calls in other threads, and the threads that are alive after a test."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from typing import Any

from helpers.waiting import TIMEOUT_S


def in_thread(function: Callable[[], Any]) -> InThread:
    """Start ``function`` in another thread and return the thread."""
    return InThread(function)


class InThread(threading.Thread):
    """A thread that calls a function and keeps its result."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(name="test-call", daemon=True)
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = TIMEOUT_S) -> Any:
        """Wait for the call; return its result or raise its exception."""
        self.join(timeout)
        assert not self.is_alive(), "the call has not returned"
        if self._error is not None:
            raise self._error
        return self._result


def remaining_threads(before: Collection[threading.Thread], timeout: float = 5.0) -> list[str]:
    """Return the name and stack of each thread that is not in ``before`` and is alive after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        left = [thread for thread in threading.enumerate() if thread not in before]
        if not left:
            return []  # without _current_frames, which can deadlock in Python 3.11 if the garbage collector runs in it
        if time.monotonic() > deadline:
            frames = sys._current_frames()
            stacks = [(thread.name, traceback.format_stack(frames.get(thread.ident or 0))) for thread in left]
            return [f"{name}:\n{''.join(stack)}" for name, stack in sorted(stacks)]
        time.sleep(0.01)
