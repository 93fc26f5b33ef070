"""Tests of the compiled decoder and the one in Python, with all formats and codecs, and damaged or truncated data.

The results are compared with what ``batches`` and Kafka's own classes wrote, with kafka-python's decoder, and with each
other.
"""

from __future__ import annotations

import gc
import random
import struct
import subprocess
import sys
import types
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import batches
import kafka.codec
import kafka.record.default_records
import kafka.record.legacy_records
import pyarrow as pa
import pytest
from batches import (
    CODEC_NAMES,
    GOLDEN,
    GOLDEN_APPEND_TIME,
    GOLDEN_RECORDS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Expected,
    Record,
    expected,
)
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from zkconsumer.broker.buffers import allocate
from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher import _decode, column_buffers, column_writer, decode, decode_py
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.decode import ChunkReader, read_messages
from zkconsumer.message import (
    ARROW_SCHEMA,
    ARROW_SCHEMA_WITH_HEADERS,
    MessageAndMetadata,
    TopicPartition,
    decoded_message_type,
    string_decoder,
)

PARTITION = TopicPartition("events", 3)
TWINS: dict[str, Any] = {"c": _decode, "python": decode_py}
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
#: Arguments of ``next_offset`` that allow any offset.
ANY = (I64_MIN, I64_MIN, I64_MAX)
ALL_CODECS = [(magic, codec) for magic in (0, 1, 2) for codec in batches.CODECS[magic]]
CODEC_IDS = [f"format {magic} {CODEC_NAMES[codec]}" for magic, codec in ALL_CODECS]
every_codec = pytest.mark.parametrize(("magic", "codec"), ALL_CODECS, ids=CODEC_IDS)


def examples(count: int) -> settings:
    """Run a test with ``count`` generated examples, which share the fixtures of the test."""
    return settings(max_examples=count, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decode with this decoder; the test runs once with each of the two."""
    monkeypatch.setattr(decode, "native", TWINS[request.param])
    return TWINS[request.param]


def chunk_of(data: Any, fetch_offset: int = 0, until: int = NO_LIMIT, aborted: Sequence[tuple[int, int]] = ()) -> Chunk:
    """Return a chunk with any offsets; data without a complete entry do not advance the offset."""
    next_offset, complete, _ = _decode.next_offset(data, *ANY)
    return Chunk(PARTITION, fetch_offset, next_offset if complete else fetch_offset, data, aborted, until)


class Read(NamedTuple):
    """Result of reading a chunk: rows with milliseconds, rows per block, offsets after the blocks, the error or ""."""

    rows: list[Expected]
    blocks: list[int]
    next_offsets: list[int]
    error: str = ""
    resume: int | None = None


def read(chunk: Chunk | bytes | bytearray, *, max_rows: int = 1 << 16, **options: Any) -> Read:
    """Read the messages up to the end or the first error."""
    chunk = chunk if isinstance(chunk, Chunk) else chunk_of(chunk)
    out = Read([], [], [])
    try:
        for messages, next_offset in read_messages(chunk, max_rows=max_rows, **options):
            assert {message[:2] for message in messages} == {tuple(chunk.partition)}
            out.rows.extend(Expected(*message[2:]) for message in messages)
            out.blocks.append(len(messages))
            out.next_offsets.append(next_offset)
    except CorruptRecordError as error:
        return out._replace(error=str(error), resume=error.offset)
    return out


def arrow_batches(chunk: Chunk | bytes, **options: Any) -> tuple[list[tuple[Any, int]], CorruptRecordError | None]:
    """Read the Arrow batches up to the end or the first error; check that each is valid and has the schema."""
    chunk = chunk if isinstance(chunk, Chunk) else chunk_of(chunk)
    reader, out = ArrowReader(**options), []
    schema = ARROW_SCHEMA_WITH_HEADERS if options.get("include_headers") else ARROW_SCHEMA
    try:
        for batch, next_offset in reader.read(chunk):
            batch.validate(full=True)
            assert batch.schema.equals(schema, check_metadata=True)
            out.append((batch, next_offset))
    except CorruptRecordError as error:
        return out, error
    return out, None


def rows_of(batch: Any) -> list[Expected]:
    """Return the rows of an Arrow batch, with timestamps in microseconds."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    assert set(columns["topic"].to_pylist()) <= {PARTITION.topic}
    assert set(columns["partition"].to_pylist()) <= {PARTITION.partition}
    headers = columns["headers"].to_pylist() if "headers" in columns else [None] * len(batch)
    assert [] not in headers  # a row without headers has null, as in Spark's own source
    return [
        Expected(offset, key, value, timestamp, kind, tuple((h["key"], h["value"]) for h in pairs or ()))
        for offset, key, value, timestamp, kind, pairs in zip(
            *(columns[name].to_pylist() for name in ("offset", "key", "value")),
            columns["timestamp"].cast(pa.int64()).to_pylist(),
            columns["timestampType"].to_pylist(),
            headers,
            strict=True,
        )
    ]


def read_arrow(chunk: Chunk | bytes, *, headers: bool = True, **options: Any) -> Read:
    found, error = arrow_batches(chunk, include_headers=headers, **options)
    rows = [row for batch, _ in found for row in rows_of(batch)]
    out = Read(rows, [len(batch) for batch, _ in found], [after for _, after in found])
    return out._replace(error=str(error), resume=error.offset) if error else out


def in_microseconds(rows: Sequence[Expected], headers: bool = True) -> list[Expected]:
    """Return the rows with timestamps in microseconds, as in Arrow batches."""
    return [
        row._replace(timestamp=max(I64_MIN, min(I64_MAX, 1000 * row.timestamp)), headers=row.headers if headers else ())
        for row in rows
    ]


def error_text(reason: str, offset: int, position: int, chunk: Chunk | bytes) -> str:
    """Return the first sentence of an error."""
    chunk = chunk if isinstance(chunk, Chunk) else chunk_of(chunk)
    return (
        f"topic 'events' partition 3 offset {offset}: {reason}, "
        f"at byte {position} of {len(chunk.data)} fetched from offset {chunk.fetch_offset}. "
    )


# ---- random logs -----------------------------------------------------------------------------------


class Part(NamedTuple):
    """An entry of a random log and its rows."""

    data: bytes
    rows: list[Expected]
    next_offset: int


timestamps = (
    st.integers(-1, 1 << 45) | st.sampled_from([I64_MIN, I64_MAX, I64_MAX // 1000, 0]) | st.integers(I64_MIN, I64_MAX)
)
contents = st.none() | st.binary(max_size=30) | st.binary(max_size=3).map(lambda text: text * 50)
header_lists = st.lists(st.tuples(st.text(max_size=6), contents), max_size=3).map(tuple)


@st.composite
def parts(draw: st.DrawFn, start: int) -> Part:
    """One entry whose offsets start at ``start`` or after a gap."""
    magic, codec = draw(st.sampled_from(ALL_CODECS))
    offset = start + draw(st.sampled_from([0, 0, 0, 1, 7, 1000]))
    records = []
    at = offset
    for _ in range(draw(st.integers(1, 4))):
        at += draw(st.sampled_from([0, 0, 0, 1, 300]))
        headers = draw(header_lists) if magic == 2 else ()
        records.append(Record(at, draw(timestamps), draw(contents), draw(contents), headers))
        at += 1
    append_time = draw(st.none() | timestamps) if magic else None
    options: dict[str, Any] = {"log_append_time": append_time, "raw_snappy": draw(st.booleans())}
    next_offset = at
    if magic == 2:
        if draw(st.booleans()):  # compaction has removed the last records, or all of them
            next_offset += draw(st.integers(0, 5))
            records = records if draw(st.integers(0, 5)) else []
            codec = codec if records else NONE
        options |= {
            "base_offset": offset,
            "last_offset": next_offset - 1,
            "producer_id": draw(st.sampled_from([-1, 17])),
            "delete_horizon": draw(st.none() | timestamps),
        }
    elif magic == 1:
        options["relative"] = draw(st.booleans())
    rows = [expected(record, magic, append_time) for record in records]
    return Part(batches.entry(magic, records, codec, **options), rows, next_offset)


@st.composite
def logs(draw: st.DrawFn, max_parts: int = 4) -> list[Part]:
    """Consecutive entries."""
    at, log = draw(st.sampled_from([0, 5, 1 << 31, (1 << 62) + 3])), []
    for _ in range(draw(st.integers(1, max_parts))):
        part = draw(parts(at))
        log.append(part)
        at = part.next_offset
    return log


def joined(log: Sequence[Part]) -> tuple[bytes, list[Expected]]:
    return b"".join(part.data for part in log), [row for part in log for row in part.rows]


# ---- bytes from Kafka itself -----------------------------------------------------------------------


def golden_rows(name: str) -> list[Expected]:
    time = GOLDEN_APPEND_TIME if name.endswith("append") else None
    return [expected(record, int(name[0]), time) for record in GOLDEN_RECORDS]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("name", [name for name in GOLDEN if name.split()[1] in CODEC_NAMES])
def test_records_written_by_kafka_are_read(name: str) -> None:
    chunk = chunk_of(GOLDEN[name], 100)
    assert read(chunk) == Read(golden_rows(name), [4], [106])
    assert read_arrow(chunk) == Read(in_microseconds(golden_rows(name)), [4], [106])
    assert read_arrow(chunk, headers=False).rows == in_microseconds(golden_rows(name), headers=False)


@pytest.mark.usefixtures("twin")
def test_control_and_empty_batches_have_no_rows() -> None:
    data = GOLDEN["2 ABORT"] + GOLDEN["2 COMMIT"] + GOLDEN["2 empty"]
    assert read(chunk_of(data, 106)) == Read([], [], [])
    data = GOLDEN["2 empty"]
    assert _decode.next_offset(data, *ANY) == decode_py.next_offset(data, *ANY) == (210, len(data), None)


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("0 none", batches.message_set(0, GOLDEN_RECORDS)),
        ("1 none", batches.message_set(1, GOLDEN_RECORDS)),
        ("1 none append", batches.message_set(1, GOLDEN_RECORDS, log_append_time=GOLDEN_APPEND_TIME)),
        ("2 none", batches.batch(GOLDEN_RECORDS)),
        ("2 none append", batches.batch(GOLDEN_RECORDS, log_append_time=GOLDEN_APPEND_TIME)),
        ("2 none transactional", batches.batch(GOLDEN_RECORDS, producer_id=4242, transactional=True)),
        ("2 none delete horizon", batches.batch(GOLDEN_RECORDS, delete_horizon=1_650_000_000_000)),
        ("2 ABORT", batches.control_batch(106, 4242, commit=False)),
        ("2 COMMIT", batches.control_batch(106, 4242, commit=True)),
    ],
)
def test_builders_write_same_bytes_as_kafka(name: str, built: bytes) -> None:
    if name.isupper():  # Kafka writes markers with leader epoch 0
        built = batches.patched(built, 12, "i", 0)
    assert built == GOLDEN[name]


# ---- against kafka-python --------------------------------------------------------------------------


@pytest.fixture
def kafka_python_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the codecs that kafka-python lacks in this environment; it still decodes the framing itself."""

    def stream(name: str) -> Any:
        return lambda data: pa.input_stream(pa.py_buffer(data), compression=name).read()

    def snappy(data: bytes) -> bytes:
        size, shift = 0, 0
        for byte in data:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))

    class Digest:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def digest(self) -> bytes:
            return struct.pack(">I", batches.xxh32(self._data))

    monkeypatch.setattr(kafka.codec, "snappy", types.SimpleNamespace(decompress=snappy))
    monkeypatch.setattr(kafka.codec, "lz4", object())
    monkeypatch.setattr(kafka.codec, "zstd", object())
    monkeypatch.setattr(kafka.codec, "xxhash", types.SimpleNamespace(xxh32=Digest))
    for module in (kafka.codec, kafka.record.default_records, kafka.record.legacy_records):
        monkeypatch.setattr(module, "lz4_decode", stream("lz4"))
    monkeypatch.setattr(kafka.record.default_records, "zstd_decode", stream("zstd"))


def kafka_python_rows(data: bytes) -> list[Expected]:
    rows = []
    for batch in MemoryRecords(data):
        assert batch.validate_crc()
        for record in batch:
            kind = -1 if record.timestamp_type is None else record.timestamp_type
            time = -1 if record.timestamp is None else record.timestamp
            rows.append(Expected(record.offset, record.key, record.value, time, kind, tuple(record.headers)))
    return rows


@pytest.mark.usefixtures("twin", "kafka_python_codecs")
@given(log=logs())
@examples(100)
def test_rows_equal_those_of_kafka_python(log: list[Part]) -> None:
    data, rows = joined(log)
    theirs = kafka_python_rows(data)
    wrapped = [row._replace(timestamp=(row.timestamp + (1 << 63)) % (1 << 64) - (1 << 63)) for row in theirs]
    assert read(chunk_of(data)).rows == wrapped == rows


# ---- round trips -----------------------------------------------------------------------------------


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


# ---- timestamps ------------------------------------------------------------------------------------


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
    payload = _record(b"\x00" + delta + b"\x00\x01\x01\x00")
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


# ---- schema and buffers ----------------------------------------------------------------------------


@pytest.mark.usefixtures("twin")
def test_schema_equals_that_of_sparks_source() -> None:
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = ("headers", pa.list_(pa.field("element", pair)))
    for wanted, options in ((fields, {}), ([*fields, headers], {"include_headers": True})):
        reader = ArrowReader(**options)
        ((batch, _),) = reader.read(chunk_of(GOLDEN["2 none"]))
        assert reader.schema == batch.schema == pa.schema(wanted)
        assert all(field.nullable for field in batch.schema)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("damaged", [False, True])
def test_chunk_is_released_after_reading(damaged: bool) -> None:
    data = bytearray(GOLDEN["2 none"] + GOLDEN["1 lz4"] + GOLDEN["2 zstd"])
    data[-1] ^= damaged
    found = read_arrow(chunk_of(data)), read(chunk_of(data))
    gc.collect()  # frees the frames of an exception
    data.clear()  # raises BufferError if a buffer was not released
    assert [result.error != "" for result in found] == [damaged] * 2


@pytest.mark.usefixtures("twin")
def test_chunk_can_be_a_view() -> None:
    frame = b"before" + GOLDEN["2 none"] + b"after"
    chunk = chunk_of(memoryview(frame)[6:-5], 101)
    (block,) = ChunkReader(chunk, headers=False).read_blocks(1)
    assert (chunk.nbytes, block.rows, block.next_offset) == (205, 3, 106)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("garbage", [b"\xaa", b"\x7f", b"\xff"])
def test_columns_do_not_expose_reused_memory(monkeypatch: pytest.MonkeyPatch, garbage: bytes) -> None:
    """This also holds after serialization: Spark's Arrow reads more of the buffers than pyarrow does."""

    def used_before(size: int) -> Any:
        buffer = allocate(size)
        memoryview(buffer).cast("B")[:] = garbage * size
        return buffer

    monkeypatch.setattr(column_buffers, "allocate", used_before)
    for name in ("0 none", "1 lz4", "2 none", "2 zstd"):
        for include_headers in (False, True):
            found, error = arrow_batches(GOLDEN[name], include_headers=include_headers)
            assert error is None
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, found[0][0].schema) as stream:
                stream.write_batch(found[0][0])
            (copy,) = pa.ipc.open_stream(sink.getvalue())
            copy.validate(full=True)
            assert rows_of(copy) == in_microseconds(golden_rows(name), include_headers)


def test_environment_selects_pure_python() -> None:
    code = "from zkconsumer.fetcher import decode; print(decode.native.__name__)"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"ZKCONSUMER_PURE": pure},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for pure in ("1", "0")
    ]
    assert names == ["zkconsumer.fetcher.decode_py", "zkconsumer.fetcher._decode"]


# ---- bounds ----------------------------------------------------------------------------------------


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


# ---- blocks ----------------------------------------------------------------------------------------


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
    assert f"offset {end}: malformed record, at byte 0 of {len(data)}" in found.error
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
    chunk.max_decompressed_bytes = 50_000
    found = read(chunk)
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
    found = read(data)
    assert (found.rows, found.blocks, found.next_offsets) == (rows, [8], [8])


# ---- chunks that end inside an entry ---------------------------------------------------------------


def three_entries(magic: int, codec: int) -> list[Part]:
    log = []
    for first in (0, 2, 4):
        records = [
            Record(first, key=b"k" * 20),
            Record(first + 1, headers=(("h", b"v"),) if magic == 2 else ()),
        ]
        for group in [records] if magic == 2 or codec else [[record] for record in records]:
            rows = [expected(record, magic) for record in group]
            log.append(Part(batches.entry(magic, group, codec), rows, group[-1].offset + 1))
    return log


@every_codec
def test_truncated_chunk_gives_complete_entries(twin: Any, magic: int, codec: int) -> None:
    log = three_entries(magic, codec)
    data, _ = joined(log)
    ends = [sum(len(part.data) for part in log[: i + 1]) for i in range(len(log))]
    for cut in range(len(data) + 1):
        complete = log[: sum(end <= cut for end in ends)]
        size, rows = (
            len(b"".join(part.data for part in complete)),
            [row for part in complete for row in part.rows],
        )
        found = read(data[:cut])
        assert found.rows == rows, f"cut at byte {cut}"
        assert (found.error == "") == bool(complete or not cut), f"cut at byte {cut}"
        assert twin.next_offset(data[:cut], *ANY) == (complete[-1].next_offset if complete else -1, size, None)


@pytest.mark.usefixtures("twin")
def test_incomplete_entry_differs_from_early_end() -> None:
    """A fetcher creates such a chunk if an entry is larger than the fetch size."""
    data = batches.batch([Record(7)])[:-1]
    chunk = chunk_of(data, 7)
    assert read(chunk).error.startswith(error_text("no complete batch", 7, 0, chunk))
    assert read(chunk).resume == 7


@pytest.mark.usefixtures("twin")
def test_empty_chunk_has_no_rows() -> None:
    assert read(b"") == Read([], [], [])


# ---- damage ----------------------------------------------------------------------------------------


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
        assert "restore the partition from a replica, commit an offset after" in messages.error


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
        (batches.patched(_BATCH, 8, "i", 48), "invalid size"),
        (batches.patched(_BATCH, 8, "i", -1), "invalid size"),
        (batches.patched(_BATCH, 8, "i", -(1 << 31)), "invalid size"),
        (batches.patched(_BATCH, 23, "i", -1), "negative last offset delta"),
        (batches.patched(_BATCH, 57, "i", -1), "negative record count"),
        (batches.patched(_BATCH, 57, "i", 3), "record count exceeds the batch size"),
        (batches.patched(_BATCH, 57, "i", (1 << 31) - 1), "record count exceeds the batch size"),
        (batches.batch([Record(5)], GZIP, count=(1 << 31) - 1), "record count exceeds the batch size"),
        (batches.batch([Record(5)], ZSTD, count=2), "record count exceeds the batch size"),
        (batches.patched(_MESSAGE, 8, "i", 21), "invalid size"),
        (batches.patched(_OLD_MESSAGE, 8, "i", 13), "invalid size"),
        (batches.patched(_MESSAGE, 26, "i", -2), "invalid key length"),
        (batches.patched(_MESSAGE, 26, "i", 9), "invalid key length"),
        (batches.patched(_MESSAGE, 26, "i", (1 << 31) - 1), "invalid key length"),
        (batches.patched(_OLD_MESSAGE, 18, "i", -(1 << 31)), "invalid key length"),
        (batches.patched(_MESSAGE, 33, "i", -2), "invalid value length"),
        (batches.patched(_MESSAGE, 33, "i", 4), "invalid value length"),
        (batches.patched(_MESSAGE, 33, "i", 6), "invalid value length"),
        (batches.patched(_MESSAGE, 33, "i", -1), "invalid value length"),
        (batches.patched(_OLD_MESSAGE, 25, "i", (1 << 31) - 1), "invalid value length"),
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


def _record(body: bytes, length: int | None = None) -> bytes:
    return batches.varint(len(body) if length is None else length) + body


_GOOD = _record(b"\x00\x00\x00\x01\x01\x00")


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x00", 7), id="longer than the batch"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x00", -1) + b"\x01" * 6, id="negative length"),
        pytest.param(_record(b"") + b"\x00" * 6, id="length 0"),
        pytest.param(b"\x80\x80\x80\x80\x80\x00" + b"\x00" * 6, id="length of six bytes"),
        pytest.param(_record(b"\x00" + b"\x80" * 10 + b"\x00\x02\x01\x01\x00"), id="time of eleven bytes"),
        pytest.param(_record(b"\x00\x00" + b"\x80" * 5 + b"\x00\x01\x01\x00"), id="offset of six bytes"),
        pytest.param(_record(b"\x00\x00\x02\x03\x01\x00"), id="key length -2"),
        pytest.param(_record(b"\x00\x00\x02\x0c\x01\x00\x00"), id="key longer than the record"),
        pytest.param(_record(b"\x00\x00\x02\x01\x03\x00"), id="value length -2"),
        pytest.param(_record(b"\x00\x00\x02\x01\x04v\x00", 7)[:-1] + b"\x00", id="value takes the header count"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x01"), id="header count -1"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x02"), id="header missing"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\xfe\xff\xff\xff\x0f"), id="many headers missing"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x02\x01\x01"), id="header name null"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x02\x00\x03"), id="header value length -2"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x02\x02n\x04v"), id="header value cut off"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x00\x00"), id="byte left in the record"),
        pytest.param(_record(b"\x00\x00\x02\x01\x01\x00") + b"\x00", id="byte left in the batch"),
        pytest.param(_record(b"\x00\x00\x02"), id="ends after the offset"),
        pytest.param(_record(b"\x00"), id="ends after the attributes"),
    ],
)
def test_rows_before_malformed_batch_are_returned(codec: int, record: bytes) -> None:
    before = batches.batch([Record(8), Record(9)])
    payload = batches.compress(codec, _GOOD + record + b"\x00" * (14 - len(_GOOD + record)))
    chunk = chunk_of(before + batches.batch([Record(10), Record(11)], codec, payload=payload))
    found, batched = read(chunk), read_arrow(chunk)
    assert found.rows == [expected(Record(8), 2), expected(Record(9), 2)]
    assert batched.rows == in_microseconds(found.rows)
    assert "malformed record" in found.error
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
    reason = {"record": "malformed record", "codec": "corrupt gzip data: Truncated compressed stream"}
    start = error_text(reason.get(damage, "CRC does not match"), 4, len(data[0] + data[1]), chunk)
    assert found.error.startswith(start)
    assert batched.error == found.error


@pytest.mark.usefixtures("twin")
def test_surplus_bytes_of_record_are_malformed() -> None:
    payload = _record(b"\x00\x00\x00\x01\x01\x00" + _GOOD)
    data = batches.batch([Record(10), Record(11)], payload=payload)
    assert "malformed record" in read(data).error
    assert "malformed record" in read_arrow(data, headers=False).error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
def test_reading_resumes_at_malformed_batch(codec: int) -> None:
    """If reading resumed earlier, rows would be repeated each time the partition is fetched again."""
    before = batches.batch([Record(8)]) + batches.batch([Record(9)])
    payload = batches.compress(codec, _GOOD + _record(b"\x00") + b"\x00" * 5)
    chunk = chunk_of(before + batches.batch([Record(10), Record(11)], codec, payload=payload), 8)
    found, batched = read(chunk), read_arrow(chunk)
    assert (found.next_offsets, found.resume) == ([10], 10)
    assert (batched.next_offsets, batched.resume) == ([10], 10)
    assert found.error.startswith(error_text("malformed record", 10, len(before), chunk))
    assert batched.error == found.error


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("count", [1, 3])
def test_wrong_record_count_is_malformed(count: int) -> None:
    records = [Record(at, value=b"v" * 20) for at in range(2)]
    assert "malformed record" in read(batches.batch(records, count=count)).error
    assert "malformed record" in read(batches.batch(records, ZSTD, count=count)).error


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
    assert found.error.startswith(error_text("malformed compressed message set", 4, len(before), chunk))
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


# ---- transactions ----------------------------------------------------------------------------------


def transactional(offset: int, producer: int, codec: int = NONE, rows: int = 1) -> bytes:
    records = [Record(offset + i, value=b"%d" % producer) for i in range(rows)]
    return batches.batch(records, codec, producer_id=producer, transactional=True)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_aborted_records_and_markers_are_hidden(codec: int) -> None:
    data = (
        transactional(0, 1, codec)
        + transactional(1, 2, codec)
        + batches.batch([Record(2)], codec, producer_id=1)
        + transactional(3, 1, codec, rows=2)
        + batches.control_batch(5, 1, commit=False)
        + transactional(6, 1, codec)
        + batches.control_batch(7, 2, commit=True)
        + batches.control_batch(8, 1, commit=True)
        + batches.batch([Record(9)], codec)
    )
    uncommitted, committed = chunk_of(data), chunk_of(data, aborted=[(1, 0)])
    assert [row.offset for row in read(uncommitted).rows] == [0, 1, 2, 3, 4, 6, 9]
    assert [row.offset for row in read(committed).rows] == [1, 2, 6, 9]
    assert [row.offset for row in read_arrow(uncommitted).rows] == [0, 1, 2, 3, 4, 6, 9]
    assert [row.offset for row in read_arrow(committed).rows] == [1, 2, 6, 9]


@pytest.mark.usefixtures("twin")
def test_transaction_ends_at_its_marker() -> None:
    data = (
        transactional(0, 1)
        + batches.control_batch(1, 1, commit=True)
        + transactional(2, 1)
        + batches.control_batch(3, 1, commit=False)
        + transactional(4, 1)
        + batches.control_batch(5, 1, commit=True)
    )
    assert [row.offset for row in read(chunk_of(data, aborted=[(1, 2)])).rows] == [0, 4]


@pytest.mark.usefixtures("twin")
def test_marker_below_fetch_offset_ends_transaction() -> None:
    data = transactional(0, 1) + batches.control_batch(1, 1, commit=False) + transactional(2, 1)
    assert [row.offset for row in read(chunk_of(data, 2, aborted=[(1, 0)])).rows] == [2]


@pytest.mark.usefixtures("twin")
def test_compacted_transactions_stay_aborted() -> None:
    """Compaction keeps an empty batch with the last sequence number of the producer, and may keep an empty marker."""
    empty = batches.batch([], base_offset=0, last_offset=3, producer_id=1, transactional=True)
    marker = batches.batch([], base_offset=6, last_offset=6, producer_id=1, transactional=True, control=True)
    data = empty + transactional(4, 1) + batches.batch([Record(5)]) + marker + transactional(7, 1)
    assert [row.offset for row in read(chunk_of(data, aborted=[(1, 0)])).rows] == [5]
    assert [row.offset for row in read(chunk_of(data)).rows] == [4, 5, 7]


@pytest.mark.usefixtures("twin")
def test_marker_of_an_unknown_type_ends_nothing() -> None:
    """Source: Kafka 3.9 ControlRecordType.parse, which returns UNKNOWN."""
    key = struct.pack(">hh", 0, 2)
    marker = batches.batch([Record(1, key=key)], producer_id=1, transactional=True, control=True)
    data = transactional(0, 1) + marker + transactional(2, 1)
    assert [row.offset for row in read(chunk_of(data, aborted=[(1, 0)])).rows] == []


@st.composite
def transactions(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, bool]], list[tuple[int, int, int]]]:
    """Interleaved transactions of three producers.

    Returns the log; (offset, producer, whether it was committed) of each record; and (producer, first offset,
    marker) of each aborted transaction, as a broker's index has them.
    """
    data, at = b"", 0
    written: list[tuple[int, int, bool]] = []
    running: dict[int, tuple[int, list[int]]] = {}
    aborted: list[tuple[int, int, int]] = []
    steps = [
        *draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["write"] * 3 + ["plain", "end"])), max_size=14)),
        *((producer, "end") for producer in (1, 2, 3)),
    ]
    for producer, step in steps:
        if step == "end" and producer in running:
            first, offsets = running.pop(producer)
            commit = draw(st.booleans())
            written += [(offset, producer, commit) for offset in offsets]
            if not commit:
                aborted.append((producer, first, at))
            data += batches.control_batch(at, producer, commit=commit)
            at += 1
        elif step == "write":
            rows = draw(st.integers(1, 3))
            data += transactional(at, producer, draw(st.sampled_from([NONE, NONE, ZSTD])), rows)
            running.setdefault(producer, (at, []))[1].extend(range(at, at + rows))
            at += rows
        elif step == "plain":
            data += batches.batch([Record(at)], producer_id=draw(st.sampled_from([-1, producer])))
            written.append((at, -1, True))
            at += 1
    return data, sorted(written), aborted


@pytest.mark.usefixtures("twin")
@given(log=transactions(), data=st.data())
@examples(100)
def test_read_committed_hides_exactly_the_aborted(
    log: tuple[bytes, list[tuple[int, int, bool]], list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    raw, written, index = log
    bounds = list(batches.entry_bounds(raw))
    start = bounds[data.draw(st.integers(0, len(bounds) - 1))][0] if bounds else 0
    first = struct.unpack_from(">q", raw, start)[0] if bounds else 0
    fetch_offset = first + data.draw(st.integers(0, 2))
    aborted = data.draw(st.permutations([(p, low) for p, low, marker in index if marker >= fetch_offset]))
    committed = chunk_of(raw[start:], fetch_offset, aborted=aborted)
    wanted = [offset for offset, _, visible in written if visible and offset >= fetch_offset]
    assert [row.offset for row in read(committed).rows] == wanted
    everything = [offset for offset, _, _ in written if offset >= fetch_offset]
    assert [row.offset for row in read(chunk_of(raw[start:], fetch_offset)).rows] == everything


# ---- mutations: both decoders agree ----------------------------------------------------------------

_CORNERS_32 = [0, 1, -1, -2, 7, 64, 127, 128, 1 << 16, (1 << 31) - 1, -(1 << 31)]
_CORNERS_64 = [0, 1, -1, 1 << 32, I64_MAX, I64_MAX - 1, I64_MIN, I64_MIN + 1]
_positions = st.integers(0, 63) | st.integers(0, 400)
mutations = st.lists(
    st.tuples(st.just("set"), _positions, st.integers(0, 255))
    | st.tuples(st.just("flip"), _positions, st.integers(0, 7))
    | st.tuples(
        st.just("i32"),
        st.sampled_from([8, 12, 18, 22, 23, 26, 30, 57]) | _positions,
        st.sampled_from(_CORNERS_32),
    )
    | st.tuples(st.just("i64"), st.sampled_from([0, 27, 35, 43]) | _positions, st.sampled_from(_CORNERS_64))
    | st.tuples(st.just("delete"), _positions, st.integers(1, 30))
    | st.tuples(st.just("insert"), _positions, st.binary(min_size=1, max_size=12))
    | st.tuples(st.just("repeat"), _positions, st.integers(1, 80)),
    min_size=1,
    max_size=3,
)


def mutated(data: bytes, changes: Sequence[tuple[str, int, Any]]) -> bytes:
    out = bytearray(data)
    for kind, position, value in changes:
        at = position % (len(out) + 1)
        if kind == "set" and at < len(out):
            out[at] = value
        elif kind == "flip" and at < len(out):
            out[at] ^= 1 << value
        elif kind in ("i32", "i64"):
            fmt = ">i" if kind == "i32" else ">q"
            if at + struct.calcsize(fmt) <= len(out):
                struct.pack_into(fmt, out, at, value)
        elif kind == "delete":
            del out[at : at + value]
        elif kind == "insert":
            out[at:at] = value
        elif kind == "repeat":
            out[at:at] = out[at : at + value]
    return bytes(out)


_SEEDS = [
    *GOLDEN.values(),
    *(part.data for magic, codec in ALL_CODECS for part in three_entries(magic, codec)[:1]),
    transactional(100, 4242),
    batches.control_batch(101, 4242, commit=False),
]
_PAYLOADS = [
    (2, b"".join(batches.encoded_record(r, 100, GOLDEN_RECORDS[0].timestamp) for r in GOLDEN_RECORDS)),
    (1, GOLDEN["1 none"]),
    (0, GOLDEN["0 none"]),
]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """Some entries, most of them mutated, either as a whole or inside their compressed payload."""
    data = b""
    for _ in range(draw(st.integers(1, 3))):
        changes = draw(st.just([]) | mutations)
        if draw(st.integers(0, 3)):
            data += mutated(draw(st.sampled_from(_SEEDS)), changes)
            continue
        magic, payload = draw(st.sampled_from(_PAYLOADS))
        codec = draw(st.sampled_from(batches.CODECS[magic][1:]))
        packed = batches.compress(codec, mutated(payload, changes), magic)
        if magic == 2:
            data += batches.batch(GOLDEN_RECORDS, codec, payload=packed, count=draw(st.integers(0, 5)))
        else:
            flags = draw(st.sampled_from([0, batches.LOG_APPEND]))
            data += batches.message(magic, Record(105, 7, None, packed), codec | flags)
    return batches.with_right_crcs(data) if draw(st.integers(0, 3)) else data


class Options(NamedTuple):
    """Options for reading a mutated chunk."""

    headers: bool
    check_crcs: bool
    max_rows: int
    max_bytes: int
    fetch_offset: int
    until: int
    aborted: tuple[tuple[int, int], ...]


offsets = st.sampled_from([0, 100, 101, 105, 106, I64_MIN, I64_MAX])
options = st.builds(
    Options,
    headers=st.booleans(),
    check_crcs=st.booleans(),
    max_rows=st.sampled_from([1, 3, 1 << 16]),
    max_bytes=st.sampled_from([1, 250, 8 << 20]),
    fetch_offset=st.sampled_from([0, 0, 0, 0, 101, 105]) | offsets,
    until=st.sampled_from([NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT, 102, 106]) | offsets,
    aborted=st.sampled_from([(), ((4242, 0),), ((4242, 101), (17, 3))]),
)


def outcome(twin: Any, data: bytes, how: Options) -> tuple[list[tuple[Any, int]], str, Read]:
    vars(decode)["native"] = twin  # undone by the caller's monkeypatch
    chunk = chunk_of(data, how.fetch_offset, how.until, how.aborted)
    found, error = arrow_batches(
        chunk,
        include_headers=how.headers,
        check_crcs=how.check_crcs,
        max_rows=how.max_rows,
        max_bytes=how.max_bytes,
    )
    return found, str(error), read(chunk, check_crcs=how.check_crcs, max_rows=how.max_rows)


@given(data=mutants(), how=options)
@examples(500)
def test_decoders_agree_on_mutated_entries(monkeypatch: pytest.MonkeyPatch, data: bytes, how: Options) -> None:
    monkeypatch.setattr(decode, "native", _decode)
    ours, error, messages = outcome(_decode, data, how)
    theirs, other_error, other_messages = outcome(decode_py, data, how)
    event("error" if messages.error else "no error")
    event(f"{'some' if ours else 'no'} rows")
    assert error == other_error
    assert [after for _, after in ours] == [after for _, after in theirs]
    for (batch, _), (other, _) in zip(ours, theirs, strict=True):
        assert batch.equals(other)
    assert messages == other_messages
    assert all(how.fetch_offset <= row.offset < how.until for row in messages.rows)


def caught(function: Any, *args: Any) -> Any:
    """Return the result, or the type and arguments of the exception."""
    try:
        result = function(*args)
    except (ValueError, IndexError) as error:
        return type(error), error.args
    return tuple(result) if isinstance(result, tuple) else result


@given(data=mutants(), numbers=st.data())
@examples(300)
def test_decoders_scan_and_measure_alike(data: bytes, numbers: st.DataObject) -> None:
    start, end = sorted(numbers.draw(st.tuples(*[st.integers(0, len(data)) | st.sampled_from([0, len(data)])] * 2)))
    start = numbers.draw(st.sampled_from([start, 0, 0, -1, len(data) + 1]))
    from_offset, until = numbers.draw(offsets), numbers.draw(offsets)
    limits = numbers.draw(st.tuples(st.integers(-1, 10), st.integers(-1, 500)))
    flags = numbers.draw(st.integers(0, 3))
    count = numbers.draw(st.integers(-1, 6))
    for function, args in (
        ("next_offset", (data, *ANY)),
        ("next_offset", (data, *numbers.draw(st.tuples(offsets, offsets, offsets)))),
        ("scan", (data, start, from_offset, until, *limits, flags)),
        ("split", (data, start, end, count, *limits)),
        ("split", (data, min(61, len(data)), len(data), count, *limits)),
        ("measure", (data, start, end, count)),
        ("measure", (data, min(61, len(data)), len(data), count)),
    ):
        assert caught(getattr(_decode, function), *args) == caught(getattr(decode_py, function), *args)


def columns_of(sizes: Sequence[int]) -> tuple[bytearray, ...]:
    return tuple(bytearray(size) for size in sizes)


def column_sizes(rows: int, size: int) -> list[int]:
    binary = [4 * (rows + 1), (rows + 7) // 8, size]
    return [8 * rows, 8 * rows, 4 * rows, *binary, *binary]


def header_sizes(rows: int, count: int, size: int) -> list[int]:
    binary = [4 * (count + 1), (count + 7) // 8, size]
    return [4 * (rows + 1), (rows + 7) // 8, *binary, *binary]


@given(data=mutants(), numbers=st.data())
@examples(300)
def test_decoders_write_same_bytes_in_short_buffers(data: bytes, numbers: st.DataObject) -> None:
    """Compare rows, counters, the position of the error, and each byte of the columns, for any arguments."""
    room = numbers.draw(st.integers(0, 12)), numbers.draw(st.integers(0, 300))
    header_room = numbers.draw(st.integers(0, 5)), numbers.draw(st.integers(0, 40))
    magic, count = numbers.draw(st.sampled_from([0, 1, 2, 2])), numbers.draw(st.integers(-1, 5))
    base_offset, first_time, last_time = numbers.draw(st.tuples(offsets, offsets, offsets))
    from_offset, until = numbers.draw(st.sampled_from([(I64_MIN, I64_MAX), (101, 103), (I64_MAX, 0)]))
    attributes, scale = numbers.draw(st.sampled_from([0, 8])), numbers.draw(st.sampled_from([1, 1000]))
    start = numbers.draw(st.sampled_from([0, min(61, len(data))]))
    with_headers = numbers.draw(st.booleans())
    results = []
    for twin in (_decode, decode_py):
        columns, state = columns_of(column_sizes(*room)), bytearray(8 * len(column_writer.STATE))
        headers = columns_of(header_sizes(room[0], *header_room)) if with_headers else None
        returned = [
            twin.decode(
                *(data, start, len(data), magic, attributes, base_offset, first_time, last_time),
                *(count, from_offset, until, scale, state, columns, headers),
            )
            for _ in range(2)  # the second call appends to the result of the first
        ]
        results.append((returned, state, columns, headers))
    assert results[0] == results[1]


# ---- arguments of the functions --------------------------------------------------------------------


@pytest.mark.parametrize("start", [-1, 6, I64_MAX])
def test_scan_refuses_a_start_outside_of_data(twin: Any, start: int) -> None:
    with pytest.raises(IndexError):
        twin.scan(b"12345", start, 0, NO_LIMIT, 1, 1, 0)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (0, 6), (6, 6)])
def test_ranges_outside_of_data_are_refused(twin: Any, start: int, end: int) -> None:
    with pytest.raises(IndexError):
        twin.measure(b"12345", start, end, 0)
    state, columns = bytearray(72), columns_of(column_sizes(1, 10))
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
    state, columns = bytearray(72), columns_of(sizes)
    args = (data, 0, len(data), 2, 0, 0, 0, 0, -1, 0, NO_LIMIT, 1, state, columns, None)
    rows = 0 if short in (4, 7) else 2
    assert twin.decode(*args) == rows * len(data) // 3
    assert struct.unpack_from("=q", state)[0] == rows


class Bare(tuple[Any, ...]):
    """A tuple type with a dictionary, which a named tuple lacks."""


def filled(twin: Any, data: bytes, rows: int) -> tuple[tuple[bytearray, ...], tuple[bytearray, ...]]:
    columns, headers = columns_of(column_sizes(rows, 200)), columns_of(header_sizes(rows, 8, 50))
    args = (data, 0, len(data), 2, 0, 0, 0, 0, -1, 0, NO_LIMIT, 1, bytearray(72), columns, headers)
    assert twin.decode(*args) == -1
    return columns, headers


@pytest.mark.parametrize("cls", [tuple, Bare, MessageAndMetadata])
def test_messages_are_instances_of_the_given_tuple(twin: Any, cls: type[Any]) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    found = twin.messages(cls, "events", 3, 4, columns, headers)
    assert [type(message) for message in found] == [cls] * 4
    assert [tuple(message) for message in found] == [("events", 3, *row) for row in golden_rows("2 none")]
    assert twin.messages(cls, "events", 3, 2, columns, None) == [(*m[:7], ()) for m in found[:2]]


@pytest.mark.parametrize("cls", [list, object, int])
def test_messages_of_another_type_are_refused(twin: Any, cls: type[Any]) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    with pytest.raises(TypeError, match="cls must be a tuple type"):
        twin.messages(cls, "events", 3, 4, columns, headers)


@pytest.mark.parametrize("rows", [-1, 5, I64_MAX])
def test_more_messages_than_rows_are_refused(twin: Any, rows: int) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    with pytest.raises(IndexError, match="more rows than the columns hold"):
        twin.messages(tuple, "events", 3, rows, columns, headers)


def test_messages_keep_reference_counts(twin: Any) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    topic, partition = "".join(["ev", "ents"]), int("123456789")
    before = sys.getrefcount(topic), sys.getrefcount(partition), sys.getrefcount(MessageAndMetadata)
    for _ in range(50):
        twin.messages(MessageAndMetadata, topic, partition, 4, columns, headers)
    after = sys.getrefcount(topic), sys.getrefcount(partition), sys.getrefcount(MessageAndMetadata)
    assert after == before


@pytest.mark.usefixtures("twin")
def test_message_decoders_run_at_each_access() -> None:
    calls: list[bytes] = []

    def length(data: bytes) -> int:
        calls.append(data)
        return len(data)

    cls = decoded_message_type(string_decoder, length)
    ((messages, _),) = read_messages(chunk_of(GOLDEN["2 none"]), cls, max_rows=10)
    assert calls == []
    assert [message.key for message in messages] == ["key", None, "", "k" * 40]
    assert [message.value for message in messages] == [5, 13, None, 40]
    assert len(calls) == 3


# ---- checksums -------------------------------------------------------------------------------------


_ISCSI_READ = bytes.fromhex(
    "01c0" + "00" * 14 + "14000000" + "00000400" + "00000014" + "00000018" + "28" + "00" * 7 + "02" + "00" * 7
)


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0x00000000),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (
            _ISCSI_READ,
            0xD9963A56,
        ),
    ],
    ids=["nothing", "digits", "32 zeros", "32 ones", "rising", "falling", "an iSCSI command"],
)
def test_crc32c_equals_rfc_3720(twin: Any, data: bytes, crc: int) -> None:
    assert twin.crc32c(data) == crc


@given(data=st.binary(max_size=200), start=st.integers(0, 9))
def test_decoders_agree_on_crc32c_at_any_alignment(data: bytes, start: int) -> None:
    assert _decode.crc32c(memoryview(data)[start:]) == decode_py.crc32c(memoryview(data)[start:])


@pytest.mark.parametrize("size", [6143, 6144, 6145, 6151, 6152, 12287, 12288, 20001])
def test_decoders_agree_on_crc32c_of_long_data(size: int) -> None:
    """The compiled function processes 6144 bytes at a time, in three lanes."""
    data = random.Random(size).randbytes(size + 3)
    for start in (0, 3):
        view = memoryview(data)[start : start + size]
        assert _decode.crc32c(view) == decode_py.crc32c(view)
