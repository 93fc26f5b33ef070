"""Tests of messages, of the rows from which they are created, and of the iterator over them: compiled and in Python."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import pickle
import queue
import struct
import subprocess
import sys
import threading
import weakref
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fuzz.twins.message_calls import binary_column

from zkconsumer import MessageAndMetadata, _message, message_py, string_decoder

FIELDS = ("orders", 3, 42, b"key", b"value", 1_600_000_000_000, 0, (("h", b"1"), ("i", None)))
PLACE = "orders", 3
ROOT = Path(__file__).resolve().parents[2]
MODULES = {"c": _message, "python": message_py}
Headers = Sequence[tuple[bytes, bytes | None]]


@pytest.fixture(params=MODULES, name="module")
def _module(request: pytest.FixtureRequest) -> ModuleType:
    return MODULES[request.param]


def message_class(module: ModuleType) -> type[Any]:
    """Return ``MessageAndMetadata`` with the base class of a module."""
    members = {name: value for name, value in vars(MessageAndMetadata).items() if "abc" not in name}
    return ABCMeta("MessageAndMetadata", (module.MessageFields, Sequence), members)


def columns_of(keys: Sequence[bytes | None], values: Sequence[bytes | None], first: int = 0) -> tuple[bytearray, ...]:
    """Return the columns of records with consecutive offsets and timestamps."""
    count = len(values)
    offsets = bytearray(struct.pack(f"={count}q", *range(first, first + count)))
    timestamps = bytearray(struct.pack(f"={count}q", *range(first + 1000, first + 1000 + count)))
    kinds = bytearray(struct.pack(f"={count}i", *(row % 3 - 1 for row in range(count))))
    return (offsets, timestamps, kinds, *map(bytearray, [*binary_column(keys), *binary_column(values)]))


def headers_of(lists: Sequence[Headers]) -> tuple[bytearray, ...]:
    """Return the header buffers of records."""
    pairs = [pair for pairs in lists for pair in pairs]
    ends = [sum(map(len, lists[:row])) for row in range(len(lists) + 1)]
    return (
        bytearray(struct.pack(f"={len(ends)}i", *ends)),
        bytearray(len(lists) // 8 + 1),
        *map(bytearray, binary_column([key for key, _ in pairs])),
        *map(bytearray, binary_column([value for _, value in pairs])),
    )


def rows_of(
    module: ModuleType,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    decoders: Any = (None, None),
) -> Any:
    """Return rows with the given values."""
    columns = columns_of(keys or [None] * len(values), values)
    header_buffers = None if headers is None else headers_of(headers)
    return module.MessageRows(message_class(module), PLACE, len(values), columns, header_buffers, decoders)


def values_of(count: int) -> list[bytes]:
    return [b"value %d" % row for row in range(count)]


# ---- messages as sequences ----------------------------------------------------------------------------


def test_message_is_like_tuple_of_its_fields(module: ModuleType) -> None:
    message = message_class(module)(*FIELDS)

    assert tuple(message) == FIELDS
    assert (len(message), message[0], message[-1], message[2:5], message[::-1]) == (
        *(8, "orders", FIELDS[-1]),
        *(FIELDS[2:5], FIELDS[::-1]),
    )
    assert [getattr(message, name) for name in MessageAndMetadata._fields] == list(FIELDS)
    assert (b"key" in message, list(reversed(message)), message.index(42), message.count(3)) == (
        *(True, list(FIELDS[::-1])),
        *(2, 1),
    )


def test_message_is_no_tuple_but_a_sequence() -> None:
    message = MessageAndMetadata(*FIELDS)

    assert not isinstance(message, tuple)
    assert isinstance(message, Sequence)
    assert not hasattr(message, "__dict__")


@pytest.mark.parametrize("index", [8, -9, 1 << 70])
def test_index_outside_of_message_is_rejected(module: ModuleType, index: int) -> None:
    with pytest.raises(IndexError):
        message_class(module)(*FIELDS)[index]


def test_field_name_is_no_index(module: ModuleType) -> None:
    with pytest.raises(TypeError):
        message_class(module)(*FIELDS)["topic"]


def test_message_compares_with_messages_and_tuples(module: ModuleType) -> None:
    create = message_class(module)
    message, later = create(*FIELDS), create(*FIELDS[:2], 43, *FIELDS[3:])

    assert message == create(*FIELDS)
    assert message == FIELDS
    assert message == FIELDS
    assert message != later
    assert later != FIELDS
    assert message != list(FIELDS)
    assert hash(message) == hash(FIELDS)
    assert sorted([later, message]) == [message, later]
    assert (message < later, later <= FIELDS, later > FIELDS, message >= later) == (True, False, True, False)
    with pytest.raises(TypeError):
        assert message < list(FIELDS)


def test_message_with_unhashable_field_cannot_be_hashed(module: ModuleType) -> None:
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        hash(message_class(module)(*FIELDS[:4], [1], *FIELDS[5:]))


def test_message_takes_fields_by_name(module: ModuleType) -> None:
    assert message_class(module)(**dict(zip(MessageAndMetadata._fields, FIELDS, strict=True))) == FIELDS


@pytest.mark.parametrize("fields", [{}, {"topic": "t"}, dict(zip("abcdefgh", FIELDS, strict=True))])
def test_message_without_all_fields_is_rejected(module: ModuleType, fields: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        message_class(module)(**fields)


def test_fields_cannot_be_set(module: ModuleType) -> None:
    message = message_class(module)(*FIELDS)

    for name in (*MessageAndMetadata._fields, "other"):
        with pytest.raises(AttributeError):
            setattr(message, name, 1)
    assert message == FIELDS


def test_message_matches_patterns() -> None:
    match MessageAndMetadata(*FIELDS):
        case MessageAndMetadata("orders", offset=offset, value=bytes(value)):
            assert (offset, value) == (42, b"value")
    match MessageAndMetadata(*FIELDS):
        case [topic, partition, *_]:
            assert (topic, partition) == PLACE


def test_message_is_copied_and_pickled() -> None:
    message = MessageAndMetadata(*FIELDS)

    for copied in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert type(copied) is MessageAndMetadata
        assert copied == message


def test_message_has_methods_of_named_tuples() -> None:
    message = MessageAndMetadata._make(FIELDS)

    assert message._asdict() == dict(zip(message._fields, FIELDS, strict=True))
    assert message._replace(offset=7, value=None) == (*FIELDS[:2], 7, b"key", None, *FIELDS[5:])
    assert repr(message) == (
        "MessageAndMetadata(topic='orders', partition=3, offset=42, key=b'key', value=b'value', "
        "timestamp=1600000000000, timestamp_type=0, headers=(('h', b'1'), ('i', None)))"
    )
    with pytest.raises(TypeError, match="a message has no field 'valeu'; its fields are topic, partition, offset, "):
        message._replace(valeu=b"")


def test_messages_in_cycles_are_collected(module: ModuleType) -> None:
    class Value:
        message: Any

    value = Value()
    value.message = message_class(module)(*FIELDS[:4], value, *FIELDS[5:])
    reference = weakref.ref(value)
    del value
    gc.collect()

    assert reference() is None


# ---- taking messages from rows ------------------------------------------------------------------------


def test_rows_have_the_records_of_their_columns(module: ModuleType) -> None:
    headers: list[Headers] = [[(b"a", b"1"), (b"\xff", None)], [], [(b"", b"")]]
    rows = rows_of(module, [b"x", None, b""], keys=[None, b"", b"key"], headers=headers)

    assert [tuple(message) for message in rows] == [
        ("orders", 3, 0, None, b"x", 1000, -1, (("a", b"1"), ("\udcff", None))),
        ("orders", 3, 1, b"", None, 1001, 0, ()),
        ("orders", 3, 2, b"key", b"", 1002, 1, (("", b""),)),
    ]


def test_timestamp_types_are_limited(module: ModuleType) -> None:
    columns = columns_of([None] * 4, [None] * 4)
    columns[2][:] = struct.pack("=4i", -7, 0, 1, 7)

    messages = module.MessageRows(message_class(module), PLACE, 4, columns, None)

    assert [message.timestamp_type for message in messages] == [-1, 0, 1, 1]


def test_messages_are_taken_from_the_front_and_discarded_from_the_end(module: ModuleType) -> None:
    rows = rows_of(module, values_of(4))

    assert len(rows) == 4
    assert rows.popleft().offset == 0
    assert rows.pop() is None
    assert len(rows) == 2
    assert [message.offset for message in rows] == [1, 2]
    for take in (rows.popleft, rows.peek, rows.pop):
        with pytest.raises(IndexError):
            take()
    with pytest.raises(StopIteration):
        next(rows)
    assert len(rows) == 0


def test_cleared_rows_are_empty(module: ModuleType) -> None:
    rows = rows_of(module, values_of(3))
    first = rows.popleft()
    rows.clear()

    assert (len(rows), list(rows), first.value) == (0, [], b"value 0")
    assert rows.offset_at(2) == 2


def test_peeked_message_is_the_next_message(module: ModuleType) -> None:
    rows = rows_of(module, values_of(3))
    for offset in range(3):
        peeked = rows.peek()
        assert (peeked.offset, len(rows)) == (offset, 3 - offset)
        assert rows.peek() is peeked
        assert rows.popleft() is peeked


def test_discarded_peeked_message_keeps_its_fields(module: ModuleType) -> None:
    rows = rows_of(module, values_of(1))
    peeked = rows.peek()
    rows.pop()

    with pytest.raises(IndexError):
        rows.popleft()
    del rows
    assert tuple(peeked) == ("orders", 3, 0, None, b"value 0", 1000, -1, ())


@pytest.mark.parametrize("row", [-1, 3, 1 << 70])
def test_offset_of_unknown_row_is_rejected(module: ModuleType, row: int) -> None:
    rows = rows_of(module, values_of(3))

    assert [rows.offset_at(known) for known in range(3)] == [0, 1, 2]
    with pytest.raises(IndexError):
        rows.offset_at(row)


@pytest.mark.parametrize("kept", [{0}, {0, 1, 2}, {1, 5, 6}, {9}, set(range(10)), set()])
def test_kept_messages_do_not_change(module: ModuleType, kept: set[int]) -> None:
    rows = rows_of(module, values_of(10), headers=[[(b"h", b"%d" % row)] for row in range(10)])
    found = {}
    for number, message in enumerate(rows):
        if number in kept:
            found[number] = message
        elif number % 2:
            assert message.value == b"value %d" % number
    del message, rows

    expected = {
        row: ("orders", 3, row, None, b"value %d" % row, 1000 + row, row % 3 - 1, (("h", b"%d" % row),)) for row in kept
    }
    assert {number: tuple(message) for number, message in found.items()} == expected


@pytest.mark.parametrize("taken", range(5))
def test_messages_do_not_keep_the_buffers_of_their_rows(module: ModuleType, taken: int) -> None:
    columns = columns_of([None] * 5, values_of(5))
    rows = module.MessageRows(message_class(module), PLACE, 5, columns, None)
    messages = [rows.popleft() for _ in range(taken)]
    del rows

    for column in columns:
        column += b"."  # fails while the buffer is in use
    assert [message.value for message in messages] == values_of(taken)


def test_message_object_is_used_again_only_if_it_was_not_kept() -> None:
    rows = rows_of(_message, values_of(6))
    first = rows.popleft()
    address = id(first)
    assert first.value == b"value 0"
    del first

    assert [id(rows.popleft()) == address for _ in range(2)] == [False, True]


def test_rows_keep_reference_counts(module: ModuleType) -> None:
    cls, topic, partition = message_class(module), "".join(["or", "ders"]), int("123456789")
    columns, headers = columns_of([b"k"] * 4, values_of(4)), headers_of([[(b"h", b"v")]] * 4)
    decoders = (lambda data: [data]), (lambda data: [data])
    counted = [cls, topic, partition, *decoders, *columns, *headers]
    gc.collect()
    before = [sys.getrefcount(item) for item in counted]
    for number in range(50):
        rows = module.MessageRows(cls, (topic, partition), 4, columns, headers, decoders)
        kept = [tuple(message)[:number] for message in rows if message.offset >= number % 4]
        rows = module.MessageRows(cls, (topic, partition), 4, columns, headers, decoders)
        kept = [rows.popleft() for _ in range(number % 5)]
        del rows, kept
    gc.collect()

    assert [sys.getrefcount(item) for item in counted] == before


@pytest.mark.parametrize("cls", [tuple, list, object, MessageAndMetadata(*FIELDS)])
def test_rows_of_other_classes_are_rejected(module: ModuleType, cls: Any) -> None:
    with pytest.raises(TypeError, match="cls must be a subclass of MessageFields, got "):
        module.MessageRows(cls, PLACE, 1, columns_of([None], [b""]), None)


def test_rows_of_classes_with_other_fields_are_rejected(module: ModuleType) -> None:
    slots: list[dict[str, Any]] = [{}, {"__slots__": ("other",)}, {"__slots__": ("__weakref__",)}]
    for members in slots:
        cls = type("Message", (module.MessageFields,), members)
        with pytest.raises(TypeError, match=r"cls must have __slots__ = \(\), got <class '.*Message'>"):
            module.MessageRows(cls, PLACE, 1, columns_of([None], [b""]), None)


@pytest.mark.parametrize("rows", [-1, 3, (1 << 63) - 1])
def test_more_rows_than_columns_hold_are_rejected(module: ModuleType, rows: int) -> None:
    columns, headers = columns_of([None] * 2, [b""] * 2), headers_of([[]] * 2)
    for buffers in (None, headers):
        with pytest.raises(IndexError, match="the number of rows exceeds the column capacity"):
            module.MessageRows(message_class(module), PLACE, rows, columns, buffers)


@pytest.mark.parametrize("column", [3, 6])
@pytest.mark.parametrize("ends", [(0, 6), (-1, 2), (3, 2), (1 << 30, 1 << 30)])
def test_offsets_outside_of_data_are_rejected(module: ModuleType, column: int, ends: tuple[int, int]) -> None:
    columns = columns_of([b"12345"], [b"12345"])
    columns[column][:] = struct.pack("=2i", *ends)
    rows = module.MessageRows(message_class(module), PLACE, 1, columns, None)
    with pytest.raises(ValueError, match="column offsets are outside the data"):
        tuple(rows.popleft())


@pytest.mark.parametrize("ends", [(0, 2), (-1, 1), (1, 0)])
def test_header_lists_outside_of_header_columns_are_rejected(module: ModuleType, ends: tuple[int, int]) -> None:
    headers = headers_of([[(b"h", b"v")]])
    headers[0][:] = struct.pack("=2i", *ends)
    rows = module.MessageRows(message_class(module), PLACE, 1, columns_of([None], [None]), headers)
    with pytest.raises(ValueError, match="header list offsets are outside the header columns"):
        tuple(rows.popleft())


_EXIT = """
import sys

sys.path.insert(0, "tests")
from tests.unit.test_message_rows import MODULES, headers_of, columns_of, message_class

module = MODULES[sys.argv[1]]

class Holder:
    def release(self):
        pass

holder = Holder()
columns, headers = columns_of([None] * 3, [b"v"] * 3), headers_of([[]] * 3)
holder.rows = module.MessageRows(message_class(module), ("t", 0), 3, columns, headers)
holder.itself = holder.release
kept = holder.message = holder.rows.popleft()
holder.rows.popleft()
sys.holder = holder
"""


@pytest.mark.parametrize("name", MODULES)
def test_interpreter_exits_with_messages_in_use(name: str) -> None:
    command = [sys.executable, "-c", _EXIT, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_messages_outlive_their_module() -> None:
    path = Path(_message.__file__)
    spec = importlib.util.spec_from_file_location("zkconsumer._message", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    rows = rows_of(module, values_of(3), headers=[[]] * 3)
    first, reference = rows.popleft(), weakref.ref(module)
    del module, spec
    gc.collect()

    messages = [first, *rows]
    del rows
    gc.collect()
    assert [message.value for message in messages] == values_of(3)
    assert [message.headers for message in messages] == [()] * 3
    assert first == tuple(first)
    del messages, first
    gc.collect()
    assert reference() is None


def test_collector_can_run_while_headers_are_created(module: ModuleType) -> None:
    class Garbage:
        def __init__(self, act: Callable[[], object]) -> None:
            self.act, self.cycle = act, self

        def __del__(self) -> None:
            self.act()

    thresholds = gc.get_threshold()
    try:
        for number in range(60):
            holder = {"rows": rows_of(module, values_of(6), headers=[[(b"h", b"v")] * 20] * 6)}
            kept = [holder["rows"].popleft() for _ in range(3)]
            gc.collect()
            Garbage(holder.clear if number % 2 else kept.clear)
            gc.set_threshold(1 + number // 2)
            assert kept[2].headers == (("h", b"v"),) * 20 if kept else True
            rows = holder.get("rows")
            assert rows is None or [message.offset for message in rows] == [3, 4, 5]
            gc.set_threshold(*thresholds)
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("reads_all", [False, True])
def test_messages_found_by_the_collector_are_not_used_again(module: ModuleType, reads_all: bool) -> None:
    cls = message_class(module)

    class Value:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def __del__(self) -> None:
            for found in gc.get_objects():
                if type(found) is cls and reads_all:
                    with contextlib.suppress(MemoryError):
                        tuple(found)
                elif type(found) is cls:
                    _ = found.offset

    rows = module.MessageRows(cls, PLACE, 6, columns_of([b"k"] * 6, values_of(6)), None, (None, Value))
    taken = []
    for message in rows:
        taken.append((message.offset, message.value.data))
    del message
    assert taken == list(enumerate(values_of(6)))


def test_released_values_that_take_messages_do_not_end_the_rows(module: ModuleType) -> None:
    taken: list[int] = []

    class Value:
        def __del__(self) -> None:
            if len(rows) > 3:
                taken.append(rows.popleft().offset)

    rows = rows_of(module, values_of(40), decoders=(None, lambda _: Value()))
    while len(rows):
        message = rows.popleft()
        taken.append(message.offset)
        _ = message.value
    assert sorted(taken) == list(range(40))


def test_fields_of_subclasses_take_precedence(module: ModuleType) -> None:
    class Shouted(message_class(module)):  # type: ignore[misc]
        @property
        def value(self) -> Any:
            return self[4].upper()

    assert Shouted(*FIELDS).value == b"VALUE"


def test_one_thread_reads_while_another_takes(module: ModuleType) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        headers: list[Headers] = [[(b"h", b"v")] * 5] * 300
        for _ in range(5):
            rows = rows_of(module, values_of(300), headers=headers, decoders=(None, lambda data: [data]))
            messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
            found: list[Any] = []

            def read(messages: Any = messages, found: list[Any] = found) -> None:
                while (message := messages.get()) is not None:
                    found.append((message.offset, message.value[0], len(message.headers)))

            thread = threading.Thread(target=read)
            thread.start()
            for message in rows:
                messages.put(message)
            messages.put(None)
            del rows, message
            thread.join()
            assert found == [(row, b"value %d" % row, 5) for row in range(300)]
    finally:
        sys.setswitchinterval(interval)


def test_one_thread_takes_while_another_discards(module: ModuleType) -> None:
    for _ in range(20):
        rows = rows_of(module, values_of(500))
        discarded: list[None] = []

        def discard(rows: Any = rows, discarded: list[None] = discarded) -> None:
            while True:
                try:
                    discarded.append(rows.pop())
                except IndexError:
                    return

        thread = threading.Thread(target=discard)
        thread.start()
        taken = [message.offset for message in rows]
        thread.join()
        assert taken == list(range(len(taken)))
        assert len(taken) + len(discarded) == 500


def test_failed_allocation_loses_no_message() -> None:
    capi = pytest.importorskip("_testcapi")
    failures = 0
    for number in range(200):
        rows = rows_of(_message, values_of(4), headers=[[(b"h", b"%d" % row)] for row in range(4)])
        taken: list[Any] = [None] * 4
        numbers = list(range(4))
        with contextlib.suppress(MemoryError):
            capi.set_nomemory(number, number + 1)
            try:
                for row in numbers:
                    taken[row] = rows.popleft()
            finally:
                capi.remove_mem_hooks()
        failures += None in taken
        taken[4 - len(rows) :] = rows
        del rows
        assert [message[2:5] for message in taken] == [(row, None, b"value %d" % row) for row in range(4)]
        assert [message.headers for message in taken] == [(("h", b"%d" % row),) for row in range(4)]
    assert failures > 4


# ---- decoders -----------------------------------------------------------------------------------------


def decoded(module: ModuleType, key: bytes | None, value: bytes | None, *decoders: Any, keep: bool) -> Any:
    """Return a message that refers to its rows, or one that was kept."""
    rows = rows_of(module, [value] * 3, keys=[key] * 3, decoders=decoders)
    message = rows.popleft()
    if keep:
        list(rows)
        del rows
        return message, None
    return message, rows


@pytest.fixture(params=[False, True], ids=["in its block", "kept"])
def keep(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_decoder_applies_to_its_field(module: ModuleType, keep: bool) -> None:
    message, _rows = decoded(module, b"k", b"ff", string_decoder, lambda data: int(data, 16), keep=keep)

    assert (message.key, message.value, message.message) == ("k", 255, 255)
    assert tuple(message) == ("orders", 3, 0, "k", 255, 1000, -1, ())
    assert message == ("orders", 3, 0, "k", 255, 1000, -1, ())
    assert message._replace(value=1).value == 1


@pytest.mark.parametrize("name", ["key", "value"])
def test_field_without_decoder_stays_bytes(module: ModuleType, keep: bool, name: str) -> None:
    decoders = (string_decoder, None) if name == "key" else (None, string_decoder)
    message, _rows = decoded(module, b"key", b"value", *decoders, keep=keep)

    assert {"key": message.key, "value": message.value} == {"key": b"key", "value": b"value"} | {name: name}


def test_field_is_decoded_once_when_it_is_read(module: ModuleType, keep: bool) -> None:
    seen: list[bytes] = []

    def decode(data: bytes) -> list[bytes]:
        seen.append(data)
        return [data]

    message, _rows = decoded(module, None, b"value", None, decode, keep=keep)

    assert seen == []
    assert message.value is message.value
    assert message.message is message[4]
    assert seen == [b"value"]


def test_decoder_error_is_raised_on_each_access(module: ModuleType, keep: bool) -> None:
    message, _rows = decoded(module, b"key", b"\xff", string_decoder, string_decoder, keep=keep)

    assert (message.key, message.offset) == ("key", 0)
    reads: list[Callable[[Any], Any]] = [lambda m: m.value, lambda m: m[4], tuple, hash, lambda m: m == FIELDS]
    for read in reads:
        with pytest.raises(UnicodeDecodeError):
            read(message)
    assert "key='key', value=<UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff" in repr(message)


def test_decoder_is_not_called_for_null(module: ModuleType, keep: bool) -> None:
    message, _rows = decoded(module, None, None, len, len, keep=keep)

    assert (message.key, message.value) == (None, None)


def test_decoder_can_return_none(module: ModuleType, keep: bool) -> None:
    seen: list[bytes] = []
    message, _rows = decoded(module, None, b"v", None, seen.append, keep=keep)

    assert (message.value, message.value, seen) == (None, None, [b"v"])


def test_decoder_can_read_its_message(module: ModuleType, keep: bool) -> None:
    found: list[Any] = []
    calls: list[bytes] = []

    def decode(data: bytes) -> tuple[int, Any]:
        calls.append(data)
        return len(calls), found[0].value if len(calls) == 1 else None

    message, _rows = decoded(module, None, b"v", None, decode, keep=keep)
    found.append(message)

    first = message.value
    assert calls == [b"v", b"v"]
    assert first is message.value
    assert first == (2, None)


def test_decoder_can_take_the_next_messages(module: ModuleType) -> None:
    def decode(data: bytes) -> list[Any]:
        return [data, *(message.offset for message in rows)]

    rows = rows_of(module, values_of(6), decoders=(None, decode))
    rows.popleft()
    message = rows.popleft()

    assert message.value == [b"value 1", 2, 3, 4, 5]
    assert message.offset == 1


def test_released_values_can_take_the_next_messages(module: ModuleType) -> None:
    taken: list[int] = []

    class Value:
        def __del__(self) -> None:
            taken.extend(message.offset for message in rows)

    rows = rows_of(module, values_of(9), decoders=(None, lambda _: Value()))
    with contextlib.suppress(IndexError):  # a released value has taken all messages
        while True:
            message = rows.popleft()
            taken.append(message.offset)
            _ = message.value
    del message, _
    taken.extend(message.offset for message in rows)
    gc.collect()

    assert sorted(taken) == list(range(9))


def test_decoded_values_in_cycles_are_collected(module: ModuleType, keep: bool) -> None:
    class Value:
        message: Any

    message, _rows = decoded(module, None, b"v", None, lambda _: Value(), keep=keep)
    message.value.message = message
    reference = weakref.ref(message.value)
    del message, _rows
    gc.collect()

    assert reference() is None


# ---- iteration ----------------------------------------------------------------------------------------


def iterator_over(module: ModuleType, blocks: Iterable[Any]) -> Any:
    class Blocks(module.MessageIterator):  # type: ignore[misc, name-defined]
        following = iter(blocks)

        def _next_message(self) -> Any:
            self._rows = next(self.following)
            return next(self)

    return Blocks()


def test_iterator_asks_for_next_message_when_rows_are_used_up(module: ModuleType) -> None:
    blocks = [rows_of(module, values_of(count)) for count in (2, 0, 1)]
    iterator = iterator_over(module, blocks)

    assert iter(iterator) is iterator
    assert [message.offset for message in iterator] == [0, 1, 0]
    with pytest.raises(StopIteration):
        next(iterator)


def test_iterator_without_rows_asks_for_next_message(module: ModuleType) -> None:
    rows: Any = rows_of(module, values_of(2))
    iterator = iterator_over(module, [rows])
    before = iterator._rows
    assert (next(iterator).offset, before) == (0, None)
    assert iterator._rows is rows
    iterator._rows = None

    with pytest.raises(StopIteration):
        next(iterator)
    assert [message.offset for message in rows] == [1]


def test_errors_of_next_message_are_raised(module: ModuleType) -> None:
    class Failing(module.MessageIterator):  # type: ignore[misc, name-defined]
        def _next_message(self) -> Any:
            raise ValueError("failed")

    iterator = Failing()
    for _ in range(2):
        with pytest.raises(ValueError, match="failed"):
            next(iterator)


def test_compiled_iterator_accepts_only_rows() -> None:
    iterator = iterator_over(_message, [])
    for value in ([], 1, object()):
        with pytest.raises(TypeError, match="_rows must be MessageRows or None"):
            iterator._rows = value
    with pytest.raises(TypeError, match="_rows must be MessageRows or None"):
        del iterator._rows


def test_iterators_in_cycles_are_collected(module: ModuleType) -> None:
    iterator = iterator_over(module, [])
    iterator._rows = rows_of(module, values_of(2), decoders=(None, lambda _, iterator=iterator: iterator))
    iterator._rows.popleft()
    reference = weakref.ref(iterator)
    del iterator
    gc.collect()

    assert reference() is None
