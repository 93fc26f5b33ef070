"""Terminal output of the demo: sentences that describe the phases, and a table of the members."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.status import Status
from rich.table import Table

#: Interval over which rates are measured, in seconds.
_RATE_INTERVAL_S = 3.0


class Screen:
    """The user's terminal. All other output goes to a log file."""

    def __init__(self, output: IO[str]) -> None:
        self._console = Console(file=output, highlight=False)
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a sentence, prefixed with the seconds elapsed since the demo started."""
        row = Table.grid(padding=(0, 2))
        row.add_row(f"[dim]{time.monotonic() - self._started:3.0f} s[/]", text)
        self._console.print(row)

    def waiting(self, what: str) -> Status:
        """Return a context manager that shows on a terminal what the demo is waiting for."""
        return self._console.status(f"[dim]{what} ...[/]")

    @contextlib.contextmanager
    def live(self) -> Iterator[Live]:
        """Return a context manager for a live display. Its last content stays on the screen."""
        with Live(console=self._console, auto_refresh=False) as live:
            yield live
        if not self._console.is_terminal:
            self._console.print()  # rich ends the line only on a terminal


class Members:
    """A table with the partitions, the rate and the lag of each member."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counter[str]]] = deque()

    def table(
        self, owners: Mapping[int, str], read: Counter[str], positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> Table:
        """Return the table of members.

        Args:
            owners: owner of each partition.
            read: number of records that each member read.
            positions: next offset to read in each partition.
            ends: end offset of each partition.
        """
        now = time.monotonic()
        self._samples.append((now, read.copy()))
        while now - self._samples[0][0] > _RATE_INTERVAL_S:
            self._samples.popleft()
        before, earlier = self._samples[0]
        table = Table("member")
        table.add_column("partitions", min_width=15, no_wrap=True)
        for column in ("records/s", "total read", "lag"):
            table.add_column(column, justify="right", min_width=10)
        for member in sorted(read.keys() | set(owners.values()), reverse=True):
            owned = [partition for partition, owner in owners.items() if owner == member]
            rate = (read[member] - earlier[member]) / max(now - before, 1.0)
            lag = sum(max(0, ends[partition] - positions[partition]) for partition in owned)
            partitions = " ".join(map(str, owned)) or "none"
            table.add_row(member, partitions, f"{rate:,.0f}", f"{read[member]:,}", f"{lag:,}")
        return table
