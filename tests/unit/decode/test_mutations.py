"""Comparison of the compiled decoder and the one in Python, with mutated entries."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from helpers import batches
from helpers.batches import GOLDEN, GOLDEN_RECORDS, Record
from hypothesis import event, given
from hypothesis import strategies as st

from zkconsumer.fetcher import _decode, column_writer, decode, decode_py
from zkconsumer.fetcher.chunk import NO_LIMIT

from .chunks import (
    ALL_CODECS,
    ANY,
    I64_MAX,
    I64_MIN,
    Read,
    arrow_batches,
    chunk_of,
    column_sizes,
    columns_of,
    examples,
    header_sizes,
    read,
    three_entries,
    transactional,
)

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
        columns, state = columns_of(column_sizes(*room)), bytearray(column_writer.STATE.size)
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
