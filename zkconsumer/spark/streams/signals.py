"""Handles the signals that stop an application."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def handling_signals(signalled: threading.Event) -> Iterator[None]:
    """Set ``signalled`` on SIGINT or SIGTERM, instead of calling the previous signal handler.

    After either signal, SIGINT raises KeyboardInterrupt.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: object) -> None:
        if signalled.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        signalled.set()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
