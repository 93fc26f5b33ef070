"""Tests of the first and the last offset that are read from a chunk."""

from __future__ import annotations

import pytest
from helpers import batches
from helpers.batches import Record
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.fetcher.chunk import NO_LIMIT

from .chunks import Part, chunk_of, error_text, every_codec, examples, in_microseconds, joined, logs, read, read_arrow


@pytest.mark.usefixtures("twin")
@given(log=logs(), data=st.data())
@examples(100)
def test_only_offsets_in_range_are_read(log: list[Part], data: st.DataObject) -> None:
    raw, rows = joined(log)
    last = log[-1].next_offset
    bounds = st.sampled_from([0, *(row.offset + d for row in rows for d in (0, 1)), last, NO_LIMIT])
    fetch_offset, until = data.draw(bounds), data.draw(bounds)
    chunk = chunk_of(raw, fetch_offset, until)
    wanted = [row for row in rows if fetch_offset <= row.offset < until]
    assert read(chunk).rows == wanted
    assert read_arrow(chunk).rows == in_microseconds(wanted)


@every_codec
@pytest.mark.usefixtures("twin")
def test_compressed_entry_may_start_below_the_fetch_offset(magic: int, codec: int) -> None:
    records = [Record(at, value=b"%d" % at) for at in range(10, 20)]
    data = batches.entry(magic, records, codec)
    assert [row.offset for row in read(chunk_of(data, 15)).rows] == [15, 16, 17, 18, 19]
    assert [row.offset for row in read(chunk_of(data, 12, 14)).rows] == [12, 13]
    following = batches.entry(magic, [Record(20)])
    assert [row.offset for row in read(chunk_of(data + following, 20)).rows] == [20]


@pytest.mark.usefixtures("twin")
def test_corruption_below_fetch_offset_raises() -> None:
    """After a wrong size, the position of the next entry is unknown."""
    data = bytearray(batches.batch([Record(0)]) + batches.batch([Record(1)]))
    data[-1] ^= 1
    data[60] ^= 1
    chunk = chunk_of(data, 1)
    assert read(chunk).error.startswith(error_text("CRC does not match", 1, 0, chunk))
