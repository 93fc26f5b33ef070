"""The loop of tasks: compiled and in Python, with equal results, and safe if nodes, columns or memory fail."""

from __future__ import annotations

import copy
import gc
import importlib
import os
import pickle
import random
import re
import secrets
import struct
import subprocess
import sys
import tracemalloc
import weakref
from array import array
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from fuzz.twins.loop_calls import LoopCalls

from zkconsumer.errors import StreamsError
from zkconsumer.topology.loop import loop_py
from zkconsumer.topology.loop.records import Record as UsedRecord
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, LONG, STRING, Codec, Serde
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.windowed_serdes import PartitionByInnerKey, key_codec, session_windowed, time_windowed

_loop: Any = importlib.import_module("zkconsumer.topology.loop._loop")

ROOT = Path(__file__).resolve().parents[2]
NEVER = (1 << 63) - 1
TOO_LARGE = (
    "the keys and the values in a task's output must each be less than 2 GiB; commit more often (on Spark: reduce "
    "max_records_per_task)"
)


@pytest.fixture(params=[_loop, loop_py], ids=["c", "python"])
def loop(request: pytest.FixtureRequest) -> Any:
    """The module with the compiled loop, and that in Python."""
    return request.param


class StopError(BaseException):
    """An error that no handler receives."""


def fail(*arguments: object) -> NoReturn:
    raise AssertionError(arguments)


# ---- records -----------------------------------------------------------------------------------------------


def test_record_has_copies_of_its_headers(loop: Any) -> None:
    headers: list[Any] = [("a", b"1")]
    record = loop.Record("k", "v", 5, headers)
    headers.append(("b", None))
    other = record.with_headers(record.headers)
    other.headers.append(("c", None))
    assert record.headers == [("a", b"1")]
    assert (record.key, record.value, record.timestamp) == ("k", "v", 5)
    assert loop.Record("k", "v", 5).headers == loop.Record("k", "v", 5, ()).headers == []


def test_copies_of_record_have_one_other_attribute(loop: Any) -> None:
    record = loop.Record(key="k", value="v", timestamp=5, headers=[("a", b"1")])
    assert record.with_key(None) == loop.Record(None, "v", 5, [("a", b"1")])
    assert record.with_value(1) == loop.Record("k", 1, 5, [("a", b"1")])
    assert record.with_timestamp(6) == loop.Record("k", "v", 6, [("a", b"1")])
    assert record.with_headers(()) == loop.Record("k", "v", 5)
    assert record.with_headers(None) == loop.Record("k", "v", 5)


def test_records_are_equal_by_attributes_and_type(loop: Any) -> None:
    record, other = loop.Record("k", [1], 5), loop.Record("k", [1], 5)
    assert record == other
    assert (record != other) is False
    assert record != other.with_value([2])
    assert record != ("k", [1], 5, [])
    with pytest.raises(TypeError, match="unhashable type"):
        hash(record)
    with pytest.raises(TypeError, match="not supported between"):
        assert record < other


def test_record_matches_patterns_and_has_representation(loop: Any) -> None:
    record = loop.Record("k", b"v", True, [("a", None)])
    match record:
        case loop.Record(key, value, timestamp, headers):
            assert (key, value, timestamp, headers) == ("k", b"v", 1, [("a", None)])
        case _:
            fail()
    assert repr(record) == "Record(key='k', value=b'v', timestamp=1, headers=[('a', None)])"
    record.value = record
    with pytest.raises(RecursionError):
        repr(record)
    record.value = None


def test_record_can_be_pickled_and_copied() -> None:
    record = UsedRecord("k", ["v"], 5, [("a", b"1")])
    assert pickle.loads(pickle.dumps(record)) == record
    shallow, deep = copy.copy(record), copy.deepcopy(record)
    assert shallow == deep == record
    assert shallow.value is record.value is not deep.value
    assert shallow.headers is not record.headers


@pytest.mark.parametrize("timestamp", [-1, 1 << 63, -(1 << 63), 1.0, "1", None])
def test_record_rejects_invalid_timestamp(loop: Any, timestamp: Any) -> None:
    record = loop.Record("k", "v", 5)
    for call in (
        lambda: loop.Record("k", "v", timestamp),
        lambda: record.with_timestamp(timestamp),
        lambda: setattr(record, "timestamp", timestamp),
    ):
        with pytest.raises(StreamsError, match=f"the timestamp of a record must be .*, got {timestamp!r}$"):
            call()
    assert record.timestamp == 5


@pytest.mark.parametrize("headers", [[("a", "x")], [["a"]], "x", [None], {"a": b""}])
def test_record_rejects_invalid_headers(loop: Any, headers: Any) -> None:
    with pytest.raises(StreamsError, match=r"a header must be a tuple \(str, bytes or None\), got"):
        loop.Record("k", "v", 5, headers)
    with pytest.raises(TypeError, match="not iterable"):
        loop.Record("k", "v", 5, 5)


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers", "absent"])
def test_attributes_of_record_cannot_be_deleted(loop: Any, name: str) -> None:
    record = loop.Record("k", "v", 5)
    with pytest.raises(AttributeError, match=f"attribute '{name}' of a record cannot be deleted"):
        delattr(record, name)
    assert record == loop.Record("k", "v", 5)


@pytest.mark.parametrize("name", ["key", "value"])
def test_record_without_attribute_raises_errors(loop: Any, name: str) -> None:
    record = loop.Record("k", "v", 5)
    getattr(loop.Record, name).__delete__(record)
    writer = loop.SinkWriter(loop.OutputColumns(), "out", Codec.STRING, Codec.STRING, fail)
    for call in (
        lambda: repr(record),
        lambda: record == loop.Record("k", "v", 5),
        lambda: record.with_timestamp(5),
        lambda: record.with_headers(()),
        lambda: copy.copy(record),
        lambda: writer(record),
    ):
        with pytest.raises(AttributeError, match=name):
            call()


def test_record_has_no_other_attributes_or_subclasses(loop: Any) -> None:
    with pytest.raises(AttributeError, match="absent"):
        loop.Record("k", "v", 5).absent = 1
    with pytest.raises(TypeError, match="Record' is not an acceptable base type"):
        type("Sub", (loop.Record,), {})
    for arguments in ((), ("k", "v"), ("k", "v", 1, (), 1)):
        with pytest.raises(TypeError):
            loop.Record(*arguments)
    with pytest.raises(TypeError):
        loop.Record("k", "v", 1, other=1)


def test_key_can_change_record_during_repr(loop: Any) -> None:
    class Changing:
        def __repr__(self) -> str:
            record.key = record.value = None
            record.headers = []
            return "changing"

    record = loop.Record([Changing()], [b"v" * 100], 5, [("a", b"x" * 100)])
    assert repr(record).startswith("Record(key=[changing], value=[b'vvv")


# ---- rows --------------------------------------------------------------------------------------------------


def run(loop: Any, columns: Any, state: Any = None, stop: int = 3, before_ms: int = NEVER) -> tuple[int, list[Any]]:
    """Process rows, and return the next row with the values of the records."""
    seen: list[Any] = []
    children = [lambda record: seen.append((record.key, record.value, record.timestamp, record.headers))]
    return loop.run_rows(state or loop.RunState(), columns, stop, before_ms, children), seen


def columns_of(timestamps: Any, headers: Any = None) -> tuple[Any, ...]:
    return list("abc"), [1, 2, 3], timestamps, headers


@pytest.mark.parametrize(
    "convert",
    [list, tuple, lambda times: array("q", times), lambda times: memoryview(array("q", times)), bytes, range],
    ids=["list", "tuple", "array", "view", "bytes", "range"],
)
def test_rows_become_records_with_their_times(loop: Any, convert: Any) -> None:
    times = range(5, 8) if convert is range else convert([5, 7, 6])
    state = loop.RunState()
    end, seen = run(loop, columns_of(times, [(), [("a", b"1")], None]), state)
    assert end == 3
    assert seen == [("a", 1, times[0], []), ("b", 2, times[1], [("a", b"1")]), ("c", 3, times[2], [])]
    assert state.partition_time_ms == state.stream_time_ms == 7
    assert state.row == 2


def test_times_never_decrease(loop: Any) -> None:
    state = loop.RunState()
    state.stream_time_ms, state.partition_time_ms = 100, 6
    run(loop, columns_of([5, 7, 6]), state)
    assert (state.partition_time_ms, state.stream_time_ms) == (7, 100)


@pytest.mark.parametrize(
    ("row", "stop", "before_ms", "due_ms", "end"),
    [
        (0, 3, NEVER, NEVER, 3),
        (1, 2, NEVER, NEVER, 2),
        (0, 3, 7, NEVER, 1),
        (0, 3, 8, NEVER, 3),
        (0, 3, -1, NEVER, 1),
        (0, 3, 0, NEVER, 1),
        (0, 3, NEVER, 5, 1),
        (0, 3, NEVER, 7, 2),
        (0, 3, NEVER, 8, 3),
    ],
)
def test_rows_end_at_stop_before_and_due(loop: Any, row: int, stop: int, before_ms: int, due_ms: int, end: int) -> None:
    state = loop.RunState()
    state.row, state.due_ms = row, due_ms
    assert run(loop, columns_of([5, 7, 6]), state, stop, before_ms)[0] == end


def test_processor_can_change_due_time(loop: Any) -> None:
    state = loop.RunState()
    assert loop.run_rows(state, columns_of([5, 6, 7]), 3, NEVER, [lambda _: setattr(state, "due_ms", 5)]) == 1


@pytest.mark.parametrize(("row", "stop"), [(-1, 3), (3, 3), (4, 3), (0, 4), (0, 0), (0, -1)])
def test_rows_outside_of_columns_are_rejected(loop: Any, row: int, stop: int) -> None:
    state = loop.RunState()
    state.row = row
    with pytest.raises(IndexError, match=rf"row range \[{row}, {stop}\) is out of bounds"):
        run(loop, columns_of([5, 7, 6]), state, stop)


@pytest.mark.parametrize("timestamp", [-1, None, 1.5, "x", 1 << 63, -(1 << 80)])
@pytest.mark.parametrize("before_ms", [NEVER, -1])
@pytest.mark.parametrize("row", [0, 1])
def test_invalid_timestamp_is_reported_with_its_row(loop: Any, timestamp: Any, before_ms: int, row: int) -> None:
    state, times = loop.RunState(), [5, 6, 7]
    times[row] = timestamp
    with pytest.raises(StreamsError, match="the timestamp of a record must be"):
        run(loop, columns_of(times), state, before_ms=before_ms)
    assert state.row == row
    assert state.stream_time_ms == (5 if row else -1)


@pytest.mark.parametrize("shortened", [0, 1, 2, 3])
@pytest.mark.parametrize("before_ms", [NEVER, -1])
def test_processor_can_shorten_columns(loop: Any, shortened: int, before_ms: int) -> None:
    columns = columns_of([5, 6, 7], [(), (), ()])
    children = [lambda _: columns[shortened].clear()]
    state = loop.RunState()
    if before_ms == -1 and shortened != 2:
        assert loop.run_rows(state, columns, 3, before_ms, children) == 1
        return
    with pytest.raises(IndexError):
        loop.run_rows(state, columns, 3, before_ms, children)
    assert state.row == 1


def test_columns_must_be_tuple_of_lists(loop: Any) -> None:
    keys, values, times, headers = columns_of([5, 6, 7])
    for columns in ((tuple(keys), values, times, headers), (keys, iter(values), times, headers)):
        with pytest.raises(TypeError, match="keys and values must be lists"):
            run(loop, columns)
    with pytest.raises(ValueError, match="expected 4"):
        run(loop, (keys, values, times))
    if loop is _loop:
        with pytest.raises(TypeError, match="must be tuple, not list"):
            run(loop, [keys, values, times, headers])


def test_children_can_be_changed_by_a_child(loop: Any) -> None:
    seen: list[int] = []
    children: list[Any] = []
    children += [lambda _: children.pop(), lambda _: seen.append(1), lambda _: fail()]
    assert loop.run_rows(loop.RunState(), columns_of([5, 6, 7]), 1, NEVER, children) == 1
    assert seen == [1]
    children[:] = [loop.Guarded(lambda _: children.clear(), fail)]
    loop.run_rows(loop.RunState(), columns_of([5, 6, 7]), 1, NEVER, children)
    assert children == []


@pytest.mark.parametrize("error", [ValueError, StopError, KeyboardInterrupt])
def test_error_of_child_ends_rows(loop: Any, error: type[BaseException]) -> None:
    def process(record: Any) -> None:
        if record.value == 2:
            raise error("x")

    state = loop.RunState()
    with pytest.raises(error, match="x"):
        loop.run_rows(state, columns_of([5, 7, 6]), 3, NEVER, [process])
    assert (state.row, state.stream_time_ms) == (1, 7)


def test_rows_can_be_run_by_a_child(loop: Any) -> None:
    state, seen = loop.RunState(), list[Any]()

    def process(record: Any) -> None:
        seen.append(record.key)
        if record.key == "b" and len(seen) < 4:
            state.row = 0
            loop.run_rows(state, columns, 2, NEVER, [process])

    columns = columns_of([5, 6, 7])
    assert loop.run_rows(state, columns, 3, NEVER, [process]) == 3
    assert seen == ["a", "b", "a", "b", "c"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], False),
        ([0, NEVER], False),
        ((5, -1), True),
        (array("q", [1, -1]), True),
        (array("q", []), False),
        (memoryview(array("q", [1, 2])), False),
        ([1 << 80], False),
        ([-(1 << 80)], True),
        (b"\xff", False),
    ],
)
def test_negative_timestamps_are_found(loop: Any, times: Any, expected: bool) -> None:
    assert loop.has_negative(times) is expected


def test_timestamp_of_other_type_is_rejected(loop: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp must be an integer, got None"):
        loop.has_negative([1, None])
    with pytest.raises(TypeError):
        loop.has_negative(5)


# ---- processors --------------------------------------------------------------------------------------------


def test_guarded_counts_calls_and_estimates_time(loop: Any) -> None:
    guarded = loop.Guarded(lambda _: None, fail)
    assert (guarded.calls, guarded.nanoseconds) == (0, 0)
    guarded(None)
    once = guarded.nanoseconds
    assert once > 0
    assert once % 64 == 0
    for _ in range(63):
        guarded(None)
    assert (guarded.calls, guarded.nanoseconds) == (64, once)
    guarded(record=None)
    assert guarded.nanoseconds > once


def test_errors_of_processor_are_handled(loop: Any) -> None:
    handled: list[Any] = []

    def process(record: Any) -> None:
        raise ValueError(record)

    def on_error(record: Any, error: Exception) -> None:
        assert sys.exc_info()[1] is error
        assert error.__traceback__ is not None
        handled.append((record, str(error)))

    guarded = loop.Guarded(process, on_error)
    for number in range(3):
        guarded(number)
    assert handled == [(0, "0"), (1, "1"), (2, "2")]
    assert guarded.calls == 3
    assert sys.exc_info() == (None, None, None)


def test_error_of_handler_has_that_of_processor_as_context(loop: Any) -> None:
    def process(_: Any) -> None:
        raise ValueError("first")

    def on_error(_: Any, error: Exception) -> None:
        raise KeyError("second")

    guarded = loop.Guarded(process, on_error)
    try:
        raise LookupError("outer")
    except LookupError as outer:
        with pytest.raises(KeyError, match="second") as caught:
            guarded(None)
        assert sys.exc_info()[1] is outer
        context = caught.value.__context__
        assert isinstance(context, ValueError)
        assert context.__context__ is outer
    assert guarded.nanoseconds > 0


@pytest.mark.parametrize("error", [StopError, KeyboardInterrupt, SystemExit])
def test_interrupts_are_not_handled(loop: Any, error: type[BaseException]) -> None:
    def process(_: Any) -> None:
        raise error

    guarded = loop.Guarded(process, fail)
    with pytest.raises(error):
        guarded(None)
    assert guarded.calls == 1
    assert guarded.nanoseconds > 0


def test_nodes_cannot_be_pickled_or_created_without_arguments() -> None:
    state = _loop.RunState()
    nodes = [
        state,
        _loop.Guarded(fail, fail),
        _loop.Forwarder(state, [], {}, fail),
        _loop.OutputColumns(),
        _loop.SinkWriter(_loop.OutputColumns(), "out", 1, 1, fail),
        _loop.Serialize(1, fail),
        _loop.Deserialize(1, fail),
    ]
    for node in nodes:
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(node)
        with pytest.raises(TypeError, match="is not safe"):
            object.__new__(type(node))
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Sub", (type(node),), {})
        if type(node) not in (_loop.RunState, _loop.OutputColumns):
            with pytest.raises(TypeError):
                type(node)()


def test_state_rejects_values_of_other_types() -> None:
    state = _loop.RunState()
    for name in ("row", "partition_time_ms", "stream_time_ms", "due_ms"):
        with pytest.raises(OverflowError):
            setattr(state, name, 1 << 63)
        with pytest.raises(TypeError):
            setattr(state, name, "x")
        with pytest.raises(TypeError):
            delattr(state, name)
    with pytest.raises(TypeError):
        state.is_processing = 1
    assert state.is_processing is False


class Forward:
    """A forwarder with two children, and what it did."""

    def __init__(self, loop: Any, is_processing: bool = True) -> None:
        self.seen: list[Any] = []
        self.state = loop.RunState()
        self.state.is_processing = is_processing
        children = [lambda record: self.seen.append(("a", record)), lambda record: self.seen.append(("b", record))]
        by_name = dict(zip("ab", children, strict=True))
        self.forward = loop.Forwarder(self.state, children, by_name, self.reject)

    def reject(self, record: Any, child: Any) -> NoReturn:
        raise StreamsError(f"rejected {record!r}, {child!r}")


def test_forward_calls_all_children_or_one(loop: Any) -> None:
    setup, record = Forward(loop), loop.Record("k", "v", 5)
    setup.forward(record)
    setup.forward(record, None)
    setup.forward(record, "b")
    setup.forward(record, child="a")
    setup.forward(record=record)
    assert "".join(name for name, _ in setup.seen) == "ababbaab"
    assert all(seen is record for _, seen in setup.seen)


def test_forward_rejects_other_objects_and_children(loop: Any) -> None:
    class Fake:
        __class__ = loop.Record

    setup, record = Forward(loop), loop.Record("k", "v", 5)
    for arguments in ((None,), ("x",), (loop.Record,), (Fake(), "a"), (record, "c"), (record, ""), (record, 1)):
        with pytest.raises(StreamsError, match="^rejected "):
            setup.forward(*arguments)
    with pytest.raises(TypeError, match="unhashable type"):
        setup.forward(record, [])
    with pytest.raises(TypeError):
        setup.forward()
    assert setup.seen == []
    with pytest.raises(StreamsError, match="^rejected Record.*, None$"):
        Forward(loop, is_processing=False).forward(record)


def test_rejected_record_reaches_no_child(loop: Any) -> None:
    rejected: list[Any] = []
    forward = loop.Forwarder(loop.RunState(), [fail], {"a": fail}, lambda *arguments: rejected.append(arguments))
    record = loop.Record("k", "v", 5)
    assert forward(record) is None
    assert forward(record, "a") is None
    assert rejected == [(record, None), (record, "a")]


def test_forward_passes_errors_of_children_on(loop: Any) -> None:
    state = loop.RunState()
    state.is_processing = True

    def process(_: Any) -> NoReturn:
        raise ValueError("x")

    forward = loop.Forwarder(state, [process, fail], {"a": process}, fail)
    for arguments in ((), ("a",)):
        with pytest.raises(ValueError, match="x"):
            forward(loop.Record("k", "v", 5), *arguments)


def test_forward_to_itself_ends_with_recursion_error(loop: Any) -> None:
    state = loop.RunState()
    state.is_processing = True
    children: list[Any] = []
    forward = loop.Forwarder(state, children, {}, fail)
    children.append(forward)
    with pytest.raises(RecursionError):
        forward(loop.Record("k", "v", 5))
    children[0] = loop.Guarded(forward, lambda _, error: (_ for _ in ()).throw(error))
    with pytest.raises(RecursionError):
        forward(loop.Record("k", "v", 5))
    children.clear()


# ---- output ------------------------------------------------------------------------------------------------

ROWS: list[Any] = [
    ("out", None, 5, b"k", b"v", ()),
    ("other", 0, 0, None, b"", (("a", b"1"), ("b", None))),
    ("out", (1 << 31) - 1, NEVER, b"", None, ()),
    ("third", 7, -1, b"x" * 3_000, b"y" * 5_000, (("a", None),)),
]


def fill(loop: Any, rows: list[Any]) -> Any:
    columns = loop.OutputColumns()
    for row in rows:
        columns.append(*row)
    return columns


def test_appended_rows_are_returned(loop: Any) -> None:
    columns = fill(loop, ROWS)
    assert len(columns) == 4
    assert columns.rows() == ROWS
    assert columns.topics == {"out": 0, "other": 1, "third": 2}
    assert columns.headers == {1: ROWS[1][5], 3: ROWS[3][5]}
    columns.append(topic="out", partition=True, timestamp=1, key=None, value=None, headers=())
    assert columns.rows()[4] == ("out", 1, 1, None, None, ())


def test_buffers_contain_rows(loop: Any) -> None:
    assert loop.OutputColumns().buffers() == (b"",) * 9
    assert fill(loop, ROWS).buffers() == (
        struct.pack("=4i", 0, 1, 0, 2),
        struct.pack("=4i", -1, 0, (1 << 31) - 1, 7),
        struct.pack("=4q", 5, 0, NEVER, -1),
        b"k" + b"x" * 3_000,
        struct.pack("=4i", 1, 1, 1, 3_001),
        b"\1\0\1\1",
        b"v" + b"y" * 5_000,
        struct.pack("=4i", 1, 1, 1, 5_001),
        b"\1\1\0\1",
    )


def test_taken_rows_are_removed(loop: Any) -> None:
    columns = fill(loop, ROWS)
    taken = columns.take()
    assert (len(columns), columns.rows(), columns.topics, columns.headers) == (0, [], {}, {})
    columns.append(*ROWS[1])
    assert columns.rows() == [ROWS[1]]
    assert columns.topics == {"other": 0}
    assert taken.rows() == ROWS
    assert taken.take().rows() == ROWS
    assert len(taken) == 0


@pytest.mark.parametrize(
    ("position", "value", "error"),
    [
        (0, b"out", TypeError),
        (0, None, TypeError),
        (1, -1, ValueError),
        (1, 1 << 31, ValueError),
        (1, 1 << 80, ValueError),
        (1, 1.0, ValueError),
        (1, "1", ValueError),
        (2, 1 << 63, OverflowError),
        (2, None, TypeError),
        (2, 1.5, TypeError),
        (3, "k", TypeError),
        (3, bytearray(b"k"), TypeError),
        (4, 5, TypeError),
        (5, [], TypeError),
        (5, None, TypeError),
    ],
)
def test_invalid_row_leaves_columns_unchanged(loop: Any, position: int, value: Any, error: type[Exception]) -> None:
    columns = fill(loop, ROWS)
    row = ["new", 1, 5, b"k", b"v", (("a", b"1"),)]
    row[position] = value
    before = columns.buffers()
    with pytest.raises(error):
        columns.append(*row)
    assert columns.buffers() == before
    assert columns.rows() == ROWS
    assert list(columns.topics) == ["out", "other", "third"]
    assert list(columns.headers) == [1, 3]


@pytest.mark.parametrize(("position", "name"), [(3, "key"), (4, "value")])
def test_type_of_key_or_value_is_named(loop: Any, position: int, name: str) -> None:
    row: list[Any] = ["new", 1, 5, b"k", b"v", ()]
    row[position] = 5
    with pytest.raises(TypeError, match=f"^{name} must be bytes or None, got int$"):
        loop.OutputColumns().append(*row)


def test_topics_are_stored_as_exact_text(loop: Any) -> None:
    class Topic(str):
        def __eq__(self, other: object) -> bool:
            return bool(columns.take())

        def __hash__(self) -> int:
            return hash(columns.take())

    columns = loop.OutputColumns()
    columns.append(Topic("out"), None, 1, b"k", b"v", ())
    writer = loop.SinkWriter(columns, Topic("out"), Codec.BYTES, Codec.BYTES, fail)
    writer(loop.Record(b"a", b"b", 2))
    assert [type(topic) for topic in columns.topics] == [str]
    assert columns.rows() == [("out", None, 1, b"k", b"v", ()), ("out", None, 2, b"a", b"b", ())]


def test_output_is_limited_to_2_gib_in_python() -> None:
    columns, part = loop_py.OutputColumns(), bytes(1 << 26)
    for _ in range(31):
        columns.append("out", None, 1, part, None, ())
    columns.append("out", None, 1, part[1:], None, ())
    with pytest.raises(OverflowError, match=re.escape(TOO_LARGE)):
        columns.append("new", None, 1, b"x", None, (("a", b""),))
    assert (len(columns), list(columns.topics), columns.headers) == (32, ["out"], {})
    columns.append("out", None, 1, b"", part, ())


VALUES: list[tuple[Codec, Any, bytes]] = [
    (Codec.BYTES, b"", b""),
    (Codec.BYTES, b"abc", b"abc"),
    (Codec.STRING, "", b""),
    (Codec.STRING, "a\u20ac\U0001f600", "a\u20ac\U0001f600".encode()),
    (Codec.INTEGER, -1, b"\xff" * 4),
    (Codec.INTEGER, (1 << 31) - 1, b"\x7f\xff\xff\xff"),
    (Codec.INTEGER, -(1 << 31), b"\x80\0\0\0"),
    (Codec.LONG, -2, b"\xff" * 7 + b"\xfe"),
    (Codec.LONG, NEVER, b"\x7f" + b"\xff" * 7),
    (Codec.LONG, -(1 << 63), b"\x80" + bytes(7)),
    (Codec.DOUBLE, 1.5, struct.pack(">d", 1.5)),
    (Codec.DOUBLE, -0.0, b"\x80" + bytes(7)),
    (Codec.DOUBLE, float("-inf"), struct.pack(">d", float("-inf"))),
]


@pytest.mark.parametrize(("codec", "value", "data"), VALUES)
def test_sink_encodes_objects_of_exact_types(loop: Any, codec: Codec, value: Any, data: bytes) -> None:
    columns = loop.OutputColumns()
    writer = loop.SinkWriter(columns, "out", codec, codec, fail)
    writer(loop.Record(value, None, 5))
    writer(record=loop.Record(None, value, 6))
    assert columns.rows() == [("out", None, 5, data, None, ()), ("out", None, 6, None, data, ())]


class Text(str):
    """Text whose type is not exactly ``str``."""


class Blob(bytes):
    """Bytes whose type is not exactly ``bytes``."""


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (Codec.OTHER, b"x"),
        (Codec.OTHER, None),
        (99, b"x"),
        (Codec.BYTES, "x"),
        (Codec.BYTES, Blob(b"x")),
        (Codec.BYTES, bytearray(b"x")),
        (Codec.STRING, b"x"),
        (Codec.STRING, Text("x")),
        (Codec.STRING, "\ud800"),
        (Codec.INTEGER, 1 << 31),
        (Codec.INTEGER, -(1 << 31) - 1),
        (Codec.INTEGER, True),
        (Codec.INTEGER, 1.0),
        (Codec.INTEGER, 1 << 80),
        (Codec.LONG, 1 << 63),
        (Codec.LONG, -(1 << 63) - 1),
        (Codec.LONG, False),
        (Codec.LONG, "1"),
        (Codec.DOUBLE, 1),
        (Codec.DOUBLE, "1"),
    ],
)
def test_sink_leaves_other_objects_to_function(loop: Any, codec: int, value: Any) -> None:
    columns, others = loop.OutputColumns(), list[Any]()
    writer = loop.SinkWriter(columns, "out", Codec.BYTES, codec, others.append)
    record = loop.Record(b"key", value, 5)
    writer(record)
    loop.SinkWriter(columns, "out", codec, Codec.BYTES, others.append)(record)
    assert [id(other) for other in others] == [id(record)] * 2
    assert (len(columns), columns.topics, columns.buffers()) == (0, {}, (b"",) * 9)


WINDOWED_KEYS = (
    (time_windowed, STRING, ("", "k", "abc", "\u00e4\u20ac", "x" * 119, "x" * 120, "x" * 121, "x" * 1_000)),
    (time_windowed, LONG, (0, -1, 1 << 40)),
    (session_windowed, BYTES, (b"", b"abcdefg", b"x" * 112, b"x" * 113, b"x" * 500)),
    (session_windowed, INTEGER, (0, 7, -5)),
)


@pytest.mark.parametrize("partitions", [None, 1, 7, (1 << 31) - 1])
@pytest.mark.parametrize(("create", "inner", "keys"), WINDOWED_KEYS)
def test_sink_writes_windowed_keys_like_their_serde(
    loop: Any, create: Any, inner: Serde, keys: tuple[Any, ...], partitions: int | None
) -> None:
    serde = create(inner, 10) if create is time_windowed else create(inner)
    columns, others, topics = loop.OutputColumns(), list[Any](), list[str]()

    def count_partitions(topic: str) -> int:
        topics.append(topic)
        assert partitions is not None
        return partitions

    count = None if partitions is None else count_partitions
    writer = loop.SinkWriter(columns, "out", key_codec(serde.serialize), Codec.BYTES, others.append, count)
    select = PartitionByInnerKey(inner)
    windows = [Windowed(key, start, start + 10) for key in keys for start in (0, 5, (1 << 62) + 3)]
    for window in windows:
        writer(loop.Record(window, b"v", 5))
    assert [(row[1], row[3]) for row in columns.rows()] == [
        (None if partitions is None else select("out", window, b"v", partitions), serde.serialize("out", window))
        for window in windows
    ]
    assert others == []
    assert topics == ([] if partitions is None else ["out"] * len(windows))


@pytest.mark.parametrize("flag", [Codec.TIME_WINDOWED, Codec.SESSION_WINDOWED])
def test_sink_leaves_other_windows_and_partition_counts_to_function(loop: Any, flag: Codec) -> None:
    class Subclass(Windowed):
        __slots__ = ()

    def fail(_topic: str) -> int:
        raise ValueError("the number of partitions is unknown")

    columns, others = loop.OutputColumns(), list[Any]()
    keys: list[Any] = [None, b"k", (b"k", 0, 5), Windowed(None, 0, 5), Windowed("k", 0, 5), Subclass(b"k", 0, 5)]
    keys += [Windowed(b"k", True, 5), Windowed(b"k", 0, 5.0), Windowed(b"k", 1 << 63, 5), Windowed(b"k", 0, None)]  # type: ignore[arg-type]
    for key in keys:
        loop.SinkWriter(columns, "out", flag + Codec.BYTES, Codec.BYTES, others.append)(loop.Record(key, b"v", 5))
    counts: list[Any] = [
        fail,
        lambda _: 0,
        lambda _: -1,
        lambda _: 1 << 31,
        lambda _: "3",
        lambda _: True,
        lambda _: None,
    ]
    for count in counts:
        writer = loop.SinkWriter(columns, "out", flag + Codec.BYTES, Codec.BYTES, others.append, count)
        writer(loop.Record(Windowed(b"k", 0, 5), b"v", 5))
    assert len(others) == len(keys) + len(counts)
    assert len(columns) == 0


def test_sink_leaves_headers_and_other_records_to_function(loop: Any) -> None:
    columns, others = loop.OutputColumns(), list[Any]()
    writer = loop.SinkWriter(columns, "out", Codec.BYTES, Codec.BYTES, others.append)
    record = loop.Record(b"k", b"v", 5, [("a", b"1")])
    for one in (record, None, 5, "record"):
        writer(one)
    assert others == [record, None, 5, "record"]
    empties: tuple[Any, ...] = ([], (), None, 0, "")
    for empty in empties:
        record.headers = empty
        writer(record)
    assert len(columns) == 5
    record.headers = 5
    writer(record)
    assert others[4] is record

    class Unclear:
        def __bool__(self) -> bool:
            raise ValueError("unclear")

    record.headers = Unclear()
    with pytest.raises(ValueError, match="unclear"):
        writer(record)
    assert len(columns) == 5


def test_function_of_sink_can_take_output(loop: Any) -> None:
    columns = loop.OutputColumns()
    taken: list[Any] = []
    writer = loop.SinkWriter(columns, "out", Codec.BYTES, Codec.BYTES, lambda _: taken.append(columns.take()))
    for value in (b"1", "other", b"2"):
        writer(loop.Record(b"k", value, 5))
    assert [row[4] for row in taken[0].rows()] == [b"1"]
    assert [row[4] for row in columns.rows()] == [b"2"]


# ---- conversions -------------------------------------------------------------------------------------------

SERDES: dict[Codec, Serde] = {
    Codec.BYTES: BYTES,
    Codec.STRING: STRING,
    Codec.INTEGER: INTEGER,
    Codec.LONG: LONG,
    Codec.DOUBLE: DOUBLE,
}


@pytest.mark.parametrize(("codec", "value", "data"), VALUES)
def test_objects_are_serialized_and_deserialized(loop: Any, codec: Codec, value: Any, data: bytes) -> None:
    serde = SERDES[codec]
    serialize = loop.Serialize(codec, lambda value: serde.serialize("s", value))
    deserialize = loop.Deserialize(codec, lambda data: serde.deserialize("s", data))
    assert serialize(value) == serialize(value=value) == serialize(*[value]) == data
    assert deserialize(data) == deserialize(data=data) == value
    assert type(deserialize(data)) is type(value)
    for call in (serialize, deserialize):
        for arguments in ((), (value, value)):
            with pytest.raises(TypeError):
                call(*arguments)


def test_other_objects_and_bytes_go_to_function(loop: Any) -> None:
    for codec, value in ((Codec.INTEGER, 1 << 31), (Codec.LONG, None), (Codec.STRING, Text("x")), (Codec.OTHER, 1)):
        assert loop.Serialize(codec, lambda value: ("other", value))(value) == ("other", value)
    for codec, data in (
        (Codec.INTEGER, b"123"),
        (Codec.LONG, b"123456789"),
        (Codec.DOUBLE, b""),
        (Codec.STRING, b"\xff"),
        (Codec.LONG, bytearray(8)),
        (Codec.BYTES, None),
        (Codec.OTHER, b"x"),
    ):
        assert loop.Deserialize(codec, lambda data: ("other", data))(data) == ("other", data)


# ---- Arrow arrays ------------------------------------------------------------------------------------------


def read(loop: Any, codec: int, column: Any) -> list[Any]:
    valid, ends, data = column.buffers()
    result: list[Any] = loop.read_column(codec, valid, ends, data, column.offset, len(column))
    return result


@pytest.mark.parametrize("codec", list(SERDES))
def test_rows_of_sliced_arrays_are_deserialized(loop: Any, codec: Codec) -> None:
    pairs = [(value, data) for of, value, data in VALUES if of is codec] * 5
    values = [None if number % 3 == 1 else value for number, (value, _) in enumerate(pairs)]
    column = pa.array([None if number % 3 == 1 else data for number, (_, data) in enumerate(pairs)], pa.binary())
    full = pa.array([data for _, data in pairs], pa.binary())
    for first in range(len(pairs) + 1):
        for count in (0, 1, 3, 9, len(pairs)):
            assert read(loop, codec, column.slice(first, count)) == values[first : first + count]
    assert read(loop, codec, full) == [value for value, _ in pairs]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.binary()),
        pa.nulls(3, pa.binary()),
        pa.array([b"", b""], pa.binary()),
        pa.array([b"abc", None]).slice(2),
    ],
)
def test_empty_and_null_rows_are_deserialized(loop: Any, column: Any) -> None:
    assert read(loop, Codec.BYTES, column) == column.to_pylist()
    for empty in (None, b""):
        assert loop.read_column(Codec.BYTES, empty, empty, empty, 0, 0) == []


@pytest.mark.parametrize(
    ("ends", "data", "first", "count", "message"),
    [
        ([0, 1, 2], b"ab", 0, 3, "the buffers are shorter than the column"),
        ([0, 1, 2], b"ab", 2, 1, "the buffers are shorter than the column"),
        ([0, 1, 2], b"ab", -1, 1, "the buffers are shorter than the column"),
        ([0, 1, 2], b"ab", 0, -1, "the buffers are shorter than the column"),
        ([0, 1, 2], b"ab", (1 << 63) - 2, 1, "the buffers are shorter than the column"),
        ([0, 1, 2], b"ab", 1, (1 << 63) - 2, "the buffers are shorter than the column"),
        ([0, 1, 3], b"ab", 0, 2, r"the data of row \d exceeds the buffer \(\d bytes\)"),
        ([0, 2, 1], b"ab", 0, 2, r"the data of row \d exceeds the buffer \(\d bytes\)"),
        ([-1, 1, 2], b"ab", 0, 2, r"the data of row \d exceeds the buffer \(\d bytes\)"),
        ([0, (1 << 31) - 1, 2], b"ab", 0, 1, r"the data of row \d exceeds the buffer \(\d bytes\)"),
        ([-(1 << 31), (1 << 31) - 1, 2], b"ab", 0, 1, r"the data of row \d exceeds the buffer \(\d bytes\)"),
        ([0, 1, 2], None, 0, 2, r"the data of row \d exceeds the buffer \(\d bytes\)"),
    ],
)
def test_corrupt_offsets_are_rejected(loop: Any, ends: Any, data: Any, first: int, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loop.read_column(Codec.BYTES, None, array("i", ends), data, first, count)


def test_other_errors_of_columns(loop: Any) -> None:
    ends = array("i", range(11))
    with pytest.raises(ValueError, match="the buffers are shorter than the column"):
        loop.read_column(Codec.BYTES, b"\xff", ends, bytes(10), 0, 9)
    assert loop.read_column(Codec.BYTES, b"\xfe", ends, bytes(10), 0, 8) == [None] + [b"\0"] * 7
    for codec in (Codec.OTHER, 6, 17, -1):
        with pytest.raises(ValueError, match=f"unsupported codec: {int(codec)}"):
            loop.read_column(codec, None, ends, bytes(10), 0, 1)
    with pytest.raises(ValueError, match="a row cannot be deserialized with codec 4"):
        loop.read_column(Codec.LONG, None, ends, bytes(10), 0, 1)
    with pytest.raises(ValueError, match="a row cannot be deserialized with codec 2"):
        loop.read_column(Codec.STRING, None, ends, b"\xff" * 10, 0, 1)
    view = bytearray(10)
    loop.read_column(Codec.BYTES, None, ends, view, 0, 1)
    view.append(1)  # the buffers are released


# ---- equal, and safe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_number", range(5))
def test_random_calls_have_equal_results(run_number: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    LoopCalls(_loop, loop_py, random.Random(seed)).run(1_000)


def use_everything(loop: Any) -> Any:
    """Use all types and functions, and return the output."""
    state, output = loop.RunState(), loop.OutputColumns()
    state.is_processing = True

    def others(record: Any) -> None:
        output.append("others", 1, record.timestamp, b"k", b"v", tuple(record.headers))

    children = [loop.SinkWriter(output, "out", Codec.STRING, Codec.LONG, others)]
    forward = loop.Forwarder(state, children, {"a": children[0]}, fail)

    def process(record: Any) -> None:
        forward(record)
        forward(record.with_value(record.value + 1).with_headers([("a", b"1")]), "a")
        if record.value == 2:
            raise ValueError(repr(record))

    guarded = loop.Guarded(process, lambda record, error: others(record))
    keys = loop.read_column(Codec.STRING, None, array("i", [0, 1, 2, 3]), b"abc", 0, 3)
    values = loop.read_column(Codec.INTEGER, b"\xff", array("i", [0, 4, 8, 12]), struct.pack(">3i", 1, 2, 3), 0, 3)
    loop.run_rows(state, (keys, values, array("q", [5, 6, 7]), [(), [("h", b"x")], None]), 3, NEVER, [guarded])
    if loop is _loop:
        serialize, deserialize = _loop.Serialize(Codec.LONG, fail), _loop.Deserialize(Codec.LONG, fail)
        assert deserialize(serialize(1 << 40)) == 1 << 40
    taken = output.take()
    return taken.rows(), taken.buffers()


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="CPython 3.12 and 3.13 crash when an allocation fails, without C modules, too"
)
def test_each_failed_allocation_is_reported() -> None:
    capi = pytest.importorskip("_testcapi")
    expected = use_everything(loop_py)
    assert use_everything(_loop) == expected
    for number in range(10_000):
        error: BaseException | None = None
        result = None
        capi.set_nomemory(number, number + 1)
        try:
            result = use_everything(_loop)
        except (MemoryError, StreamsError) as raised:
            error = raised
        except SystemError as raised:
            capi.remove_mem_hooks()
            raise AssertionError(number) from raised
        finally:
            capi.remove_mem_hooks()
        if error is None and result == expected and number > 150:
            break
    assert 150 < number < 9_999


def test_failed_allocation_leaves_columns_unchanged() -> None:
    capi = pytest.importorskip("_testcapi")
    for number in range(1_000):
        columns = _loop.OutputColumns()
        for row in ROWS:
            columns.append(*row)
        headers = (("a", b"1"),)
        is_done = False
        capi.set_nomemory(number, number + 1)
        try:
            columns.append("new", 1, 1, b"k" * 9_000, b"v" * 20_000, headers)
            is_done = True
        except MemoryError:
            pass
        finally:
            capi.remove_mem_hooks()
        if is_done:
            break
        assert columns.rows() == ROWS
        assert list(columns.topics) == ["out", "other", "third"]
        assert list(columns.headers) == [1, 3]
        columns.append(*ROWS[0])
        assert columns.rows() == [*ROWS, ROWS[0]]
    assert 3 < number < 999


def test_calls_do_not_leak_memory() -> None:
    def repeat(count: int) -> None:
        rng = random.Random(1)
        for _ in range(count):
            use_everything(_loop)
            LoopCalls(_loop, loop_py, rng).run(1)
        gc.collect()

    def measure_growth() -> int:
        before = tracemalloc.get_traced_memory()[0]
        repeat(300)
        return tracemalloc.get_traced_memory()[0] - before

    repeat(300)
    tracemalloc.start()
    try:
        # Another thread of the process, for example one of Spark, can allocate memory in one of the rounds.
        growth = min(measure_growth() for _ in range(3))
    finally:
        tracemalloc.stop()
    assert growth < 40_000


def test_references_do_not_leak() -> None:
    shared: list[Any] = [object(), [1], "text " * 3, b"bytes " * 3, _loop.Record, _loop.Guarded, _loop.OutputColumns]
    use_everything(_loop)
    before = [sys.getrefcount(item) for item in shared]
    for _ in range(200):
        record = _loop.Record(shared[0], shared[1], 5, [("a", b"1")])
        record.with_key(shared[1]).with_value(shared[0])
        repr(record), record == copy.copy(record)
        with pytest.raises(StreamsError):
            _loop.Record(shared[0], shared[1], 5, [shared[0]])
        columns = _loop.OutputColumns()
        columns.append("t", None, 5, shared[3], shared[3], ())
        writer = _loop.SinkWriter(columns, "t", Codec.STRING, Codec.BYTES, len)
        writer(_loop.Record(shared[2], shared[3], 5))
        _loop.Guarded(lambda _: 1 // 0, lambda *_: None)(record)
    del record, columns, writer
    gc.collect()
    assert [sys.getrefcount(item) for item in shared] == before


@pytest.mark.parametrize("loop", [_loop], ids=["c"])
def test_cycles_of_nodes_are_collected(loop: Any) -> None:
    class Node:
        pass

    def weak_cycle() -> weakref.ref[Node]:
        node: Any = Node()
        node.state, node.output = loop.RunState(), loop.OutputColumns()
        node.children = [node]
        node.guarded = loop.Guarded(lambda _: node, lambda *_: node)
        node.forward = loop.Forwarder(node.state, node.children, {"a": node}, lambda *_: node)
        node.writer = loop.SinkWriter(node.output, "out", 1, 1, lambda _: node)
        node.serialize, node.deserialize = loop.Serialize(1, node.forward), loop.Deserialize(1, node.forward)
        node.record = loop.Record(node, [node], 5)
        node.record.headers = [node]
        node.output.append("out", None, 5, None, None, ((node,),))
        node.output.topics["node"] = node
        return weakref.ref(node)

    found = weak_cycle()
    gc.collect()
    assert found() is None


def test_changed_topic_numbers_are_rejected() -> None:
    for number in (-1, 1 << 31, 1 << 80, "x", None):
        columns = _loop.OutputColumns()
        columns.append(*ROWS[0])
        columns.topics["out"] = number
        with pytest.raises((ValueError, OverflowError)):
            columns.append(*ROWS[0])
        assert columns.rows.__self__ is columns
        assert len(columns) == 1
    columns.topics.clear()
    with pytest.raises(IndexError):
        columns.rows()


def test_task_with_compiled_modules_equals_task_in_python() -> None:
    seeds = [str(secrets.randbits(32)) for _ in range(8)]
    print("seeds", *seeds)
    outputs = []
    for is_pure, kind in (("0", "method_descriptor"), ("1", "function")):
        environment = {**os.environ, "ZKCONSUMER_PURE": is_pure, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "helpers.task_runs", *seeds]
        done = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        name, *lines = done.stdout.splitlines()
        assert name == f"Record of {kind}"
        outputs.append(lines)
    compiled, python = outputs
    for number, (line, expected) in enumerate(zip(compiled, python, strict=False)):
        assert line == expected, f"line {number}"
    assert len(compiled) == len(python) > 100


def test_finalizers_at_exit_can_call_nodes() -> None:
    code = """
from zkconsumer.topology.loop import _loop
state, output = _loop.RunState(), _loop.OutputColumns()
state.is_processing = True
class Late:
    def __del__(self):
        try:
            self.forward(self.record.with_value(b"w"))
            self.guarded(self.record)
            print(len(self.output.rows()))
        except Exception as error:
            print(type(error).__name__)
late = Late()
late.cycle, late.output = late, output
late.record = _loop.Record(b"k", b"v", 5)
writer = _loop.SinkWriter(output, "out", 1, 1, print)
late.forward = _loop.Forwarder(state, [writer], {"a": late}, print)
late.guarded = _loop.Guarded(writer, print)
_loop.late = late
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("2", "") or done.stdout.strip().endswith("Error")
