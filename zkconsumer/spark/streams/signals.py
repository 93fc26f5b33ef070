"""Handles the signals that stop an application."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from zkconsumer.signals import END_SIGNALS, handle_end_signals


class StopSignal:
    """Signal handler that records that a signal arrived.

    It sets an attribute, because ``threading.Event.set`` acquires a lock that the interrupted code may hold.

    Attributes:
        has_arrived: whether a signal arrived.
    """

    def __init__(self) -> None:
        self.has_arrived = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.has_arrived = True


@contextmanager
def handling_signals() -> Iterator[StopSignal]:
    """Record the signals that end a program, instead of calling the previous handlers.

    Signals that are ignored stay ignored. Further signals have no effect.
    """
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    stop = StopSignal()
    try:
        handle_end_signals(stop)
        yield stop
    finally:
        for number, handler in before.items():
            if handler is not None:  # None if it was not set by Python
                signal.signal(number, handler)
