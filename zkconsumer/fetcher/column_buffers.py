"""ColumnBuffers: buffers with the layout of Arrow columns, which the decoder fills."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from zkconsumer.broker.buffers import allocate
from zkconsumer.fetcher.column_writer import STATE, Counts


class ColumnBuffers:
    """Column buffers; ``column_writer`` describes their layout.

    Args:
        rows: capacity in rows.
        size: capacity of the key column and of the value column, in bytes each.
        headers: number of headers, total header key size and total header value size; None to ignore headers.
    """

    def __init__(self, rows: int, size: int, headers: tuple[int, int, int] | None) -> None:
        new, bits = allocate, (rows + 7) // 8
        fixed = new(8 * rows), new(8 * rows), new(4 * rows)
        key, value = ((new(4 * (rows + 1)), new(bits), new(size)) for _ in range(2))
        self.columns = (*fixed, *key, *value)
        self.headers: tuple[Any, ...] | None = None
        if headers is not None:
            self.headers = (new(4 * (rows + 1)), new(bits), *_allocate_headers(*headers))
        self.state = bytearray(STATE.size)

    def offset_at(self, row: int) -> int:
        """Return the offset of a row."""
        return int(memoryview(self.columns[0]).cast("B").cast("q")[row])

    def counts(self) -> Counts:
        """Return the decoder's counters."""
        return Counts._make(STATE.unpack(self.state))


#: Offsets, validity bits and data of a column without values. The decoder does not write to it.
_EMPTY = tuple(pa.py_buffer(bytearray(size)) for size in (4, 0, 0))


def _allocate_headers(count: int, key_bytes: int, value_bytes: int) -> tuple[Any, ...]:
    """Return the buffers for header keys, and those for header values."""
    if not count:
        return *_EMPTY, *_EMPTY
    ends, bits = 4 * (count + 1), (count + 7) // 8
    return tuple(allocate(size) for size in (ends, bits, key_bytes, ends, bits, value_bytes))
