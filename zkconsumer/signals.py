"""Handlers of the signals that end a program: Ctrl-C, SIGTERM, and SIGHUP, which is sent when the terminal closes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

#: Signals that end a program.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: A signal handler.
Handler = Callable[[int, FrameType | None], object]


def handle_end_signals(handler: Handler | signal.Handlers) -> None:
    """Set the handler of ``END_SIGNALS``, except those that are ignored; must be called in the main thread.

    ``nohup`` starts a program with SIGHUP ignored, and a shell starts its background jobs with SIGINT ignored. Such a
    signal stays ignored.
    """
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


class FirstSignal:
    """Signal handler that raises an exception at the first signal only, so that the cleanup is not interrupted.

    Args:
        error: function that returns the exception for a signal number.

    Attributes:
        number: number of the first signal; None if there was none.
    """

    def __init__(self, error: Callable[[int], BaseException]) -> None:
        self.number: int | None = None
        self._error = error

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            raise self._error(number)
