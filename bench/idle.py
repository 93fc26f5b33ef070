"""CPU usage of the whole machine. A run begins when it is idle, so that it does not pay for the run before it."""

from __future__ import annotations

import sys
import time

import psutil

#: Maximum CPU usage of an idle machine, in cores, and duration of one measurement, in seconds.
_IDLE_CORES, _INTERVAL_S = 0.1, 0.5

_TIMEOUT_S = 120.0


def wait_until_idle() -> None:
    """Wait until all processes together use hardly any CPU time: brokers write to disk after a topic was filled.

    If this takes too long, print a warning and return.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while (used := psutil.cpu_percent(_INTERVAL_S) / 100 * (psutil.cpu_count() or 1)) > _IDLE_CORES:
        if time.monotonic() > deadline:
            print(f"other programs use {used:.1f} cores, which distorts the results", file=sys.stderr, flush=True)
            return


def read_cpu_seconds() -> float:
    """Return the CPU seconds that all processes have used since the machine was started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
