"""Reuse of large buffers for the responses of brokers and for decoded columns.

One thread fills such a buffer and other threads release it, thousands of times per second. General-purpose allocators
then retain tens of megabytes for each thread that ever allocated one. This pool retains a limited number of bytes.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from typing import Any

import pyarrow as pa

#: Minimum size in bytes of a pooled buffer, and the unit of its size; Arrow allocates smaller buffers.
_LARGE = 1 << 16

#: Maximum size in bytes of all free buffers together.
_MAX_FREE = 16 << 20


class _RegionRef(weakref.ref[memoryview]):
    """Weak reference to the view of a region, whose callback releases the region."""

    __slots__ = ("region",)
    region: mmap.mmap


class BufferPool:
    """Free and used buffers. Thread-safe."""

    def __init__(self) -> None:
        # The garbage collector may release a region at any time, also within the methods of this class. A lock could
        # therefore deadlock; instead, each operation on these two is atomic.
        self._free: deque[mmap.mmap] = deque()
        self._in_use: dict[int, _RegionRef] = {}

    @property
    def free_bytes(self) -> int:
        """Size of all free buffers together."""
        return sum(map(len, list(self._free)))

    def allocate(self, size: int) -> Any:
        """Return a writable, uninitialized Arrow buffer of ``size`` bytes.

        A large buffer returns to the pool as soon as nothing refers to it any longer.
        """
        if size < _LARGE:
            return pa.allocate_buffer(size)
        region = self._acquire(size)
        view = memoryview(region)[:size]
        reference = _RegionRef(view, self._release)
        reference.region = region
        self._in_use[id(reference)] = reference
        return pa.py_buffer(view)

    def _acquire(self, size: int) -> mmap.mmap:
        needed = -(-size // _LARGE) * _LARGE
        for region in reversed(list(self._free)):  # the latest one is most likely in the processor's cache
            if needed <= len(region) <= needed + needed // 4:
                try:
                    self._free.remove(region)
                except ValueError:
                    continue  # another thread has acquired it
                return region
        return mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def _release(self, reference: _RegionRef) -> None:
        del self._in_use[id(reference)]
        self._free.append(reference.region)
        while sum(map(len, list(self._free))) > _MAX_FREE:
            try:
                self._free.popleft()
            except IndexError:
                return


#: The pool of this process.
_pool = BufferPool()
allocate = _pool.allocate
