"""Values that other processes reported to the driver, of which only the most recent ones are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """The most recently stored values by key. Any thread may use it.

    Args:
        max_count: maximum number of values; the value that was stored first is removed.
    """

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Store a value, which replaces an earlier value of the same key."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._max_count:
                self._values.popitem(last=False)

    def get(self, key: K, default: V) -> V:
        """Return the value of a key, or a default if there is none."""
        with self._lock:
            return self._values.get(key, default)

    def pop(self, key: K, default: V) -> V:
        """Remove and return the value of a key; return a default if there is none."""
        with self._lock:
            return self._values.pop(key, default)
