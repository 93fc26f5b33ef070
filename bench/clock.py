"""Clock: the throughput and the CPU time of a client without its start."""

from __future__ import annotations

import time
from pathlib import Path


class Clock:
    """Measures the time from ``start``, or from the first arrival, to the last arrival, and counts the records."""

    def __init__(self) -> None:
        self.total = 0
        self._first = 0
        self._started = self._last = 0.0
        self._cpu_started = self._cpu = 0.0

    def start(self) -> None:
        """Start before the first request, so that the records of the first arrival count."""
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def count(self, records: int) -> int:
        """Record the arrival of ``records`` records, and return the total number of records."""
        self._last, self._cpu = time.perf_counter(), time.process_time()
        if not self._started:
            self._first, self._started, self._cpu_started = records, self._last, self._cpu
        self.total += records
        return self.total

    def result(self) -> dict[str, float]:
        """Return the figures of this process.

        Returns:
            the number of ``records`` (without those of the first arrival, unless ``start`` was called), the ``seconds``
            and the ``cpu seconds``, and the ``peak bytes`` of memory.
        """
        # Not ru_maxrss, which a child process inherits from its parent.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {
            "records": self.total - self._first,
            "seconds": self._last - self._started,
            "cpu seconds": self._cpu - self._cpu_started,
            "peak bytes": int(status["VmHWM"].split()[0]) * 1024,
        }
