"""Tests of dividing and merging entries into blocks of limited size."""

from __future__ import annotations

from functools import partial

import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, ZSTD, Record, expected
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.decode import ChunkReader

from .chunks import (
    ALL_CODECS,
    Part,
    arrow_batches,
    chunk_of,
    every_codec,
    examples,
    in_microseconds,
    joined,
    logs,
    read,
    read_arrow,
    rows_of,
)


@pytest.mark.usefixtures("twin")
@given(log=logs(6), max_rows=st.integers(1, 8), max_bytes=st.integers(1, 600))
@examples(100)
def test_blocks_add_up_to_the_whole(log: list[Part], max_rows: int, max_bytes: int) -> None:
    data, rows = joined(log)
    found, error = arrow_batches(data, include_headers=True, max_rows=max_rows, max_bytes=max_bytes)
    assert error is None
    assert [row for batch, _ in found for row in rows_of(batch)] == in_microseconds(rows)
    starts = [rows_of(batch)[0].offset for batch, _ in found]
    for (_, after), following in zip(found, starts[1:], strict=False):
        assert after <= following
    largest = max(len(part.rows) for part in log)
    assert all(len(batch) <= max(max_rows, largest) for batch, _ in found)
    by_rows = read(data, max_rows=max_rows)
    assert (by_rows.rows, by_rows.error) == (rows, "")


@pytest.mark.usefixtures("twin")
def test_plain_entries_are_split_at_limits() -> None:
    data = b"".join(batches.batch([Record(2 * i), Record(2 * i + 1)]) for i in range(5))
    size = len(data) // 5
    assert read(data, max_rows=4).blocks == [4, 4, 2]
    assert read(data, max_rows=5).blocks == [4, 4, 2]
    assert read(data, max_rows=1).blocks == [2, 2, 2, 2, 2]
    assert read(data, max_rows=100).blocks == [10]
    assert read_arrow(data, max_bytes=3 * size).blocks == [6, 4]
    assert read_arrow(data, max_bytes=3 * size - 1).blocks == [4, 4, 2]
    assert read_arrow(data, max_bytes=1).blocks == [2, 2, 2, 2, 2]
    assert read(data, max_rows=4).next_offsets == [4, 8, 10]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(("magic", "codec"), [pair for pair in ALL_CODECS if pair[1]])
def test_compressed_entries_are_merged_within_limits(magic: int, codec: int) -> None:
    log = [[Record(2 * i, value=b"v" * 100), Record(2 * i + 1)] for i in range(5)]
    data = b"".join(batches.entry(magic, records, codec) for records in log)
    size = len(batches.entry(magic, log[0])) - (61 if magic == 2 else 0)  # bytes of the content
    rows = [expected(record, magic) for records in log for record in records]
    whole = read(data)
    assert (whole.rows, whole.blocks, whole.next_offsets) == (rows, [10], [10])
    assert read(data, max_rows=4).blocks == [4, 4, 2]
    assert read(data, max_rows=4).next_offsets == [4, 8, 10]
    assert read(data, max_rows=1).blocks == [2, 2, 2, 2, 2]
    assert read_arrow(data, max_bytes=3 * size).blocks == [6, 4]
    assert read_arrow(data, max_bytes=3 * size - 1).blocks == [4, 4, 2]
    assert read_arrow(data).rows == in_microseconds(rows)


#: Divides batches that have more than four rows.
read_slices = partial(read, max_slice_rows=4)


@pytest.mark.usefixtures("twin")
@given(log=logs(6), max_rows=st.integers(1, 8))
@examples(50)
def test_slices_add_up_to_the_whole(log: list[Part], max_rows: int) -> None:
    data, rows = joined(log)
    found = read_slices(data, max_rows=max_rows)
    assert (found.rows, found.error) == (rows, "")
    assert max(found.blocks, default=0) <= max(4, max_rows)


@every_codec
@pytest.mark.usefixtures("twin")
def test_large_batch_is_read_in_slices(magic: int, codec: int) -> None:
    records = [Record(offset, value=b"v" * 20) for offset in range(10, 20)]
    rows = [expected(record, magic) for record in records]
    data = batches.entry(magic, records, codec) + batches.entry(magic, [Record(30)], codec)
    sliced = read_slices(chunk_of(data, 10), max_rows=4)
    assert sliced.rows == [*rows, expected(Record(30), magic)]
    assert max(sliced.blocks) == 4
    # The offset after a slice is that of its next record; after the last slice, that of the next batch.
    assert sliced.next_offsets == [14, 18, 31] if magic < 2 or codec else [14, 18, 20, 31]
    later = read_slices(chunk_of(data, 15), max_rows=4) if codec or magic == 2 else sliced
    assert [row.offset for row in later.rows][-6:] == [15, 16, 17, 18, 19, 30]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", batches.CODECS[2])
@pytest.mark.parametrize(("surplus", "end"), [(b"", 9), (b"surplus", 8)])
def test_slices_before_malformed_record_are_read(codec: int, surplus: bytes, end: int) -> None:
    """Reading resumes after the rows that were returned, so none of them is returned again."""
    records = [Record(offset, value=b"v" * 9) for offset in range(10)]
    payload = b"".join(batches.encoded_record(record, 0, records[0].timestamp) for record in records)
    payload = payload + surplus if surplus else payload[:-5]
    data = batches.batch(records, codec, payload=batches.compress(codec, payload)) + batches.batch([Record(10)])
    found = read_slices(data, max_rows=4)
    assert ([row.offset for row in found.rows], found.resume) == (list(range(end)), end)
    assert f"offset {end}: corrupt record, at byte 0 of {len(data)}" in found.error
    again = read_slices(chunk_of(data, end), max_rows=4)
    assert (again.rows, again.resume) == ([], end)


@pytest.mark.usefixtures("twin")
def test_columns_of_many_small_records_are_small() -> None:
    """A small compressed batch may have millions of records."""
    count = 300_000
    payload = bytes.fromhex("0c 00 00 00 01 01 00") * count
    data = batches.batch([Record(0)], ZSTD, payload=batches.compress(ZSTD, payload), count=count)
    assert len(data) < 5000
    blocks = list(ChunkReader(chunk_of(data), headers=True, max_rows=65_536).read_blocks(1))
    assert [block.rows for block in blocks] == [65_536] * 4 + [count - 4 * 65_536]
    assert max(len(column) for block in blocks for column in block.columns) <= 2 << 20


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(("magic", "codec"), [pair for pair in ALL_CODECS if pair[1]])
def test_decompressed_size_is_limited(magic: int, codec: int) -> None:
    data = batches.entry(magic, [Record(0)]) + batches.entry(magic, [Record(1, value=bytes(100_000))], codec)
    after = batches.entry(magic, [Record(2)])
    chunk = chunk_of(data + after)
    assert len(read(chunk).rows) == 3
    chunk.decompressed_batch_max_bytes = 50_000
    found = read_slices(chunk)
    assert ([row.offset for row in found.rows], found.resume) == ([0], 1)
    reason = f"{CODEC_NAMES[codec]} content is larger than decompressed.batch.max.bytes = 50000"
    assert f"topic 'events' partition 3 offset 1: {reason}, at byte" in found.error
    with pytest.raises(CorruptRecordError) as raised:
        list(ChunkReader(chunk, headers=False).read_blocks(1))
    assert raised.value.after == 2


@pytest.mark.usefixtures("twin")
def test_chunk_can_mix_formats() -> None:
    log = [
        Part(batches.entry(magic, [Record(at)]), [expected(Record(at), magic)], at + 1)
        for at, magic in enumerate((0, 1, 0, 2, 1, 2, 2, 0))
    ]
    data, rows = joined(log)
    found = read_slices(data)
    assert (found.rows, found.blocks, found.next_offsets) == (rows, [8], [8])
