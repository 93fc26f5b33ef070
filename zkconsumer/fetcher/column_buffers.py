"""ColumnBuffers: buffers with the layout of Arrow columns, which the decoder fills."""

from __future__ import annotations

from typing import Any

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
            count, key_bytes, value_bytes = headers
            ends, header_bits = 4 * (count + 1), (count + 7) // 8
            self.headers = (
                *(new(4 * (rows + 1)), new(bits)),
                *(new(ends), new(header_bits), new(key_bytes)),
                *(new(ends), new(header_bits), new(value_bytes)),
            )
            if not count:  # without headers, the decoder never writes the first offset
                for at in (2, 5):
                    memoryview(self.headers[at]).cast("B")[:] = bytes(4)
        self.state = bytearray(STATE.size)

    def offset_at(self, row: int) -> int:
        """Return the offset of a row."""
        return int(memoryview(self.columns[0]).cast("B").cast("q")[row])

    def counts(self) -> Counts:
        """Return the decoder's counters."""
        return Counts._make(STATE.unpack(self.state))
