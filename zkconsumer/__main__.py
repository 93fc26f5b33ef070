"""Entry point of the ``zkconsumer`` command and of ``python -m zkconsumer``."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

#: Maximum seconds between two SIGINTs that are handled as one: ``timeout -s INT`` signals the process, and then its
#: process group.
_SAME_INTERRUPT_S = 0.5

_EXIT_CODE = 128 + signal.SIGINT


def run() -> int:
    """Run the tool given on the command line, and return its exit code."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False in background jobs
    if is_default:
        signal.signal(signal.SIGINT, _exit)  # no cleanup is needed while modules are imported
    from zkconsumer.tools.cli import main

    if is_default:
        signal.signal(signal.SIGINT, _Interrupts())
    try:
        return main()
    except KeyboardInterrupt:
        return _EXIT_CODE


def _exit(_number: int, _frame: object) -> None:
    os._exit(_EXIT_CODE)


class _Interrupts:
    """SIGINT handler that raises ``KeyboardInterrupt``.

    It ignores a second SIGINT that follows immediately, because this SIGINT would abort the cleanup.
    """

    def __init__(self) -> None:
        self._last_at: float | None = None

    def __call__(self, *_: Any) -> None:
        now = time.monotonic()
        if self._last_at is None or now - self._last_at > _SAME_INTERRUPT_S:
            self._last_at = now
            raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(run())
