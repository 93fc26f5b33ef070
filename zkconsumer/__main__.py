"""Entry point of the ``zkconsumer`` command and of ``python -m zkconsumer``."""

from __future__ import annotations

import os
import signal
import sys

from zkconsumer.signals import FirstSignal, Interrupt, handle_end_signals


def run() -> int:
    """Run the tool given on the command line, and return its exit code.

    The first signal that ends the tool raises ``KeyboardInterrupt``. Later signals do not interrupt the cleanup.
    """
    handle_end_signals(_exit)  # no cleanup is needed while modules are imported
    from zkconsumer.tools.cli import main

    first = FirstSignal(lambda _number: Interrupt())
    handle_end_signals(first)
    code = 0
    try:
        code = main()
        if first.number is not None:
            first.close()
    except KeyboardInterrupt:
        first.close()
    if first.number is None:
        return code
    handle_end_signals(signal.SIG_IGN)  # otherwise, a signal would terminate the interpreter while it exits
    return _exit_code(first.number)


def _exit_code(number: int) -> int:
    return 128 + number


def _exit(number: int, _frame: object) -> None:
    os._exit(_exit_code(number))


if __name__ == "__main__":
    sys.exit(run())
