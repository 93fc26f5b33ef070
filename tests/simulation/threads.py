"""Simulated threads, locks, queues and clocks, in place of those of ``threading``, ``queue`` and ``time``.

``install`` must be called before the modules that use them are imported. Code that runs outside a simulated thread,
such as an import, uses the same locks, which are then free.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .kernel import Task, install_kernel, is_simulated, kernel

#: Seconds since the epoch at which the virtual clock starts.
EPOCH = 1_700_000_000.0


class Lock:
    """Like ``threading.Lock``."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not is_simulated():
            is_free, self._is_held = not self._is_held, True
            assert is_free or not blocking, "the lock is held by a simulated thread"
            return is_free
        kernel().pause()
        if not self._is_held:
            self._is_held = True
            return True
        if not blocking or timeout == 0:
            return False
        deadline = None if timeout < 0 else kernel().now + timeout
        task = kernel().current
        assert task is not None
        while self._is_held:
            remaining = None if deadline is None else deadline - kernel().now
            if remaining is not None and remaining <= 0:
                return False
            self._waiting.append(task)
            if not kernel().park(remaining):
                self._waiting.remove(task)
        self._is_held = True
        return True

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        while self._waiting:
            task = self._waiting.popleft()
            if not task.process.is_dead:
                kernel().wake(task)
                break

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._is_held = False


class RLock:
    """Like ``threading.RLock``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        caller = get_ident()
        if self._owner == caller:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = caller, 1
        return True

    def release(self) -> None:
        if self._owner != get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return self._owner == get_ident()

    def _release_save(self) -> tuple[int, object]:
        state = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return state

    def _acquire_restore(self, state: tuple[int, object]) -> None:
        self._lock.acquire()
        self._count, self._owner = state

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


class Local:
    """Like ``threading.local``."""

    def __init__(self) -> None:
        object.__setattr__(self, "_outside", {})

    def _values(self) -> dict[str, Any]:
        task = kernel().current if is_simulated() else None
        values: dict[str, Any] = self.__dict__["_outside"] if task is None else task.locals.setdefault(id(self), {})
        return values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._values()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._values()[name]


def get_ident() -> int:
    """Return the number of the calling thread; 0 outside the simulation."""
    task = kernel().current if is_simulated() else None
    return 0 if task is None else id(task)


def _start(thread: Any) -> None:
    task = kernel().current
    if task is None:
        raise RuntimeError("threads are started by simulated threads")
    if thread._simulated is not None:
        raise RuntimeError("threads can only be started once")
    kernel().pause()
    started = kernel().spawn(task.process, thread.name, lambda: _run(thread))
    started.thread, thread._simulated = thread, started


def _run(thread: Any) -> None:
    try:
        thread.run()
    finally:
        thread._done.set()


def _join(thread: Any, timeout: float | None = None) -> None:
    if thread._simulated is None:
        raise RuntimeError("cannot join thread before it is started")
    if thread._simulated is kernel().current:
        raise RuntimeError("cannot join current thread")
    thread._done.wait(None if timeout is None else max(0.0, timeout))


def _is_alive(thread: Any) -> bool:
    return thread._simulated is not None and not thread._done.is_set()


_main_thread = threading.main_thread()
_original_init = threading.Thread.__init__


def _initialize(thread: Any, *arguments: Any, **settings: Any) -> None:
    _original_init(thread, *arguments, **settings)
    thread._simulated = None
    thread._done = threading.Event()
    thread._daemonic = True


def _current_thread() -> Any:
    task = kernel().current if is_simulated() else None
    return _main_thread if task is None or task.thread is None else task.thread


def start_thread(process: Any, name: str, function: Callable[[], object]) -> Any:
    """Start the first thread of a process, and return it."""
    thread: Any = threading.Thread(target=function, name=name)
    thread._simulated = kernel().spawn(process, name, lambda: _run(thread))
    thread._simulated.thread = thread
    return thread


def _monotonic() -> float:
    if is_simulated():
        kernel().pause()
    return _now()


def _now() -> float:
    try:
        return kernel().now
    except IndexError:
        return 0.0


def _sleep(seconds: float) -> None:
    kernel().sleep(seconds)


def _urandom(size: int) -> bytes:
    try:
        return kernel().random.randbytes(size)
    except IndexError:
        return bytes(size)


def install() -> None:
    """Replace threads, locks, queues, clocks and random bytes of this interpreter."""
    module: Any = threading
    module.Lock = module._allocate_lock = Lock
    module.RLock = RLock
    module.local = Local
    module.get_ident = module.get_native_id = get_ident
    module.current_thread = _current_thread
    module._time = _now
    Thread: Any = threading.Thread
    Thread.__init__ = _initialize
    Thread._simulated = None
    Thread.start, Thread.join, Thread.is_alive = _start, _join, _is_alive
    Thread.ident = property(lambda thread: None if thread._simulated is None else id(thread._simulated))
    queues: Any = queue
    queues.SimpleQueue = queues._PySimpleQueue
    queues.time = _now
    clock: Any = time
    clock.monotonic = clock.perf_counter = _monotonic
    clock.monotonic_ns = clock.perf_counter_ns = lambda: int(_monotonic() * 1e9)
    clock.time = lambda: EPOCH + _now()
    clock.time_ns = lambda: int((EPOCH + _now()) * 1e9)
    clock.clock_gettime = lambda _number: _monotonic()
    clock.sleep = _sleep
    system: Any = os
    system.urandom = _urandom
    registry: Any = atexit
    registry.register = lambda function, *_arguments, **_settings: function
    registry.unregister = lambda _function: None


__all__ = ["EPOCH", "install", "install_kernel", "start_thread"]
