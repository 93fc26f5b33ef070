"""Tests of corrupt batches, records and compressed content."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, GOLDEN, GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, expected
from hypothesis import event, given
from hypothesis import strategies as st

from zkconsumer.fetcher import decode_py

from .chunks import (
    ALL_CODECS,
    I64_MAX,
    I64_MIN,
    chunk_of,
    error_text,
    every_codec,
    examples,
    in_microseconds,
    joined,
    read,
    read_arrow,
    three_entries,
    with_length,
)


@every_codec
@pytest.mark.usefixtures("twin")
def test_rows_before_crc_error_are_returned(magic: int, codec: int) -> None:
    log = three_entries(magic, codec)
    middle = next(i for i, part in enumerate(log) if part.rows[0].offset == 2)
    data, position = bytearray(joined(log)[0]), len(joined(log[:middle])[0])
    data[position + len(log[middle].data) - 1] ^= 0x20
    for chunk in (chunk_of(data), chunk_of(data, 1)):
        rows = [row for part in log[:middle] for row in part.rows if row.offset >= chunk.fetch_offset]
        start = error_text("CRC does not match", 2, position, chunk)
        messages, batched = read(chunk), read_arrow(chunk)
        assert (messages.rows, messages.next_offsets[-1]) == (rows, 2)
        assert (batched.rows, batched.next_offsets[-1]) == (in_microseconds(rows), 2)
        assert messages.error == batched.error
        assert messages.error.startswith(start)
        assert messages.resume == batched.resume == 2
        assert "restore the partition from a replica (to skip the batch" in messages.error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_crc_check_can_be_disabled(magic: int) -> None:
    data = bytearray(batches.entry(magic, [Record(0, value=b"vax")]))
    data[-2 if magic == 2 else -1] ^= 0x01
    assert [row.value for row in read(data, check_crcs=False).rows] == [b"vay"]
    assert read(data).error


@pytest.mark.parametrize("name", ["0 none", "0 lz4", "1 none append", "1 snappy", "2 none", "2 gzip", "2 ABORT"])
def test_every_flipped_bit_under_crc_is_detected(twin: Any, name: str) -> None:
    first = next(batches.entry_bounds(GOLDEN[name]))[1]
    entry = GOLDEN[name][:first]
    for position in range(12 if entry[16] < 2 else 17, len(entry)):
        for bit in (1, 128) if twin is decode_py else (1, 2, 4, 8, 16, 32, 64, 128):
            damaged = bytearray(entry)
            damaged[position] ^= bit
            found = read(chunk_of(damaged, 100))
            assert found.rows == []
            assert found.error, f"byte {position} bit {bit}"


@pytest.mark.usefixtures("twin")
def test_inner_message_crc_is_checked() -> None:
    inner = bytearray(batches.message_set(1, [Record(0, value=b"a"), Record(1, value=b"b")]))
    inner[34] ^= 2
    data = batches.message(1, Record(1, 0, None, batches.compress(LZ4, bytes(inner))), LZ4)
    assert read(data).error.startswith(error_text("CRC does not match", 0, 0, data))
    assert [row.value for row in read(data, check_crcs=False).rows] == [b"c", b"b"]


_BATCH = batches.batch([Record(5), Record(6)])
_MESSAGE = batches.message(1, Record(5, key=b"key", value=b"value"))
_OLD_MESSAGE = batches.message(0, Record(5, key=b"key", value=b"value"))


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (batches.patched(_BATCH, 16, "b", 3), "unknown message format"),
        (batches.patched(_BATCH, 16, "b", -1), "unknown message format"),
        (batches.patched(_BATCH, 8, "i", 48), "size is smaller than the header"),
        (batches.patched(_BATCH, 8, "i", -1), "size is smaller than the header"),
        (batches.patched(_BATCH, 8, "i", -(1 << 31)), "size is smaller than the header"),
        (batches.patched(_BATCH, 23, "i", -1), "negative last offset delta"),
        (batches.patched(_BATCH, 57, "i", -1), "negative record count"),
        (batches.patched(_BATCH, 57, "i", 3), "record count exceeds the batch size"),
        (batches.patched(_BATCH, 57, "i", (1 << 31) - 1), "record count exceeds the batch size"),
        (batches.batch([Record(5)], GZIP, count=(1 << 31) - 1), "record count exceeds the batch size"),
        (batches.batch([Record(5)], ZSTD, count=2), "record count exceeds the batch size"),
        (batches.patched(_MESSAGE, 8, "i", 21), "size is smaller than the header"),
        (batches.patched(_OLD_MESSAGE, 8, "i", 13), "size is smaller than the header"),
        (batches.patched(_MESSAGE, 26, "i", -2), "key length is out of range"),
        (batches.patched(_MESSAGE, 26, "i", 9), "key length is out of range"),
        (batches.patched(_MESSAGE, 26, "i", (1 << 31) - 1), "key length is out of range"),
        (batches.patched(_OLD_MESSAGE, 18, "i", -(1 << 31)), "key length is out of range"),
        (batches.patched(_MESSAGE, 33, "i", -2), "value length does not match the message size"),
        (batches.patched(_MESSAGE, 33, "i", 4), "value length does not match the message size"),
        (batches.patched(_MESSAGE, 33, "i", 6), "value length does not match the message size"),
        (batches.patched(_MESSAGE, 33, "i", -1), "value length does not match the message size"),
        (batches.patched(_OLD_MESSAGE, 25, "i", (1 << 31) - 1), "value length does not match the message size"),
        (batches.batch([Record(5)], 5, payload=b"x"), "unknown compression codec 5"),
        (batches.batch([Record(5)], 7, payload=b"x"), "unknown compression codec 7"),
        (batches.message(1, Record(5), 4 | 1), "unknown compression codec 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_structure_is_named(damaged: bytes, reason: str) -> None:
    """The structure is validated even if the checksum matches, or is not checked."""
    before = batches.batch([Record(4)])
    fixed = batches.with_right_crcs(damaged)
    for entry, check_crcs in ((fixed, True), (damaged, False)):
        chunk = chunk_of(before + entry, 4)
        found = read(chunk, check_crcs=check_crcs)
        assert [row.offset for row in found.rows] == [4]
        assert found.error.startswith(error_text(reason, 5, len(before), chunk))


_GOOD = with_length(b"\x00\x00\x00\x01\x01\x00")


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x00", 7), id="longer than the batch"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x00", -1) + b"\x01" * 6, id="negative length"),
        pytest.param(with_length(b"") + b"\x00" * 6, id="length 0"),
        pytest.param(b"\x80\x80\x80\x80\x80\x00" + b"\x00" * 6, id="length of six bytes"),
        pytest.param(with_length(b"\x00" + b"\x80" * 10 + b"\x00\x02\x01\x01\x00"), id="time of eleven bytes"),
        pytest.param(with_length(b"\x00\x00" + b"\x80" * 5 + b"\x00\x01\x01\x00"), id="offset of six bytes"),
        pytest.param(with_length(b"\x00\x00\x02\x03\x01\x00"), id="key length -2"),
        pytest.param(with_length(b"\x00\x00\x02\x0c\x01\x00\x00"), id="key longer than the record"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x03\x00"), id="value length -2"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x04v\x00", 7)[:-1] + b"\x00", id="value takes the header count"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x01"), id="header count -1"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x02"), id="header missing"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\xfe\xff\xff\xff\x0f"), id="many headers missing"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x02\x01\x01"), id="header name null"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x02\x00\x03"), id="header value length -2"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x02\x02n\x04v"), id="header value cut off"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x00\x00"), id="byte left in the record"),
        pytest.param(with_length(b"\x00\x00\x02\x01\x01\x00") + b"\x00", id="byte left in the batch"),
        pytest.param(with_length(b"\x00\x00\x02"), id="ends after the offset"),
        pytest.param(with_length(b"\x00"), id="ends after the attributes"),
    ],
)
def test_rows_before_malformed_batch_are_returned(codec: int, record: bytes) -> None:
    before = batches.batch([Record(8), Record(9)])
    payload = batches.compress(codec, _GOOD + record + b"\x00" * (14 - len(_GOOD + record)))
    chunk = chunk_of(before + batches.batch([Record(10), Record(11)], codec, payload=payload))
    found, batched = read(chunk), read_arrow(chunk)
    assert found.rows == [expected(Record(8), 2), expected(Record(9), 2)]
    assert batched.rows == in_microseconds(found.rows)
    assert "corrupt record" in found.error
    assert batched.error == found.error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("damage", ["record", "codec", "crc"])
def test_rows_before_corrupt_compressed_batch_are_returned(damage: str) -> None:
    """The rows are returned although they would share a block with the damaged batch and later batches."""
    headers = (("h", b"v"),)
    good = [[Record(at, headers=headers), Record(at + 1, value=None)] for at in (0, 2, 6)]
    data = [batches.batch(records, codec) for records, codec in zip(good, (GZIP, NONE, ZSTD), strict=True)]
    payload = batches.compress(GZIP, b"\x0e" * 14 if damage == "record" else _GOOD * 2)
    if damage == "codec":
        payload = payload[:-1]
    bad = bytearray(batches.batch([Record(4), Record(5)], GZIP, payload=payload))
    bad[-1] ^= damage == "crc"
    chunk = chunk_of(data[0] + data[1] + bad + data[2])
    rows = [expected(record, 2) for records in good[:2] for record in records]
    found, batched = read(chunk), read_arrow(chunk)
    assert (found.rows, found.next_offsets, found.resume) == (rows, [4], 4)
    assert (batched.rows, batched.next_offsets, batched.resume) == (in_microseconds(rows), [4], 4)
    reason = {"record": "corrupt record", "codec": "corrupt gzip data: Truncated compressed stream"}
    start = error_text(reason.get(damage, "CRC does not match"), 4, len(data[0] + data[1]), chunk)
    assert found.error.startswith(start)
    assert batched.error == found.error


@pytest.mark.usefixtures("twin")
def test_surplus_bytes_of_record_are_malformed() -> None:
    payload = with_length(b"\x00\x00\x00\x01\x01\x00" + _GOOD)
    data = batches.batch([Record(10), Record(11)], payload=payload)
    assert "corrupt record" in read(data).error
    assert "corrupt record" in read_arrow(data, headers=False).error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
def test_reading_resumes_at_malformed_batch(codec: int) -> None:
    """If reading resumed earlier, rows would be repeated each time the partition is fetched again."""
    before = batches.batch([Record(8)]) + batches.batch([Record(9)])
    payload = batches.compress(codec, _GOOD + with_length(b"\x00") + b"\x00" * 5)
    chunk = chunk_of(before + batches.batch([Record(10), Record(11)], codec, payload=payload), 8)
    found, batched = read(chunk), read_arrow(chunk)
    assert (found.next_offsets, found.resume) == ([10], 10)
    assert (batched.next_offsets, batched.resume) == ([10], 10)
    assert found.error.startswith(error_text("corrupt record", 10, len(before), chunk))
    assert batched.error == found.error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("count", [1, 3])
def test_wrong_record_count_is_malformed(count: int) -> None:
    records = [Record(at, value=b"v" * 20) for at in range(2)]
    assert "corrupt record" in read(batches.batch(records, count=count)).error
    assert "corrupt record" in read(batches.batch(records, ZSTD, count=count)).error


_INNER = batches.message_set(1, [Record(0, value=b"x" * 50), Record(1)])


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"short", id="fewer bytes than a message has"),
        pytest.param(_INNER[:60], id="first message cut off"),
        pytest.param(batches.message_set(1, [Record(0), Record(1)], GZIP), id="compressed twice"),
        pytest.param(_INNER + batches.message_set(1, [Record(2)], GZIP), id="one compressed twice"),
        pytest.param(batches.batch([Record(0)]), id="a batch of format 2"),
        pytest.param(_INNER + batches.batch([Record(0)]), id="a batch of format 2 at the end"),
    ],
)
def test_malformed_wrapper_content_is_reported(inner: bytes) -> None:
    """Source: Kafka 3.9 DeepRecordsIterator, which throws if there is no inner record."""
    before = batches.message(1, Record(3))
    wrapper = batches.message(1, Record(5, 0, None, batches.compress(GZIP, inner)), GZIP)
    chunk = chunk_of(before + wrapper + batches.message(1, Record(6)))
    found = read(chunk)
    assert [row.offset for row in found.rows] == [3]
    assert found.error.startswith(error_text("corrupt compressed message set", 4, len(before), chunk))
    assert found.resume == 4


@pytest.mark.usefixtures("twin")
def test_wrapper_without_value_is_reported() -> None:
    assert read(batches.message(1, Record(5, 0, None, None), GZIP)).error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("offset", [I64_MIN, I64_MIN + 1, I64_MAX - 1, I64_MAX])
def test_wrapper_with_impossible_offset_is_corrupt(offset: int) -> None:
    """No checksum covers the offset of a wrapper."""
    data = batches.patched(batches.message_set(1, [Record(0), Record(1)], GZIP), 0, "q", offset)
    for fetch_offset in (0, I64_MIN, I64_MIN + 1):
        found = read(chunk_of(data, fetch_offset))
        assert all(row.offset >= fetch_offset for row in found.rows)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(("magic", "codec"), [pair for pair in ALL_CODECS if pair[1]])
@given(data=st.data())
@examples(40)
def test_damaged_compression_is_a_corrupt_record(magic: int, codec: int, data: st.DataObject) -> None:
    """The checksum matches, as after damage in the memory of the producer."""
    records = [Record(at, value=b"the quick brown fox %d" % at) for at in range(20)]
    whole = batches.entry(magic, records, codec)
    start = 61 if magic == 2 else whole.index(batches.compress(codec, b"", magic)[:2] if codec != SNAPPY else b"\x82S")
    damaged = bytearray(whole)
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(start, len(whole) - 1))] = data.draw(st.integers(0, 255))
    else:
        del damaged[data.draw(st.integers(start, len(whole) - 1)) :]
        struct.pack_into(">i", damaged, 8, len(damaged) - 12)
        if magic < 2:
            struct.pack_into(">i", damaged, start - 4, len(damaged) - start)
    before = batches.message(1, Record(0)) if magic < 2 else batches.batch([Record(0)])
    with batches.arrow_memory() as pool:
        found = read(before + batches.with_right_crcs(damaged))
    assert found.rows[:1] == [expected(Record(0), 2 if magic == 2 else 1)]
    event("damage detected" if found.error else "damage not detected")
    assert pool.max_memory() < 16 << 20


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_oversized_record_count_allocates_nothing(codec: int) -> None:
    data = batches.batch([Record(0, value=b"x" * 100)], codec, count=(1 << 31) - 1)
    with batches.arrow_memory() as pool:
        assert "record count exceeds the batch size" in read(data).error
    assert pool.max_memory() < 4 << 20


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("headers", [False, True], ids=["without headers", "with headers"])
@pytest.mark.parametrize("place", [0, 1], ids=["first in the chunk", "second in the chunk"])
def test_incompressible_content_is_read(place: int, headers: bool) -> None:
    """Only the origin distinguishes content from a batch; their lengths may be equal by chance."""
    noise = random.Random(1).randbytes(100)
    for repeats in range(400):
        record = Record(1, value=noise + b"a" * repeats, headers=(("h", b"v"),))
        data = batches.batch([record], ZSTD)
        if len(data) == len(batches.encoded_record(record, 1, record.timestamp)):
            break
    else:
        pytest.fail("no record of that size was found")
    found = read_arrow(place * batches.batch([Record(0)]) + data, headers=headers)
    assert (found.error, len(found.rows)) == ("", place + 1)
