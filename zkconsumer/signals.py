"""Handlers of the signals that end a program: Ctrl-C, SIGTERM, and SIGHUP, which is sent when the terminal closes."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Signals that end a program.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds between the loss of an exception and the next call of the handler.
_REPEAT_INTERVAL_S = 0.01

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


class Interrupt(KeyboardInterrupt):
    """``KeyboardInterrupt`` that ``FirstSignal`` raises. The built-in class does not support weak references."""


class Exit(SystemExit):
    """``SystemExit`` that ``FirstSignal`` raises. The built-in class does not support weak references."""


class FirstSignal:
    """Signal handler that raises an exception at the first signal only, so that the cleanup is not interrupted.

    Python discards an exception that is raised in a ``__del__`` method or in a callback of compiled code. In this case,
    the handler is called again. It is not called again if other code catches the exception, because the cleanup may
    already be running.

    Must be created in the main thread.

    Args:
        error: function that returns the exception for a signal number.

    Attributes:
        number: number of the first signal; None if there was none.
    """

    def __init__(self, error: Callable[[int], Interrupt | Exit]) -> None:
        self.number: int | None = None
        self._create = error
        self._is_waiting = True  # for the signal that raises the exception
        self._raised: Callable[[], BaseException | None] = _no_error
        self._report: Callable[[Any], object] | None = None  # the hook that ``_on_discarded`` replaces

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
        if self._is_waiting:
            self._is_waiting = False
            raise self._new_error(self.number)  # a variable would keep the exception in its own traceback

    def close(self) -> None:
        """Ignore further signals; called when the cleanup has ended."""
        self._is_waiting, self._raised = False, _no_error
        if self._report is not None and sys.unraisablehook == self._on_discarded:
            sys.unraisablehook, self._report = self._report, None

    def _new_error(self, number: int) -> BaseException:
        if self._report is None:
            self._report, sys.unraisablehook = sys.unraisablehook, self._on_discarded
        error = self._create(number)
        self._raised = weakref.ref(error)
        return error

    def _on_discarded(self, unraisable: Any) -> None:
        """Call the handler again if its exception was discarded; report other exceptions as before."""
        raised = self._raised()
        # An exception that is discarded during the cleanup has the exception of the handler as its context. The
        # cleanup is still handling the latter.
        if not _has_context(unraisable.exc_value, raised) or _has_context(sys.exception(), raised):
            (self._report or sys.__unraisablehook__)(unraisable)
            return
        self._raised = _no_error
        if _is_exiting():
            return
        # An exception raised before this function returns is discarded, too. The interrupted code may hold a lock of
        # ``threading``, so its classes are not used.
        with contextlib.suppress(RuntimeError):  # raised while the interpreter exits
            _thread.start_new_thread(self._repeat, ())
        self._is_waiting = True

    def _repeat(self) -> None:
        time.sleep(_REPEAT_INTERVAL_S)
        number = self.number
        if number is not None and callable(signal.getsignal(number)) and not _is_exiting():
            signal.pthread_kill(threading.main_thread().ident or 0, number)


def _no_error() -> None:
    return None


def _has_context(error: BaseException | None, context: BaseException | None) -> bool:
    """Return whether ``context`` is ``error`` or one of its contexts, which may form a cycle."""
    seen: set[int] = set()
    while error is not None and error is not context and id(error) not in seen:
        seen.add(id(error))
        error = error.__context__
    return error is not None and error is context


def _is_exiting() -> bool:
    """Return whether the interpreter exits. It runs the functions of ``atexit``, which must not be interrupted."""
    return not threading.main_thread().is_alive()
