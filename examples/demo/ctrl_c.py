"""Ctrl-C handling of the demo."""

from __future__ import annotations

import signal


class CtrlC:
    """Raises KeyboardInterrupt on the first Ctrl-C. Later ones are ignored, so they cannot interrupt the clean-up."""

    def __init__(self) -> None:
        self._is_pressed = False

    def handle(self) -> None:
        """Install the signal handler. Call this again after a library replaced the handler."""
        signal.signal(signal.SIGINT, self._on_signal)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, even if Python discarded the first exception in a callback."""
        if self._is_pressed:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._is_pressed = True
        raise KeyboardInterrupt
