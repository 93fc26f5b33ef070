"""The command ``zkconsumer``, also as ``python -m zkconsumer``."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

#: Seconds in which a repeated SIGINT is the same Ctrl-C: ``timeout -s INT`` sends it to the process and to its group.
_SAME_INTERRUPT_S = 0.5

_EXIT_CODE = 128 + signal.SIGINT


def run() -> int:
    """Run a tool with the arguments of the process, and return its exit code."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores the signal
    if is_default:
        signal.signal(signal.SIGINT, _exit)  # nothing has to be stopped while modules are imported
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
    """Raises KeyboardInterrupt for a SIGINT, but not for one that follows at once and would interrupt the clean-up."""

    def __init__(self) -> None:
        self._last_at: float | None = None

    def __call__(self, *_: Any) -> None:
        now = time.monotonic()
        if self._last_at is None or now - self._last_at > _SAME_INTERRUPT_S:
            self._last_at = now
            raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(run())
