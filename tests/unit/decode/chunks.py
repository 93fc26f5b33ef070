"""Chunks, logs and columns for the tests of the decoders, and functions that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, GOLDEN_APPEND_TIME, GOLDEN_RECORDS, NONE, Expected, Record, expected
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher import _decode
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, TopicPartition

PARTITION = TopicPartition("events", 3)
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
#: Arguments of ``next_offset`` that allow any offset.
ANY = (I64_MIN, I64_MIN, I64_MAX)
ALL_CODECS = [(magic, codec) for magic in (0, 1, 2) for codec in batches.CODECS[magic]]
CODEC_IDS = [f"format {magic} {CODEC_NAMES[codec]}" for magic, codec in ALL_CODECS]
every_codec = pytest.mark.parametrize(("magic", "codec"), ALL_CODECS, ids=CODEC_IDS)


def examples(count: int) -> settings:
    """Run a test with ``count`` generated examples, which share the fixtures of the test."""
    return settings(max_examples=count, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
        for rows, next_offset in read_messages(chunk, max_rows=max_rows, **options):
            messages = list(rows)
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
    """Read the Arrow batches up to the end or the first error; the rows have microseconds."""
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
    """Return the bytes and the rows of a log."""
    return b"".join(part.data for part in log), [row for part in log for row in part.rows]


def golden_rows(name: str) -> list[Expected]:
    """Return the rows of ``GOLDEN[name]``."""
    time = GOLDEN_APPEND_TIME if name.endswith("append") else None
    return [expected(record, int(name[0]), time) for record in GOLDEN_RECORDS]


def three_entries(magic: int, codec: int) -> list[Part]:
    """Return six records: two per entry, or one per entry in uncompressed message sets."""
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


def with_length(body: bytes, length: int | None = None) -> bytes:
    """Return the body of a record after its length, or after another length."""
    return batches.varint(len(body) if length is None else length) + body


def transactional(offset: int, producer: int, codec: int = NONE, rows: int = 1) -> bytes:
    """Return a batch of a transaction."""
    records = [Record(offset + i, value=b"%d" % producer) for i in range(rows)]
    return batches.batch(records, codec, producer_id=producer, transactional=True)


def columns_of(sizes: Sequence[int]) -> tuple[bytearray, ...]:
    """Return a buffer for each size."""
    return tuple(bytearray(size) for size in sizes)


def column_sizes(rows: int, size: int) -> list[int]:
    """Return the sizes of the columns for ``rows``, with ``size`` bytes for all keys and for all values."""
    binary = [4 * (rows + 1), (rows + 7) // 8, size]
    return [8 * rows, 8 * rows, 4 * rows, *binary, *binary]


def header_sizes(rows: int, count: int, size: int) -> list[int]:
    """Return the sizes of the header columns for ``count`` headers, with ``size`` bytes for all names."""
    binary = [4 * (count + 1), (count + 7) // 8, size]
    return [4 * (rows + 1), (rows + 7) // 8, *binary, *binary]
