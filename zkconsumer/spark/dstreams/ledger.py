"""What a source remembers of its batches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

#: Batches that a ledger remembers although they are done: windows may ask for them again after a recovery.
_REMEMBERED = 1000


class Ledger:
    """What each batch so far has, by its time in milliseconds, and which batches are done; part of a checkpoint."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Any] = OrderedDict()
        self._done: set[int] = set()
        self._settled: set[int] = set()  # done, as all before them
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {"entries": self._entries.copy(), "done": set(self._done), "settled": set(self._settled)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._entries, self._done, self._settled = state["entries"], state["done"], state["settled"]

    def __contains__(self, milliseconds: int) -> bool:
        with self._lock:
            return milliseconds in self._entries

    def get(self, milliseconds: int) -> Any:
        """Return what was added for a time, or None."""
        with self._lock:
            return self._entries.get(milliseconds)

    def add(self, milliseconds: int, entry: Any) -> None:
        """Remember one more; those that are settled are forgotten in time."""
        with self._lock:
            self._entries[milliseconds] = entry
            while len(self._entries) > _REMEMBERED and (oldest := next(iter(self._entries))) in self._settled:
                del self._entries[oldest]
                self._done.discard(oldest)
                self._settled.discard(oldest)

    def unfinished(self) -> set[int]:
        """Return the times of the batches that are not known to be done."""
        with self._lock:
            return self._entries.keys() - self._done

    def complete(self, times: Iterable[int]) -> list[Any]:
        """Take note that batches are done; returns what has been settled by that, oldest first.

        What comes after a batch that is not done, and perhaps never will be, is not settled: were the offsets of a
        later one stored, that batch would be left out.
        """
        settled = []
        with self._lock:
            self._done.update(times)
            for time, entry in self._entries.items():
                if time not in self._done:
                    break
                if time not in self._settled:
                    self._settled.add(time)
                    settled.append(entry)
        return settled
