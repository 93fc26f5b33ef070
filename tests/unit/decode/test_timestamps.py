"""Tests of decoding timestamps and offsets, with their extreme values."""

from __future__ import annotations

import pytest
from helpers import batches
from helpers.batches import LZ4, NONE, Record

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.decode import ChunkReader

from .chunks import I64_MAX, I64_MIN, chunk_of, every_codec, read, read_arrow, with_length


@every_codec
@pytest.mark.usefixtures("twin")
def test_timestamp_type_is_read(magic: int, codec: int) -> None:
    records = [Record(0, 1_000), Record(1, 3_000), Record(2, 2_000)]
    rows = read(batches.entry(magic, records, codec)).rows
    if magic == 0:
        assert [(row.timestamp, row.timestamp_type) for row in rows] == [(-1, -1)] * 3
        return
    assert [(row.timestamp, row.timestamp_type) for row in rows] == [(1_000, 0), (3_000, 0), (2_000, 0)]
    rows = read(batches.entry(magic, records, codec, log_append_time=9_000)).rows
    assert [(row.timestamp, row.timestamp_type) for row in rows] == [(9_000, 1)] * 3


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(
    ("milliseconds", "microseconds"),
    [
        (1_600_000_000_123, 1_600_000_000_123_000),
        (0, 0),
        (-1, -1000),
        (I64_MAX // 1000, I64_MAX // 1000 * 1000),
        (I64_MAX // 1000 + 1, I64_MAX),
        (I64_MAX, I64_MAX),
        (-(I64_MAX // 1000), -(I64_MAX // 1000) * 1000),
        (-(I64_MAX // 1000) - 1, I64_MIN),
        (I64_MIN, I64_MIN),
    ],
)
def test_timestamps_are_clamped_microseconds(magic: int, milliseconds: int, microseconds: int) -> None:
    data = batches.entry(magic, [Record(0, 5), Record(1, milliseconds)])
    assert [row.timestamp for row in read(data).rows] == [5, milliseconds]
    assert [row.timestamp for row in read_arrow(data).rows] == [5000, microseconds]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("magic", [1, 2])
def test_clamped_timestamps_are_counted(magic: int) -> None:
    times = [5, I64_MAX // 1000, I64_MAX // 1000 + 1, -(I64_MAX // 1000) - 1, I64_MAX, I64_MIN]
    chunk = chunk_of(batches.entry(magic, [Record(offset, time) for offset, time in enumerate(times)]))

    for scale, clamped in ((1, 0), (1000, 4)):
        [block] = ChunkReader(chunk, headers=False).read_blocks(scale)
        assert (block.rows, block.counts.timestamps_clamped) == (6, clamped)


@pytest.mark.usefixtures("twin")
def test_clamped_timestamps_of_corrupt_batch_are_not_counted() -> None:
    whole = batches.batch([Record(0, I64_MAX)])
    cut = batches.batch(
        [Record(1, I64_MAX), Record(2, I64_MAX)], base_offset=1, payload=with_length(b"\x00" * 5) + b"\x00" * 10
    )
    blocks = ChunkReader(chunk_of(whole + cut), headers=False).read_blocks(1000)

    assert next(blocks).counts.timestamps_clamped == 1
    with pytest.raises(CorruptRecordError, match="corrupt record"):
        next(blocks)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    ("delta", "milliseconds"),
    [
        (b"\x80" * 9 + b"\x7e", 0),
        (b"\x80" * 9 + b"\x7f", 1 << 62),
        (b"\xff" * 9 + b"\x7f", I64_MIN),
        (b"\xfe" + b"\xff" * 8 + b"\x7f", I64_MAX),
        (b"\x82\x00", 1),
    ],
    ids=["no bit fits", "one bit fits", "least", "largest", "longer than needed"],
)
def test_surplus_varint_bits_are_dropped(delta: bytes, milliseconds: int) -> None:
    """Source: Kafka 3.9 ByteUtils.readVarlong, which shifts them out."""
    payload = with_length(b"\x00" + delta + b"\x00\x01\x01\x00")
    data = batches.batch([Record(0, 0)], payload=payload)
    assert [row.timestamp for row in read(data).rows] == [milliseconds]


@pytest.mark.usefixtures("twin")
def test_offsets_wrap_at_64_bits() -> None:
    """Offsets wrap as in Java. The largest number cannot be an offset, because ``until`` is exclusive."""
    records = [Record(at) for at in range(I64_MAX - 1, I64_MAX + 2)]
    data = batches.batch([record._replace(offset=record.offset - I64_MAX + 1) for record in records])
    found = read(chunk_of(batches.patched(data, 0, "q", I64_MAX - 1), I64_MIN))
    assert [row.offset for row in found.rows] == [I64_MAX - 1, I64_MIN]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_delete_horizon_does_not_change_timestamps(codec: int) -> None:
    """Compaction stores the horizon as the base of the timestamp deltas (KIP-534)."""
    records = [Record(0, 1_000), Record(1, 2_000)]
    data = batches.batch(records, codec, delete_horizon=1_650_000_000_000)
    assert [row.timestamp for row in read(data).rows] == [1_000, 2_000]
