"""Threads that their owner starts, stops and joins, and calls that signal handlers cannot interrupt."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Maximum seconds that a method called by the application blocks before it wakes up to run signal handlers. They run in
#: the main thread, but the operating system may deliver a signal to another thread without waking the main thread.
WAKE_INTERVAL_S = 0.5

#: ``is_internal`` is True in the threads of this package.
_local = threading.local()


class OwnedThread:
    """A daemon thread that its owner can join from any thread, even from the thread itself.

    The owner makes ``run`` return, usually by setting an event, and then calls ``join``.

    Args:
        run: function that the thread executes.
        name: thread name.
        on_crash: function that is called in the thread with an exception raised by ``run``. It must report the
            exception to the application, or at least log it.
    """

    def __init__(self, run: Callable[[], object], name: str, on_crash: Callable[[BaseException], object]) -> None:
        self._function = run
        self._on_crash = on_crash
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def name(self) -> str:
        """Thread name."""
        return self._thread.name

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not terminated; False in a forked process."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to terminate.

        Args:
            timeout_s: maximum seconds to wait.

        Returns:
            Whether the thread has terminated or was never started. A call in the thread itself does not wait, and
            returns False.
        """
        if self.is_alive and not self.is_current:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _run(self) -> None:
        _local.is_internal = True
        try:
            self._function()
        except BaseException as error:
            self._on_crash(error)


class WakeUp:
    """Wakes up a waiting thread. ``set`` may be called in a signal handler.

    ``threading.Event`` and ``threading.Condition`` acquire a lock. A signal handler that calls them would block forever
    if it interrupted a thread that holds this lock. An exception that a signal handler raises in ``Condition.wait`` may
    also leave the lock released, so that ``with`` fails with "release unlocked lock".
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # is released by ``set``
        self._lock.acquire()

    def set(self) -> None:
        """Make the current or the next ``wait`` return early. May be called by any thread, and repeatedly."""
        if self._lock.locked():  # checked for speed, because raising an exception takes longer
            with contextlib.suppress(RuntimeError):  # raised if another thread has just released the lock
                self._lock.release()

    def clear(self) -> None:
        """Undo earlier calls of ``set``. Called by the thread that waits."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for ``set``; return whether it was called. Only one thread at a time may wait.

        Args:
            timeout_s: maximum seconds to wait; None to wait indefinitely, which methods called by the application must
                not do (see ``WAKE_INTERVAL_S``).
        """
        return self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)


class ThreadCall(Generic[T]):
    """A function call in a thread of its own.

    ``threading.Thread.join`` is not used: in Python 3.11, a thread counts as terminated if a signal handler raises an
    exception while the main thread joins it.

    Args:
        function: the function.
        name: thread name.
        done: is set when the call has ended.
        daemon: whether the interpreter may exit before the call has ended.
    """

    def __init__(self, function: Callable[[], T], name: str, done: WakeUp, *, daemon: bool) -> None:
        self._function = function
        self._name = name
        self._daemon = daemon
        self._done = done
        self._once = threading.Lock()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self.is_done = False

    def start(self) -> None:
        """Start the call; has no effect if it was already started.

        If no thread can be started, for example because the interpreter is exiting, the call runs in this thread.
        """
        try:
            threading.Thread(target=self._run_in_thread, name=self._name, daemon=self._daemon).start()
        except RuntimeError:
            self._run()

    def result(self) -> T:
        """Return the result of a call that has ended, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run_in_thread(self) -> None:
        _local.is_internal = True
        self._run()

    def _run(self) -> None:
        if not self._once.acquire(blocking=False):
            return  # ``start`` was interrupted, and called again
        try:
            self._results.append(self._function())
        except BaseException as error:
            self._error = error
        self.is_done = True
        self._done.set()


class _ProtectedCall(Generic[T]):
    """A call in a thread of its own, during which the signal handlers raise no exceptions in the main thread.

    It is not sufficient that the caller catches the exceptions: if several signals arrive at once, Python calls their
    handlers one after another, so the second exception can be raised in the ``except`` clause for the first one.

    Attributes:
        call: the call. The interpreter does not exit before it has ended.
        interruption: first exception of a signal handler; None if there was none.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._done = WakeUp()
        self.call = ThreadCall(function, name, self._done, daemon=False)
        self.interruption: BaseException | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._catches = True

    def run(self) -> None:
        """Start the call, and wait until it has ended; must be called again after an exception."""
        if threading.current_thread() is threading.main_thread():
            self._replace_handlers()
        if not self.call.is_done:
            self.call.start()
        while not self.call.is_done:
            self._done.wait(WAKE_INTERVAL_S)
        self._restore_handlers()

    def _replace_handlers(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler != self._handle:
                self._handlers[number] = handler
                with contextlib.suppress(ValueError):  # raised in a subinterpreter, where no handler runs
                    signal.signal(number, self._handle)

    def _restore_handlers(self) -> None:
        """Restore the signal handlers, except those that the application has replaced in the meantime."""
        self._catches = False
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if not self._catches:
                raise
            if self.interruption is None:
                self.interruption = error


def run_protected(function: Callable[[], T], name: str) -> T:
    """Run a function to its end, even if signal handlers raise exceptions in the meantime.

    The function runs in a thread of its own, because signal handlers run in the main thread. The calling thread waits
    for the end of the function, and then raises the first exception of a signal handler. If the function failed, its
    exception is the cause.

    Args:
        function: function that returns within a limited time. A thread of this package calls it directly, because
            signal handlers do not interrupt that thread.
        name: thread name.
    """
    if getattr(_local, "is_internal", False) or sys.is_finalizing():  # at interpreter exit, a new thread would not run
        return function()
    protected: _ProtectedCall[T] | None = None
    interruption: BaseException | None = None
    while True:
        try:
            protected = protected or _ProtectedCall(function, name)
            protected.run()
            break
        except BaseException as error:  # raised before the signal handlers were replaced
            if interruption is None:
                interruption = error
    if interruption is None:
        interruption = protected.interruption
    if interruption is None:
        return protected.call.result()
    try:
        protected.call.result()
    except BaseException as error:
        raise interruption from error
    raise interruption
