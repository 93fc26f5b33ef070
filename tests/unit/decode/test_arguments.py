"""Tests of the decoders' functions with any arguments."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from helpers import batches
from helpers.batches import Record

from zkconsumer.fetcher import decode_py
from zkconsumer.fetcher.chunk import NO_LIMIT
from zkconsumer.fetcher.column_writer import STATE

from .chunks import I64_MAX, column_sizes, columns_of


@pytest.mark.parametrize("start", [-1, 6, I64_MAX])
def test_scan_rejects_a_start_outside_of_data(twin: Any, start: int) -> None:
    with pytest.raises(IndexError):
        twin.scan(b"12345", start, 0, NO_LIMIT, 1, 1, 0)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (0, 6), (6, 6)])
def test_ranges_outside_of_data_are_rejected(twin: Any, start: int, end: int) -> None:
    with pytest.raises(IndexError):
        twin.measure(b"12345", start, end, 0)
    state, columns = bytearray(STATE.size), columns_of(column_sizes(1, 10))
    with pytest.raises(IndexError):
        twin.decode(b"12345", start, end, 2, 0, 0, 0, 0, 0, 0, NO_LIMIT, 1, state, columns, None)


def test_measure_counts_headers(twin: Any) -> None:
    records = [Record(0, headers=(("ab", b"123"), ("c", None))), Record(1), Record(2, headers=(("", b"4"),))]
    data = batches.batch(records)
    assert twin.measure(data, 0, len(data), -1) == (3, 3, 4)
    assert twin.measure(data, 61, len(data), 3) == (3, 3, 4)
    assert twin.measure(data + data, 0, 2 * len(data), -1) == (6, 6, 8)
    assert twin.measure(data + data[:-1], 0, 2 * len(data) - 1, -1) == (3, 3, 4)


@pytest.mark.parametrize("short", range(9))
def test_decode_stops_before_entry_without_room(twin: Any, short: int) -> None:
    data = b"".join(batches.batch([Record(at, key=b"key", value=b"value")]) for at in range(3))
    sizes = [24, 24, 12, 16, 1, 9, 16, 1, 15]
    sizes[short] = 0 if sizes[short] == 1 else sizes[short] - 1
    if twin is decode_py and short not in (4, 5, 7, 8):
        sizes[short] -= 7 if short < 2 else 3  # a memoryview can only be cast to a whole number of elements
    state, columns = bytearray(STATE.size), columns_of(sizes)
    args = (data, 0, len(data), 2, 0, 0, 0, 0, -1, 0, NO_LIMIT, 1, state, columns, None)
    rows = 0 if short in (4, 7) else 2
    assert twin.decode(*args) == rows * len(data) // 3
    assert struct.unpack_from("=q", state)[0] == rows
