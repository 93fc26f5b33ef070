"""Kernel: runs the threads of simulated processes one at a time, on a virtual clock.

Each thread is a greenlet. Only the kernel chooses which of the runnable threads continues, with the random numbers of
the schedule, so a seed determines the whole run. The clock moves by a few microseconds per step, and jumps to the next
timer when no thread can run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

#: Seconds that a step takes, so that a loop without a timeout does not stop the clock.
_STEP_S = 2e-6

#: Maximum number of steps at the same timer: more are a loop that waits for nothing.
_MAX_STEPS = 200_000


class StuckError(AssertionError):
    """The threads run without an end, although no timer is due."""


class Process:
    """A simulated process.

    Attributes:
        name: process name, which is also its host name.
        address: IP address.
        is_suspended: whether its threads are stopped, as with ``SIGSTOP``.
        is_dead: whether it was killed or has ended.
        on_end: functions that are called when the process ends, for example to close its sockets.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_suspended = False
        self.is_dead = False
        self.on_end: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return self.name


class Task:
    """A thread of a simulated process.

    Attributes:
        process: its process.
        name: thread name.
        locals: values of ``threading.local`` objects.
        is_done: whether it has ended.
    """

    def __init__(self, process: Process, name: str, function: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.locals: dict[int, dict[str, Any]] = {}
        self.thread: Any = None
        self.is_done = False
        self.is_runnable = False
        self.was_woken = False
        self.parked = 0  # number of calls of ``park``, by which a timer recognizes that it is outdated
        self.greenlet = greenlet(function)

    def __repr__(self) -> str:
        return f"{self.process}/{self.name}"


class Kernel:
    """The scheduler and the clock.

    Attributes:
        random: random numbers of the schedule.
        now: seconds since the start of the schedule.
        current: running thread; None while the kernel itself runs.
        steps: number of thread switches.
        switch_share: share of possible points at which another thread may run.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.current: Task | None = None
        self.steps = 0
        self.switch_share = self.random.choice((0.0, 0.02, 0.1, 0.3))
        self._runnable: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._main = getcurrent()
        self._failure: BaseException | None = None

    # ---- for the code of threads ----

    def spawn(self, process: Process, name: str, function: Callable[[], object]) -> Task:
        """Start a thread."""

        def run() -> None:
            try:
                function()
            except BaseException as error:
                self.fail(error)
            finally:
                task.is_done = True

        task = Task(process, name, run)
        task.greenlet.parent = self._main
        self._make_runnable(task)
        return task

    def park(self, timeout_s: float | None = None) -> bool:
        """Stop the running thread until another one calls ``wake``; return False if the timeout has expired."""
        task = self.current
        assert task is not None, "the kernel itself cannot wait"
        task.parked += 1
        task.was_woken = False
        if timeout_s is not None:
            number = task.parked
            self.call_later(max(0.0, timeout_s), lambda: self._resume(task, number))
        self._switch()
        return task.was_woken

    def wake(self, task: Task) -> None:
        """Let a parked thread continue."""
        task.was_woken = True
        if not task.is_runnable and not task.is_done:
            self._make_runnable(task)

    def pause(self) -> None:
        """Let another thread run, in some of the calls."""
        task = self.current
        if task is not None and self.switch_share and self.random.random() < self.switch_share:
            task.parked += 1
            self._make_runnable(task)
            self._switch()

    def sleep(self, seconds: float) -> None:
        """Stop the running thread for some time."""
        self.park(seconds)

    def fail(self, error: BaseException) -> None:
        """End the schedule with an error."""
        if self._failure is None:
            self._failure = error

    # ---- for servers, faults and checks ----

    def call_at(self, time: float, function: Callable[[], object]) -> None:
        """Call a function, which must not wait, at a time."""
        heapq.heappush(self._timers, (max(time, self.now), next(self._numbers), function))

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function, which must not wait, after some seconds."""
        self.call_at(self.now + seconds, function)

    def suspend(self, process: Process) -> None:
        """Stop the threads of a process."""
        process.is_suspended = True

    def resume(self, process: Process) -> None:
        """Continue the threads of a suspended process."""
        process.is_suspended = False

    def kill(self, process: Process) -> None:
        """End a process; its threads do not run anything any more."""
        if not process.is_dead:
            process.is_dead = True
            self._runnable = [task for task in self._runnable if task.process is not process]
            for function in process.on_end:
                function()

    def run(self, until: float, condition: Callable[[], bool] | None = None) -> bool:
        """Run the threads until a time, or until a condition that is checked when the clock jumps.

        Returns:
            whether the condition is true.

        Raises:
            StuckError: the threads do not come to rest.
            BaseException: the error passed to ``fail``.
        """
        steps = 0
        while self._failure is None:
            ready = [task for task in self._runnable if not task.process.is_suspended]
            if ready:
                self._step(self.random.choice(ready) if len(ready) > 1 else ready[0])
                steps += 1
                if steps > _MAX_STEPS:
                    raise StuckError(f"{steps} steps without a timer; runnable: {ready}")
            if not ready or (self._timers and self._timers[0][0] <= self.now):
                steps = 0
                if condition is not None and condition():
                    return True
                if not self._timers or self._timers[0][0] > until:
                    if ready:
                        continue
                    self.now = max(self.now, until)
                    break
                time, _, function = heapq.heappop(self._timers)
                self.now = max(self.now, time)
                function()
            elif self.now > until:
                break
        if self._failure is not None:
            raise self._failure
        return condition is not None and condition()

    def _step(self, task: Task) -> None:
        self._runnable.remove(task)
        task.is_runnable = False
        self.steps += 1
        self.now += _STEP_S
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def _switch(self) -> None:
        self._main.switch()

    def _resume(self, task: Task, number: int) -> None:
        if task.parked == number and not task.is_runnable and not task.is_done:
            self._make_runnable(task)

    def _make_runnable(self, task: Task) -> None:
        if not task.process.is_dead:
            task.is_runnable = True
            self._runnable.append(task)


#: The kernel of the running schedule. Each schedule runs in a process of its own.
_kernels: list[Kernel] = []


def install_kernel(new: Kernel) -> None:
    """Set the kernel of this process."""
    _kernels[:] = [new]


def kernel() -> Kernel:
    """Return the kernel of this process."""
    return _kernels[0]


def is_simulated() -> bool:
    """Whether the caller is a simulated thread."""
    return bool(_kernels) and _kernels[0].current is not None


__all__ = ["Kernel", "Process", "StuckError", "Task", "install_kernel", "is_simulated", "kernel"]
