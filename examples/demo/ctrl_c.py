"""Handling of Ctrl-C, SIGTERM and SIGHUP in the demo."""

from __future__ import annotations

import signal

from zkconsumer.signals import END_SIGNALS

#: Signals that end the demo. Those that are ignored at its start, for example by nohup, stay ignored.
_HANDLED = [number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


class CtrlC:
    """Raises KeyboardInterrupt on the first signal. Later ones are ignored, so they cannot interrupt the clean-up.

    Attributes:
        number: number of the first signal; None if there was none.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self) -> None:
        """Install the signal handlers. Call this again after a library replaced a handler."""
        if self.number is None:
            for number in _HANDLED:
                signal.signal(number, self._on_signal)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal arrived, even if Python discarded the first exception in a callback."""
        if self.number is not None:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, _frame: object) -> None:
        ignore_signals()
        self.number = number
        raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignore Ctrl-C, SIGTERM and SIGHUP."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
