"""Tests of aborted transactions and their markers."""

from __future__ import annotations

import struct

import pytest
from helpers import batches
from helpers.batches import LZ4, NONE, ZSTD, Record
from hypothesis import given
from hypothesis import strategies as st

from .chunks import chunk_of, examples, read, read_arrow, transactional


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
