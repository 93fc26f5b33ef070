"""Pool of large buffers for broker responses and decoded columns.

One thread fills a buffer and another thread releases it, thousands of times per second. With this pattern,
general-purpose allocators retain tens of megabytes per allocating thread. The pool retains a bounded amount of memory.

See docs/decisions/12-buffer-per-chunk.rst.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from typing import Any

import pyarrow as pa

#: Minimum size of a pooled buffer in bytes; larger sizes are multiples of it. Smaller buffers are allocated by Arrow.
_LARGE = 1 << 16

#: Minimum size of a buffer that Arrow allocates. Arrow releases the GIL for each allocation, and other threads can take
#: it; a chunk with a few records needs more than ten small buffers. They are allocated by Python, which keeps the GIL.
_MEDIUM = 4096

#: Maximum total size of the free buffers, in bytes.
_MAX_FREE = 16 << 20


class _RegionRef(weakref.ref[memoryview]):
    """Weak reference to a view of a memory region. Its callback releases the region when the view is deleted."""

    __slots__ = ("region",)
    region: mmap.mmap


class BufferPool:
    """Pool of reusable buffers. Thread-safe."""

    def __init__(self) -> None:
        # The garbage collector may release a region at any time, even inside a method of this class, so a lock could
        # deadlock. Instead, every operation on these two fields is atomic.
        self._free: deque[mmap.mmap] = deque()
        self._in_use: dict[int, _RegionRef] = {}

    def allocate(self, size: int) -> Any:
        """Return a writable, uninitialized Arrow buffer of ``size`` bytes.

        A large buffer returns to the pool as soon as it is no longer referenced.
        """
        if size < _MEDIUM:
            return pa.py_buffer(bytearray(size))
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
        for region in reversed(list(self._free)):  # recently released regions may be in the CPU cache
            if needed <= len(region) <= needed + needed // 4:
                try:
                    self._free.remove(region)
                except ValueError:
                    continue  # another thread acquired the region
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


#: Buffer pool of this process.
_pool = BufferPool()
allocate = _pool.allocate
