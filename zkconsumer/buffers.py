"""Large buffers that are used again: for the answers of brokers and for decoded columns.

One thread fills such a buffer and others let it go, at thousands a second. Under that, general allocators keep
tens of megabytes for each thread that ever had one; here, what is kept has a limit.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from typing import Any

import pyarrow as pa

#: Bytes from which on a buffer comes from here; smaller ones are the business of Arrow's allocator.
_LARGE = 1 << 16

#: Bytes of free buffers that are kept at most.
_KEPT = 16 << 20


class _Loan(weakref.ref[memoryview]):
    """Tells that nobody uses a region any more."""

    __slots__ = ("region",)
    region: mmap.mmap


# Regions come back in the middle of anything, even of what happens here, for the garbage collector may run at any
# time. So there is no lock; each step on these two is atomic.
_free: deque[mmap.mmap] = deque()
_loans: dict[int, _Loan] = {}


def allocate(size: int) -> Any:
    """Return a writable Arrow buffer of ``size`` bytes whatever they hold; it comes back by itself."""
    if size < _LARGE:
        return pa.allocate_buffer(size)
    region = _take(size)
    view = memoryview(region)[:size]
    loan = _Loan(view, _give_back)
    loan.region = region
    _loans[id(loan)] = loan
    return pa.py_buffer(view)


def _take(size: int) -> mmap.mmap:
    needed = -(-size // _LARGE) * _LARGE
    for region in reversed(list(_free)):  # the last one is the most likely to be in the processor's cache
        if needed <= len(region) <= needed + needed // 4:
            try:
                _free.remove(region)
            except ValueError:
                continue  # another thread was quicker
            return region
    return mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _give_back(loan: _Loan) -> None:
    del _loans[id(loan)]
    _free.append(loan.region)
    while sum(map(len, list(_free))) > _KEPT:
        try:
            _free.popleft()
        except IndexError:
            return
