"""Ctrl-C in the demo."""

from __future__ import annotations

import signal


class CtrlC:
    """Raises KeyboardInterrupt at the first Ctrl-C; further ones are ignored, so they cannot interrupt the clean-up."""

    def __init__(self) -> None:
        self._is_pressed = False

    def handle(self) -> None:
        """Install the signal handler; again after a library has replaced it."""
        signal.signal(signal.SIGINT, self._on_signal)

    def check(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C. Python discards one that is raised in a callback of the interpreter."""
        if self._is_pressed:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._is_pressed = True
        raise KeyboardInterrupt
