"""Measures the CPU time of an application's processes, including processes that exited."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import TracebackType

import numpy as np
import psutil

INTERVAL_S = 0.2

#: Process kind for all exited processes, because parents report only the total CPU time of exited children.
ENDED = "ended"


class CpuSampler:
    """Samples the CPU time and memory of processes and their descendants until ``stop`` is called.

    The samples are taken in a separate thread.

    Args:
        roots: process ids of the application.

    Attributes:
        memory: peak resident memory of the largest process, in bytes, by kind of process.
    """

    def __init__(self, roots: Iterable[int]) -> None:
        self._roots = list(roots)
        self.memory: Counter[str] = Counter()
        self._samples: list[tuple[float, Counter[str], float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-cpu", daemon=True)
        self._thread.start()

    def __enter__(self) -> CpuSampler:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the thread. A second call has no effect."""
        self._stopped.set()
        self._thread.join()

    def between(self, start: float, end: float) -> dict[str, float]:
        """Return the CPU seconds used between ``start`` and ``end``, by kind of process. Idle kinds are omitted."""
        times = [at for at, _, _ in self._samples]
        kinds = sorted({kind for _, seconds, _ in self._samples for kind in seconds})
        used = {}
        for kind in kinds:
            values = [seconds[kind] for _, seconds, _ in self._samples]
            used[kind] = float(np.interp(end, times, values) - np.interp(start, times, values))
        return {kind: seconds for kind, seconds in used.items() if seconds > INTERVAL_S / 10}

    def others_between(self, start: float, end: float) -> float:
        """Return the average number of cores used by processes that this process did not start."""
        times, values = [at for at, _, _ in self._samples], [other for _, _, other in self._samples]
        return float(np.interp(end, times, values) - np.interp(start, times, values)) / (end - start)

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            used: Counter[str] = Counter()
            for root in self._roots:
                used.update(measure_tree(root))
                self.memory |= measure_memory(root)
            busy = psutil.cpu_times()
            total = busy.user + busy.nice + busy.system + busy.irq + busy.softirq
            own = sum(measure_tree(os.getpid()).values())
            self._samples.append((time.time(), used, total - own))


def measure_tree(root: int) -> Counter[str]:
    """Return the CPU seconds of a process and its descendants since they started, by kind of process."""
    used: Counter[str] = Counter()
    for process in list_tree(root):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used[describe(process)] += times.user + times.system
            used[ENDED] += times.children_user + times.children_system
    return used


def measure_memory(root: int) -> Counter[str]:
    """Return the resident memory of the largest process of each kind in a process tree, in bytes."""
    found: Counter[str] = Counter()
    for process in list_tree(root):
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= Counter({describe(process): process.memory_info().rss})
    return found


def list_tree(root: int) -> Iterator[psutil.Process]:
    """Yield a process and its descendants, if the process exists."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        yield process
        yield from process.children(recursive=True)


def describe(process: psutil.Process) -> str:
    """Return the kind of a process."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return ENDED
    if "java" in process.name():
        return "JVM"
    if "pyspark.daemon" in command:
        return "Python workers"
    modules = [command[place + 1] for place, word in enumerate(command[:-1]) if word == "-m"]
    return f"Python: {modules[0]}" if modules else process.name()
