"""Maps of objects, compiled and in Python: conversions, and the errors of objects that have none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fuzz.twins.sides import join_modules
from fuzz.twins.values import Blob, Text

from zkconsumer.errors import StreamsError
from zkconsumer.topology.errors import WrongTypeError
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec, Serde
from zkconsumer.topology.stores import _pages, pages, serde_map, time_map
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.pages import MemoryPages
from zkconsumer.topology.stores.serde_map import Conversions

BOTH = pytest.mark.parametrize("classes", [_pages, join_modules(pages, serde_map, time_map)], ids=["c", "python"])


def objects_of(classes: Any, serdes: tuple[Serde, Serde], is_timestamped: bool = False) -> tuple[Any, Any]:
    """Return a map of bytes, and the map of objects in it."""
    kind: Any = TimestampedKeyValueStore if is_timestamped else KeyValueStore
    entries = classes.PagedMap(MemoryPages(), "s")
    return entries, classes.SerdeMap(entries, kind("s", serdes, False)._conversions())


EXACT = [
    (BYTES, [b"", b"x", bytes(1_000)]),
    (STRING, ["", "text", "\u00e4\u20ac\U0001f600\0"]),
    (INTEGER, [0, -1, (1 << 31) - 1, -(1 << 31)]),
    (LONG, [0, -1, (1 << 63) - 1, -(1 << 63)]),
    (DOUBLE, [0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324]),
    (JSON, [{"b": [1, None]}, "x", 1.5]),
]


@BOTH
@pytest.mark.parametrize("is_timestamped", [False, True])
@pytest.mark.parametrize(("serde", "objects"), EXACT)
def test_objects_are_returned_as_they_were_put(
    serde: Serde, objects: list[Any], is_timestamped: bool, classes: Any
) -> None:
    entries, stored = objects_of(classes, (serde, serde), is_timestamped)
    for value in objects:
        expected = ValueAndTimestamp(value, -5) if is_timestamped else value
        stored.put(value, expected)
        assert repr(stored.get(value)) == repr(expected)
        assert type(stored.get(value)) is type(expected)
        if is_timestamped and value == value and not isinstance(value, list | dict):  # each NaN has a hash of its own
            assert hash(stored.get(value)) == hash(expected)
        data = entries.get(serde.serialize("s", value))
        assert data[8 if is_timestamped else 0 :] == serde.serialize("s", value)
        assert repr(stored.delete(value)) == repr(expected)
        assert stored.get(value) is None
        assert stored.delete(value) is None


@BOTH
def test_instances_of_subclasses_are_converted_by_the_serde(classes: Any) -> None:
    entries, stored = objects_of(classes, (STRING, INTEGER))
    stored.put(Text("x"), True)
    assert stored.get("x") == 1
    entries, stored = objects_of(classes, (BYTES, DOUBLE))
    stored.put(b"x", 3)
    assert stored.get(b"x") == 3.0
    with pytest.raises(WrongTypeError, match="store 's': the key serializer must return bytes, got Blob"):
        stored.put(Blob(b"x"), 3.0)
    assert entries.scan() == [(b"x", DOUBLE.serialize("s", 3.0))]


@BOTH
@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (
            BYTES,
            "x",
            r"'x' \(str\) cannot be serialized: must be bytes, got str; use types that the store's serdes accept$",
        ),
        (STRING, b"x", r"b'x' \(bytes\) cannot be serialized: must be str, got bytes"),
        (STRING, "\ud800", "cannot be serialized: 'utf-8' codec can't encode"),
        (
            INTEGER,
            1 << 31,
            r"store 's': (key|value) 2147483648 \(int\) cannot be serialized: "
            "must be between -2147483648 and 2147483647, got 2147483648",
        ),
        (INTEGER, 1.0, "must be int, got float"),
        (
            LONG,
            1 << 63,
            r"store 's': (key|value) 9223372036854775808 \(int\) cannot be serialized: "
            "must be between -9223372036854775808 and 9223372036854775807, got 9223372036854775808",
        ),
        (LONG, -(1 << 80), "must be between -9223372036854775808 and 9223372036854775807, got -12089258196146291747"),
        (DOUBLE, "x", "cannot be serialized: must be float, got str"),
        (DOUBLE, [], "cannot be serialized: must be float, got list"),
        (JSON, object, "cannot be serialized: Object of type type is not JSON serializable"),
    ],
)
def test_object_that_does_not_fit_its_serde_is_rejected(serde: Serde, value: Any, message: str, classes: Any) -> None:
    entries, stored = objects_of(classes, (BYTES, serde))
    with pytest.raises(WrongTypeError, match=message):
        stored.put(b"k", value)
    _, keys = objects_of(classes, (serde, BYTES))
    for call in (keys.get, keys.delete, lambda name: keys.put(name, b"v")):
        with pytest.raises(WrongTypeError, match=message):
            call(value)
    _, stamped = objects_of(classes, (BYTES, serde), is_timestamped=True)
    with pytest.raises(WrongTypeError, match=message):
        stamped.put(b"k", ValueAndTimestamp(value, 1))
    assert entries.scan() == []


@BOTH
def test_key_none_is_rejected(classes: Any) -> None:
    for serde in (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON):
        _, stored = objects_of(classes, (serde, BYTES))
        for method, arguments in (("get", (None,)), ("delete", (None,)), ("put", (None, b"v"))):
            with pytest.raises(ValueError, match="store 's': the key must not be None"):
                getattr(stored, method)(*arguments)


@BOTH
@pytest.mark.parametrize("is_timestamped", [False, True])
@pytest.mark.parametrize(
    ("serde", "data", "reason"),
    [
        (STRING, b"\xff", "'utf-8' codec can't decode"),
        (INTEGER, b"123", "unpack requires a buffer of 4 bytes"),
        (INTEGER, b"12345", "unpack requires a buffer of 4 bytes"),
        (LONG, b"", "unpack requires a buffer of 8 bytes"),
        (DOUBLE, b"123456789", "unpack requires a buffer of 8 bytes"),
        (JSON, b"{", "Expecting property name"),
    ],
)
def test_bytes_that_do_not_fit_the_serde_are_reported(
    serde: Serde, data: bytes, reason: str, is_timestamped: bool, classes: Any
) -> None:
    entries, stored = objects_of(classes, (BYTES, serde), is_timestamped)
    for call in (stored.get, stored.delete):
        entries.put(b"k", bytes(8) + data if is_timestamped else data)
        with pytest.raises(ValueError, match=f"store 's': value .* cannot be deserialized: {reason}"):
            call(b"k")


@BOTH
def test_timestamps_are_checked(classes: Any) -> None:
    entries, stored = objects_of(classes, (BYTES, LONG), is_timestamped=True)
    wrong: list[Any] = [5, (5, 1), ValueAndTimestamp(5, "x")]  # type: ignore[arg-type]
    for value in wrong:
        with pytest.raises(
            TypeError, match=r"store 's': the value must be ValueAndTimestamp\(value, milliseconds\), got"
        ):
            stored.put(b"k", value)
    with pytest.raises(TypeError, match=f"store 's': the timestamp must be a 64-bit integer, got {1 << 63}"):
        stored.put(b"k", ValueAndTimestamp(5, 1 << 63))
    stored.put(b"k", ValueAndTimestamp(5, True))
    assert stored.get(b"k") == (5, 1)
    entries.put(b"k", bytes(3))
    with pytest.raises(ValueError, match="cannot be deserialized: unpack requires a buffer of 8 bytes"):
        stored.get(b"k")


@BOTH
def test_none_deletes_a_key(classes: Any) -> None:
    _, stored = objects_of(classes, (BYTES, LONG))
    stored.put(b"k", 1)
    stored.put(b"k", None)
    assert stored.get(b"k") is None
    _, stored = objects_of(classes, (BYTES, LONG), is_timestamped=True)
    for nothing in (None, ValueAndTimestamp(None, 1), ValueAndTimestamp(None, 1 << 80)):
        stored.put(b"k", ValueAndTimestamp(1, 1))
        stored.put(b"k", nothing)
        assert stored.get(b"k") is None


@BOTH
def test_read_only_map_rejects_objects(classes: Any) -> None:
    entries, stored = objects_of(classes, (BYTES, LONG))
    stored.put(b"k", 1)
    entries.is_read_only = True
    for method, arguments in (("put", (b"k", 2)), ("put", (b"k", None)), ("delete", (b"k",))):
        with pytest.raises(StreamsError, match="global store 's' is read-only: only its own processor can update it"):
            getattr(stored, method)(*arguments)
    assert entries.is_read_only is True
    assert stored.get(b"k") == 1


@BOTH
@pytest.mark.parametrize("codec", [Codec.OTHER, Codec.BYTES, Codec.LONG])
def test_conversions_are_called_for_other_types(codec: Codec, classes: Any) -> None:
    entries = classes.PagedMap(None)
    conversions = Conversions(
        lambda name: repr(name).encode(),
        lambda value: None if value == "none" else b"value " + value.encode(),
        lambda data: data.decode(),
        (codec, codec, Codec.OTHER),
    )
    stored = classes.SerdeMap(entries, conversions)
    stored.put((1, 2), "x")
    assert entries.scan() == [(b"(1, 2)", b"value x")]
    assert stored.get((1, 2)) == "value x"
    stored.put((1, 2), "none")
    assert entries.scan() == []


@BOTH
def test_conversions_can_return_instances_of_subclasses(classes: Any) -> None:
    entries = classes.PagedMap(None)
    stored = classes.SerdeMap(entries, Conversions(Blob, Blob, bytes, (Codec.OTHER,) * 3))
    stored.put(b"key", b"value")
    assert stored.get(b"key") == b"value"
    assert stored.delete(b"key") == b"value"
    assert entries.scan() == []


@pytest.mark.parametrize("wrong", [None, "text", bytearray(b"x")])
def test_keys_and_values_must_be_serialized_to_bytes(wrong: Any) -> None:
    entries = _pages.PagedMap(None)
    keys = _pages.SerdeMap(entries, Conversions(lambda _: wrong, Blob, bytes, (Codec.OTHER,) * 3))
    with pytest.raises(TypeError, match="must"):
        keys.put(b"k", b"v")
    if wrong is not None:
        values = _pages.SerdeMap(entries, Conversions(Blob, lambda _: wrong, bytes, (Codec.OTHER,) * 3))
        with pytest.raises(TypeError, match="serialized data must be bytes, got"):
            values.put(b"k", b"v")
    assert entries.scan() == []


def test_compiled_serde_map_requires_compiled_map() -> None:
    conversions = KeyValueStore[Any]("s", (BYTES, BYTES), False)._conversions()
    with pytest.raises(TypeError, match="must be zkconsumer.topology.stores._pages.PagedMap, not PagedMap"):
        _pages.SerdeMap(pages.PagedMap(None), conversions)
    with pytest.raises(TypeError):
        _pages.SerdeMap(_pages.PagedMap(None), conversions[:3])  # type: ignore[arg-type]
