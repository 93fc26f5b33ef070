"""ColumnWriter: fills the buffers of Arrow columns row by row; used by ``decode_py``.

The buffers are little-endian. Those in ``columns`` and ``headers`` need not be initialized:

- ``columns``: offset i64, timestamp i64, timestamp type i32, then for keys and for values: offsets i32 (rows + 1),
  validity bits, data;
- ``headers``: list offsets i32 (rows + 1), list validity bits, then for header keys and for header values: offsets
  i32 (headers + 1), validity bits, data;
- ``state``: ten i64 counters, see ``Counts``, which are kept between calls.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from zkconsumer.fetcher.record_format import MalformedError


class Counts(NamedTuple):
    """Counters in ``state``: numbers of rows, headers, bytes, nulls and clamped timestamps written so far."""

    rows: int
    key_bytes: int
    value_bytes: int
    key_nulls: int
    value_nulls: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    header_lists_null: int
    timestamps_clamped: int


#: Layout of ``state``.
STATE = struct.Struct(f"={len(Counts._fields)}q")


def _set_bit(bitmap: memoryview, row: int, value: bool) -> None:
    """Set bit ``row`` to ``value``; writing the first bit of a byte clears the other bits."""
    if row & 7 == 0:
        bitmap[row >> 3] = 0
    bitmap[row >> 3] |= int(value) << (row & 7)


class BytesColumn:
    """A column of binary values."""

    def __init__(self, offsets: Any, validity: Any, data: Any) -> None:
        self.offsets = memoryview(offsets).cast("B").cast("i")
        self.validity = memoryview(validity).cast("B")
        self.data = memoryview(data).cast("B")

    @property
    def capacity(self) -> int:
        """Capacity of the offsets and validity bits, in rows."""
        return min(max(len(self.offsets) - 1, 0), len(self.validity) * 8)

    def put(self, row: int, used: int, value: memoryview | None) -> int:
        """Write a row after the first ``used`` bytes of the data buffer; return the new number of used bytes."""
        if value is not None and len(value):
            if len(value) > len(self.data) - used:
                raise MalformedError
            self.data[used : used + len(value)] = value
            used += len(value)
        self.offsets[row + 1] = used
        _set_bit(self.validity, row, value is not None)
        return used


class ColumnWriter:
    """Writes the rows of a single ``decode`` call to the columns.

    ``counters`` is a working copy of ``state``; ``save`` writes it back.
    """

    def __init__(self, columns: tuple[Any, ...], headers: tuple[Any, ...] | None, state: Any) -> None:
        self.offset = memoryview(columns[0]).cast("B").cast("q")
        self.timestamp = memoryview(columns[1]).cast("B").cast("q")
        self.timestamp_type = memoryview(columns[2]).cast("B").cast("i")
        self.key = BytesColumn(*columns[3:6])
        self.value = BytesColumn(*columns[6:9])
        self.capacity = min(
            len(self.offset),
            len(self.timestamp),
            len(self.timestamp_type),
            self.key.capacity,
            self.value.capacity,
        )
        self.header_capacity = 0
        self.with_headers = headers is not None
        if headers is not None:
            self.list_offsets = memoryview(headers[0]).cast("B").cast("i")
            self.list_validity = memoryview(headers[1]).cast("B")
            self.header_key = BytesColumn(*headers[2:5])
            self.header_value = BytesColumn(*headers[5:8])
            self.capacity = min(self.capacity, max(len(self.list_offsets) - 1, 0), len(self.list_validity) * 8)
            self.header_capacity = min(self.header_key.capacity, self.header_value.capacity)
        self._state = memoryview(state).cast("B").cast("q")
        self.counters = dict(zip(Counts._fields, self._state, strict=False))
        self._write_first_offsets()

    def _write_first_offsets(self) -> None:
        if self.capacity and self.counters["rows"] == 0:
            self.key.offsets[0] = self.value.offsets[0] = 0
            if self.with_headers:
                self.list_offsets[0] = 0
        if self.header_capacity and self.counters["headers"] == 0:
            self.header_key.offsets[0] = self.header_value.offsets[0] = 0

    def save(self) -> None:
        """Write the counters to ``state``."""
        for i, name in enumerate(Counts._fields):
            self._state[i] = self.counters[name]

    def put(
        self, offset: int, timestamp: int, timestamp_type: int, key: memoryview | None, value: memoryview | None
    ) -> None:
        """Append a row without its headers."""
        counters, row = self.counters, self.counters["rows"]
        if row >= self.capacity:
            raise MalformedError
        self.offset[row], self.timestamp[row], self.timestamp_type[row] = offset, timestamp, timestamp_type
        counters["key_bytes"] = self.key.put(row, counters["key_bytes"], key)
        counters["key_nulls"] += key is None
        counters["value_bytes"] = self.value.put(row, counters["value_bytes"], value)
        counters["value_nulls"] += value is None
        counters["rows"] += 1

    def put_header(self, key: memoryview, value: memoryview | None) -> None:
        """Append a header to the last row."""
        counters, row = self.counters, self.counters["headers"]
        if row >= self.header_capacity:
            raise MalformedError
        counters["header_key_bytes"] = self.header_key.put(row, counters["header_key_bytes"], key)
        counters["header_value_bytes"] = self.header_value.put(row, counters["header_value_bytes"], value)
        counters["headers"] += 1

    def end_headers(self, count: int) -> None:
        """End the header list of the last row; an empty list becomes null, as in Spark's Kafka source."""
        row = self.counters["rows"] - 1
        self.list_offsets[row + 1] = self.counters["headers"]
        _set_bit(self.list_validity, row, count > 0)
        self.counters["header_lists_null"] += count == 0
