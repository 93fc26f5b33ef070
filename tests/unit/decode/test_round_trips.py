"""Tests of decoding what ``batches`` wrote, with all formats and codecs."""

from __future__ import annotations

import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD, Record, expected
from hypothesis import given

from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.message import TopicPartition

from .chunks import (
    PARTITION,
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
)


@pytest.mark.usefixtures("twin")
@given(log=logs())
@examples(200)
def test_any_written_batch_is_read(log: list[Part]) -> None:
    data, rows = joined(log)
    messages, batched, bare = read(data), read_arrow(data), read_arrow(data, headers=False)
    assert (messages.rows, messages.error) == (rows, "")
    assert (batched.rows, batched.error) == (in_microseconds(rows), "")
    assert (bare.rows, bare.error) == (in_microseconds(rows, headers=False), "")
    assert messages.blocks == batched.blocks == bare.blocks
    assert messages.next_offsets == batched.next_offsets == bare.next_offsets
    if log[-1].rows:
        assert messages.next_offsets[-1] == log[-1].next_offset


@every_codec
@pytest.mark.usefixtures("twin")
def test_offsets_are_absolute_with_gaps(magic: int, codec: int) -> None:
    records = [Record(offset, value=b"%d" % offset) for offset in (1000, 1001, 1005, 1 << 20)]
    rows = read(chunk_of(batches.entry(magic, records, codec), 1000)).rows
    assert [(row.offset, row.value) for row in rows] == [(r.offset, r.value) for r in records]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [GZIP, LZ4], ids=CODEC_NAMES.__getitem__)
def test_bytes_after_compressed_records_are_ignored(codec: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "zkconsumer.fetcher")
    records = [Record(offset, value=b"%d" % offset) for offset in range(3)]
    encoded = b"".join(batches.encoded_record(record, 0, records[0].timestamp) for record in records)
    followed = batches.batch(records, codec, payload=batches.compress(codec, encoded) + bytes(30))
    found = read(followed + batches.batch([Record(3)], codec))
    assert ([row.offset for row in found.rows], found.error) == ([0, 1, 2, 3], "")
    assert caplog.text.count("trailing_bytes_ignored") == 1
    assert "topic='events' partition=3 offset=0 byte_count=30" in caplog.text


@every_codec
@pytest.mark.usefixtures("twin")
def test_null_and_empty_keys_and_values_differ(magic: int, codec: int) -> None:
    pairs = [(None, None), (b"", None), (None, b""), (b"", b""), (b"k", b"v")]
    records = [Record(at, key=key, value=value) for at, (key, value) in enumerate(pairs)]
    data = batches.entry(magic, records, codec)
    assert [(row.key, row.value) for row in read(data).rows] == pairs
    assert [(row.key, row.value) for row in read_arrow(data).rows] == pairs


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", batches.CODECS[2], ids=CODEC_NAMES.__getitem__)
def test_headers_keep_order_duplicates_and_nulls(codec: int) -> None:
    lists = [
        (("b", b"1"), ("a", None), ("b", b""), ("", b"2"), ("\u00fc\U0001f600", b"\xff")),
        (),
        (("x", None),),
    ]
    records = [Record(at, headers=headers) for at, headers in enumerate(lists)]
    data = batches.batch(records, codec)
    assert [row.headers for row in read(data).rows] == lists
    assert [row.headers for row in read_arrow(data).rows] == lists


@pytest.mark.usefixtures("twin")
def test_row_without_headers_is_null_in_arrow() -> None:
    records = [Record(0), Record(1, headers=(("h", b""),)), Record(2)]
    found, _ = arrow_batches(batches.batch(records), include_headers=True)
    assert found[0][0].column("headers").to_pylist() == [None, [{"key": "h", "value": b""}], None]


@pytest.mark.usefixtures("twin")
def test_header_name_that_is_not_utf8_stays_readable() -> None:
    """Java writes UTF-8 only, but librdkafka accepts any bytes, which Java's consumer replaces by U+FFFD."""
    data = batches.batch([Record(0, headers=(("a\udcff", b"1"), ("b", b"2")))])
    assert read(data).rows[0].headers == (("a\udcff", b"1"), ("b", b"2"))
    assert read_arrow(data).rows[0].headers == (("a\ufffd", b"1"), ("b", b"2"))


@pytest.mark.usefixtures("twin")
def test_batch_of_many_rows_is_read() -> None:
    records = [Record(at, at, b"%d" % at, None if at % 3 else b"v" * (at % 50)) for at in range(5000)]
    rows = [expected(record, 2) for record in records]
    for codec in (NONE, ZSTD):
        data = batches.batch(records, codec)
        assert read(data).rows == rows
        assert read_arrow(data, headers=False).rows == in_microseconds(rows)


@pytest.mark.usefixtures("twin")
def test_reader_serves_several_partitions() -> None:
    reader = ArrowReader()
    for rows, partition in (
        (3, PARTITION),
        (5000, PARTITION),
        (4, TopicPartition("other", 0)),
        (2, PARTITION),
    ):
        data = batches.batch([Record(at) for at in range(rows)])
        ((batch, after),) = reader.read(Chunk(partition, 0, rows, data))
        assert (len(batch), after) == (rows, rows)
        assert set(zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True)) == {partition}
