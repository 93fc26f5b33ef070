"""Maps of objects by key and time, compiled and in Python."""

from __future__ import annotations

import gc
import random
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.topology.serdes import BYTES, JSON, LONG, STRING, Serde
from zkconsumer.topology.stores import _pages, pages, time_map
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.pages import MemoryPages
from zkconsumer.topology.stores.session_store import SessionStore
from zkconsumer.topology.stores.time_map import MAX_TIME, Windowed
from zkconsumer.topology.stores.window_store import TimestampedWindowStore

BOTH = pytest.mark.parametrize("module", [_pages, time_map], ids=["c", "python"])
#: Objects of each serde.
VALID: dict[Serde, list[Any]] = {
    BYTES: [b"", b"a", b"ab", b"ab" + bytes(8)],
    STRING: ["", "a", "\u00e4"],
    LONG: [0, 255, -1],
    JSON: ["a", 1.5, "ab"],
}
SERDES = [(BYTES, LONG), (STRING, STRING), (LONG, JSON), (JSON, BYTES)]


def create(module: Any, serdes: tuple[Serde, Serde], second_bytes: int = 8) -> tuple[Any, Any]:
    """Return a map of bytes, and the map of objects in it."""
    paged_map = _pages.PagedMap if module is _pages else pages.PagedMap
    entries = paged_map(MemoryPages(), "s")
    store = SessionStore[Any]("s", 1_000, serdes, False)
    return entries, module.TimeMap(entries, store._conversions(), store._deserialize_key, second_bytes)


def result_of(call: Callable[..., Any], *arguments: Any) -> str:
    """Return the result of a call, or its error."""
    try:
        return repr(call(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def random_key(rng: random.Random, serde: Serde) -> Any:
    if rng.random() < 0.5:
        return rng.choice(VALID[serde])
    return rng.choice(
        (b"", b"a", b"ab", b"ab" + bytes(8), b"a" * 60, "a", "\u00e4", 0, 255, -1, None, [1], b"ab" + b"\xff" * 20)
    )


def random_number(rng: random.Random) -> Any:
    if rng.random() < 0.5:
        return rng.randrange(3)
    return rng.choice((0, 0, 1, 2, 5, 255, 1 << 32, MAX_TIME, MAX_TIME + 1, -1, 1 << 70, True, 1.0, None))


def random_value(rng: random.Random, serde: Serde) -> Any:
    if rng.random() < 0.5:
        return rng.choice(VALID[serde])
    return rng.choice((None, 1, 1 << 62, "x", b"x", {"x": 1}, 1.5))


@pytest.mark.parametrize("serdes", SERDES)
@pytest.mark.parametrize("second_bytes", [4, 8])
def test_random_calls_have_equal_results(serdes: tuple[Serde, Serde], second_bytes: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    both = [create(module, serdes, second_bytes) for module in (_pages, time_map)]
    for _ in range(2_000):
        segment = rng.choice((1, 2, random_number(rng)))
        name, first, second = random_key(rng, serdes[0]), random_number(rng), random_number(rng)
        method, arguments = rng.choice(
            (
                ("put", (segment, name, first, second, random_value(rng, serdes[1]))),
                ("get", (segment, name, first, second)),
                ("encode_key", (segment, name, first, second)),
                ("find_sessions", (segment, name, first, random_number(rng), second, rng.random() < 0.5)),
            )
        )
        compiled, twin = (result_of(getattr(objects, method), *arguments) for _, objects in both)
        assert compiled == twin, (method, arguments)
    assert both[0][0].scan() == both[1][0].scan()
    assert len(both[0][0])


@BOTH
def test_sessions_are_those_of_the_key(module: Any) -> None:
    _, objects = create(module, (BYTES, LONG))
    expected = []
    for end in (10, 20, 30):
        for start in (end - 5, end):
            objects.put(1, b"a", end, start, start)
            expected.append((Windowed(b"a", start, end), start))
            for other in (b"", b"a\0", b"a" + bytes(8), b"a" + bytes(7) + b"\x14", b"b"):
                objects.put(1, other, end, start, -1)
            objects.put(2, b"a", end, start, -2)
    found = objects.find_sessions(1, b"a", 0, MAX_TIME, MAX_TIME, False)
    assert found == expected
    assert type(found[0][0]) is Windowed
    assert objects.find_sessions(1, b"a", 0, MAX_TIME, MAX_TIME, True) == expected[::-1]
    assert objects.find_sessions(1, b"a", 20, 29, 19, False) == [(Windowed(b"a", 15, 20), 15)]
    assert objects.find_sessions(1, b"a", 21, 20, 99, False) == []
    assert objects.find_sessions(1, b"a", 0, MAX_TIME, -(1 << 80), False) == []


@BOTH
def test_value_is_deleted_by_none(module: Any) -> None:
    entries, objects = create(module, (BYTES, LONG), 4)
    objects.put(7, b"k", 1, 2, 3)
    assert entries.scan() == [(bytes(7) + b"\x07k" + bytes(7) + b"\x01\0\0\0\x02", LONG.serialize("s", 3))]
    assert objects.get(7, b"k", 1, 2) == 3
    objects.put(7, b"k", 1, 2, None)
    assert entries.scan() == []
    assert objects.get(7, b"k", 1, 2) is None


@BOTH
def test_windows_with_timestamps(module: Any) -> None:
    store = TimestampedWindowStore("s", 1_000, 10, False, (BYTES, LONG), False)
    paged_map = _pages.PagedMap if module is _pages else pages.PagedMap
    objects = module.TimeMap(paged_map(None), store._conversions(), store._deserialize_key, 4)
    objects.put(0, b"k", 1, 0, ValueAndTimestamp(3, 9))
    assert objects.get(0, b"k", 1, 0) == ValueAndTimestamp(3, 9)
    objects.put(0, b"k", 1, 0, ValueAndTimestamp(None, 9))
    assert objects.get(0, b"k", 1, 0) is None


@BOTH
def test_invalid_arguments_are_rejected(module: Any) -> None:
    entries, objects = create(module, (BYTES, LONG))
    with pytest.raises(ValueError, match="second_bytes must be 4 or 8, got 3"):
        create(module, (BYTES, LONG), 3)
    _, windows = create(module, (BYTES, LONG), 4)
    with pytest.raises(TypeError, match=r"find_sessions\(\) requires second_bytes=8"):
        windows.find_sessions(1, b"k", 0, 1, 1, False)
    with pytest.raises(OverflowError, match="4294967296 does not fit in 4 bytes"):
        windows.put(1, b"k", 0, 1 << 32, 1)
    with pytest.raises(TypeError):
        objects.put(1, b"k", 0)
    entries.is_read_only = True
    with pytest.raises(StreamsError, match="global store 's' is read-only"):
        objects.put(1, b"k", 0, 1, 1)
    assert entries.scan() == []


def test_map_in_reference_cycle_is_released() -> None:
    entries = _pages.PagedMap(None)

    class Key:
        def __call__(self, data: bytes) -> bytes:
            return data

    deserialize_key = Key()
    store = SessionStore[Any]("s", 1_000, (BYTES, LONG), False)
    deserialize_key.map = _pages.TimeMap(entries, store._conversions(), deserialize_key, 8)  # type: ignore[attr-defined]
    released = weakref.ref(deserialize_key)
    del deserialize_key
    gc.collect()
    assert released() is None
