"""ColumnBuffers: buffers with the layout of Arrow columns, which the decoder fills."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from zkconsumer.broker.buffers import allocate
from zkconsumer.fetcher.column_writer import STATE, Counts

#: Buffers of a column without values: an offset, no validity bits and no data. The decoder does not write to them.
_EMPTY = tuple(pa.py_buffer(bytearray(size)) for size in (4, 0, 0))


class ColumnBuffers:
    """Column buffers; ``column_writer`` describes their layout.

    Args:
        rows: capacity in rows.
        size: capacity of the key column and of the value column, in bytes each.
        headers: number of headers, total header key size and total header value size; None to ignore headers.
    """

    def __init__(self, rows: int, size: int, headers: tuple[int, int, int] | None) -> None:
        numbers = allocate(8 * rows), allocate(8 * rows), allocate(4 * rows)
        self.columns = (*numbers, *_allocate_values(rows, size), *_allocate_values(rows, size))
        self.headers: tuple[Any, ...] | None = None
        if headers is not None:
            count, key_bytes, value_bytes = headers
            names, contents = _allocate_values(count, key_bytes), _allocate_values(count, value_bytes)
            self.headers = (*_allocate_rows(rows), *names, *contents)
        self.state = bytearray(STATE.size)

    def offset_at(self, row: int) -> int:
        """Return the offset of a row."""
        return int(memoryview(self.columns[0]).cast("B").cast("q")[row])

    def counts(self) -> Counts:
        """Return the decoder's counters."""
        return Counts._make(STATE.unpack(self.state))


def _allocate_rows(rows: int) -> tuple[Any, Any]:
    """Return the offsets and the validity bits of a column."""
    return allocate(4 * (rows + 1)), allocate((rows + 7) // 8)


def _allocate_values(rows: int, size: int) -> tuple[Any, ...]:
    """Return the buffers of a column of binary values; those of an empty column are shared."""
    return (*_allocate_rows(rows), allocate(size)) if rows else _EMPTY
