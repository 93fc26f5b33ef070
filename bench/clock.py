"""Clock: the throughput and the CPU time of a client without its start."""

from __future__ import annotations

import resource
import time


class Clock:
    """Measures the time between the first and the last arrival, and counts the records."""

    def __init__(self) -> None:
        self.total = 0
        self._first = 0
        self._started = self._last = 0.0
        self._cpu_started = self._cpu = 0.0

    def count(self, records: int) -> int:
        """Record the arrival of ``records`` records, and return the total number of records."""
        self._last, self._cpu = time.perf_counter(), time.process_time()
        if not self.total:
            self._first, self._started, self._cpu_started = records, self._last, self._cpu
        self.total += records
        return self.total

    def result(self) -> dict[str, float]:
        """Return the figures of this process.

        Returns:
            ``records`` after the first arrival, ``seconds`` and ``cpu seconds`` until the last arrival, and the
            ``peak bytes`` of memory.
        """
        return {
            "records": self.total - self._first,
            "seconds": self._last - self._started,
            "cpu seconds": self._cpu - self._cpu_started,
            "peak bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
