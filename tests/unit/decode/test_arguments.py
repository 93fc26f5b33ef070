"""Tests of the decoders' functions with any arguments."""

from __future__ import annotations

import struct
import sys
from typing import Any

import pytest
from helpers import batches
from helpers.batches import GOLDEN, Record

from zkconsumer.fetcher import decode_py
from zkconsumer.fetcher.chunk import NO_LIMIT
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.message import MessageAndMetadata, decoded_message_type, string_decoder

from .chunks import I64_MAX, chunk_of, column_sizes, columns_of, golden_rows, header_sizes


@pytest.mark.parametrize("start", [-1, 6, I64_MAX])
def test_scan_rejects_a_start_outside_of_data(twin: Any, start: int) -> None:
    with pytest.raises(IndexError):
        twin.scan(b"12345", start, 0, NO_LIMIT, 1, 1, 0)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (0, 6), (6, 6)])
def test_ranges_outside_of_data_are_rejected(twin: Any, start: int, end: int) -> None:
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
def test_messages_of_another_type_are_rejected(twin: Any, cls: type[Any]) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    with pytest.raises(TypeError, match="cls must be a subclass of tuple, got "):
        twin.messages(cls, "events", 3, 4, columns, headers)


@pytest.mark.parametrize("rows", [-1, 5, I64_MAX])
def test_more_messages_than_rows_are_rejected(twin: Any, rows: int) -> None:
    columns, headers = filled(twin, GOLDEN["2 none"], 4)
    with pytest.raises(IndexError, match="the number of rows exceeds the column capacity"):
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
