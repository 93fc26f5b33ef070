"""The compiled maps: equal to those in Python, and safe if page stores, serializers or memory fail."""

from __future__ import annotations

import gc
import random
import secrets
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fuzz.twins.page_calls import PageCalls
from fuzz.twins.sides import join_modules

from zkconsumer.errors import StreamsError
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, LONG, STRING, Codec, Serde
from zkconsumer.topology.stores import _pages, pages, serde_map, time_map
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.pages import MemoryPages, PageLimits
from zkconsumer.topology.stores.serde_map import Conversions

TWIN = join_modules(pages, serde_map, time_map)
LIMITS = PageLimits(300, 2_000)
NAMES = [random.Random(number).randbytes(8) for number in range(60)]


def commit(entries: Any) -> None:
    """Commit the changes of a map."""
    changes = entries.collect_changes()
    entries.write(changes)
    entries.finish_commit(changes)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


# ---- equal to the maps in Python ---------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(10))
def test_random_calls_have_equal_results_and_pages(run: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(10):
        PageCalls(_pages, TWIN, rng).run(200)


@pytest.mark.parametrize("limits", [PageLimits(300), PageLimits(memory_bytes=20_000), PageLimits()])
def test_many_entries_have_equal_pages(limits: PageLimits) -> None:
    rng = random.Random(1)
    stored = MemoryPages(), MemoryPages()
    maps = [cls(side, limits=limits) for cls, side in zip((_pages.PagedMap, pages.PagedMap), stored, strict=True)]
    for _ in range(5):
        for _ in range(3_000):
            name, value = rng.randbytes(rng.choice((2, 8))), rng.randbytes(rng.choice((0, 8, 8, 30)))
            for entries in maps:
                entries.put(name, value)
        start, stop = sorted(rng.randbytes(1) for _ in range(2))
        for entries in maps:
            entries.discard(start, stop)
            commit(entries)
        assert stored[0] == stored[1]
        assert maps[0].scan() == maps[1].scan()


# ---- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda entries: entries.get("x"), "key must be bytes, got str"),
        (lambda entries: entries.put(1, b""), "key must be bytes, got int"),
        (lambda entries: entries.put(b"", None), "value must be bytes, got NoneType"),
        (lambda entries: entries.delete(None), "key must be bytes, got NoneType"),
        (lambda entries: entries.scan("x"), "start must be bytes, got str"),
        (lambda entries: entries.scan(b"", 1), "stop must be bytes, got int"),
        (lambda entries: entries.discard(b"", None), "stop must be bytes, got NoneType"),
        (lambda entries: entries.put(b""), r"put\(\) takes 2 arguments, got 1"),
        (lambda entries: _pages.PagedMap(None, b"s"), "must be str, not bytes"),  # type: ignore[arg-type]
        (lambda entries: type("Sub", (_pages.PagedMap,), {}), "is not an acceptable base type"),
        (lambda entries: type("Sub", (_pages.SerdeMap,), {}), "is not an acceptable base type"),
    ],
)
def test_arguments_of_wrong_type_are_rejected(call: Callable[[Any], object], message: str) -> None:
    entries = _pages.PagedMap(MemoryPages())
    with pytest.raises(TypeError, match=message):
        call(entries)
    assert entries.scan() == []


class CallingPages(MemoryPages):
    """Pages that call a function before each read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] = lambda: None

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        self.before()
        return super().read(page_ids)

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        self.before()

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        self.before()
        super().finish_commit(changes)


def test_map_cannot_be_used_by_its_page_store() -> None:
    stored = CallingPages()
    entries = _pages.PagedMap(stored, "s", limits=PageLimits(200, 1_000))
    calls: list[Callable[[], object]] = [
        lambda: entries.get(key(1)),
        lambda: entries.put(key(1), b""),
        lambda: entries.delete(key(1)),
        lambda: entries.scan(),
        lambda: entries.discard(b"", b"x"),
        lambda: entries.collect_changes(),
        lambda: entries.write({}),
        lambda: entries.finish_commit({}),
        lambda: entries.rollback(),
        lambda: entries.close(),
        lambda: entries.require_writable(),
    ]
    errors = 0

    def use_map() -> None:
        nonlocal errors
        for call in calls:
            with pytest.raises(StreamsError, match="store 's' was used by its page store, or by another thread"):
                call()
            errors += 1

    stored.before = use_map
    expected = {key(number): bytes(8) for number in range(500)}
    for name, value in expected.items():
        entries.put(name, value)
    commit(entries)
    assert entries.scan() == sorted(expected.items())
    entries.rollback()
    assert entries.scan() == sorted(expected.items())
    assert errors > 100


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
def test_map_equals_twin_after_failed_reads_and_writes(error: type[BaseException]) -> None:
    stores = CallingPages(), CallingPages()
    classes: tuple[Any, ...] = _pages.PagedMap, pages.PagedMap
    sides = [(cls(stored, "s", limits=LIMITS), stored) for cls, stored in zip(classes, stores, strict=True)]
    rng = random.Random(5)
    for _ in range(300):
        names = [key(rng.randrange(2_000)) for _ in range(20)]
        countdown_start, method = (
            rng.randrange(6),
            rng.choice(("put", "delete", "scan", "discard", "rollback", "commit")),
        )
        arguments = {"put": (bytes(20),), "scan": (max(names),), "discard": (max(names),)}.get(method, ())
        outcomes = []
        for entries, stored in sides:
            countdown = [countdown_start]

            def fail(countdown: list[int] = countdown) -> None:
                countdown[0] -= 1
                if countdown[0] < 0:
                    raise error("failed")

            stored.before = fail
            found: list[object] = []
            for name in names if method in ("put", "delete") else names[:1]:
                try:
                    if method == "commit":
                        commit(entries)
                    elif method == "rollback":
                        entries.rollback()
                    else:
                        found.append(getattr(entries, method)(name, *arguments))
                except error as raised:
                    found.append(str(raised))
            stored.before = lambda: None
            outcomes.append((found, entries.memory_bytes, len(entries), dict(stored)))
        assert outcomes[0] == outcomes[1]
        if method == "rollback":  # it closes the map if it fails
            sides = [(type(entries)(stored, "s", limits=LIMITS), stored) for entries, stored in sides]
    assert sides[0][0].scan() == sides[1][0].scan()


def test_finalizer_cannot_change_map_during_scan() -> None:
    entries = _pages.PagedMap(None)
    for number in range(20_000):
        entries.put(key(number), b"")
    errors: list[BaseException] = []

    class Cycle:
        def __init__(self) -> None:
            self.self = self

        def __del__(self) -> None:
            try:
                entries.discard(b"", b"\xff")
            except StreamsError as error:
                errors.append(error)

    thresholds = gc.get_threshold()
    gc.collect()
    Cycle()
    gc.set_threshold(10)
    try:
        found = entries.scan()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()

    assert len(found) in (0, 20_000)  # the finalizer runs during the scan, or before or after it
    assert errors or not entries.scan()


def test_serializer_that_changes_the_map_has_equal_effect() -> None:
    results = []
    for classes in (_pages, TWIN):
        entries = classes.PagedMap(None, limits=PageLimits(200))

        def serialize(value: Any, entries: Any = entries) -> bytes:
            for number in range(value):
                entries.put(key(number), bytes(8))
            entries.delete(key(value))
            return key(value)

        stored = classes.SerdeMap(entries, Conversions(serialize, serialize, lambda data: data, (Codec.OTHER,) * 3))
        for value in (3, 50, 20, 7):
            stored.put(value, value)
            stored.get(value)
            stored.delete(value - 1)
        results.append((entries.scan(), entries.memory_bytes, len(entries)))
    assert results[0] == results[1]


# ---- memory ------------------------------------------------------------------------------------------------


def grown_map(order: str) -> Any:
    """Return a map of 100,000 entries of 8 + 8 bytes."""
    entries = _pages.PagedMap(MemoryPages(), limits=PageLimits(memory_bytes=1 << 30))
    rng = random.Random(2)
    names = [rng.randbytes(8) for _ in range(100_000)]
    if order == "ascending":
        names.sort()
    for name in names:
        entries.put(name, bytes(8))
    if order == "replaced":
        for size in (20, 3, 8):
            for name in names:
                entries.put(name, bytes(size))
    if order == "deleted":
        for name in names[::2]:
            entries.delete(name)
    return entries


@pytest.mark.parametrize("order", ["random", "ascending", "replaced", "deleted"])
def test_memory_is_at_most_twice_that_of_encoded_pages(order: str) -> None:
    tracemalloc.start()
    try:
        entries = grown_map(order)
        traced = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert sys.getsizeof(entries) <= 2 * entries.memory_bytes
    assert abs(traced - sys.getsizeof(entries)) < 50_000
    commit(entries)
    entries.rollback()
    assert len(entries.scan()) == len(entries)
    assert sys.getsizeof(entries) <= 2 * entries.memory_bytes


def measure_growth(use: Callable[[], None]) -> int:
    """Return how much more memory is allocated after 20 calls than before."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        use()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_rounds_of_use_leak_no_memory() -> None:
    name, value, stamped = b"a key", b"a value", ValueAndTimestamp(5, 1)

    def round_of_use() -> None:
        entries = _pages.PagedMap(MemoryPages(), "s")
        stored = _pages.SerdeMap(entries, TimestampedKeyValueStore("s", (BYTES, LONG), False)._conversions())
        for number in range(2_000):
            entries.put(key(number), value)
        entries.put(name, value)
        stored.put(name, stamped)
        stored.get(name)
        wrong: Any = 5
        with pytest.raises(TypeError):
            stored.get(wrong)
        with pytest.raises(TypeError):
            stored.put(name, wrong)
        with pytest.raises(TypeError):
            entries.get(wrong)
        entries.scan()
        commit(entries)
        entries.discard(key(100), key(1_900))
        entries.delete(name)
        entries.rollback()
        memory = _pages.PagedMap(None)
        memory.put(name, value)
        memory.finish_commit({})
        memory.delete(name)
        memory.rollback()
        entries.close()

    for _ in range(3):
        round_of_use()
    gc.collect()
    references = [sys.getrefcount(item) for item in (name, value, stamped, None)]
    tracemalloc.start()
    try:
        round_of_use()
        # Another thread of the process can allocate memory in one of the rounds.
        growth = min(measure_growth(round_of_use) for _ in range(3))
    finally:
        tracemalloc.stop()
    assert growth < 5_000
    found = [sys.getrefcount(item) for item in (name, value, stamped, None)]
    assert found[:3] == references[:3]
    assert abs(found[3] - references[3]) < 100


def test_maps_in_reference_cycles_are_collected() -> None:
    class Stored(MemoryPages):
        pass

    stored = Stored()
    entries = _pages.PagedMap(stored)
    objects = _pages.SerdeMap(entries, KeyValueStore[Any]("s", (BYTES, BYTES), False)._conversions())
    stored.entries = entries  # type: ignore[attr-defined]
    stored.objects = objects  # type: ignore[attr-defined]
    found = weakref.ref(stored)
    del stored, entries, objects
    gc.collect()

    assert found() is None


def put_some(entries: Any) -> None:
    """Insert and replace entries."""
    for name in NAMES[20:]:
        entries.put(name, bytes(30))


def delete_some(entries: Any) -> None:
    """Delete entries, so that pages become small."""
    for name in NAMES[:30]:
        entries.delete(name)


def commit_deleted(entries: Any) -> None:
    """Commit small pages."""
    delete_some(entries)
    commit(entries)


def roll_back(entries: Any) -> None:
    """Change the map, and discard the changes."""
    put_some(entries)
    entries.rollback()


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="CPython 3.12 and 3.13 crash when an allocation fails, without C modules, too"
)
@pytest.mark.parametrize(
    "change",
    [
        put_some,
        delete_some,
        commit_deleted,
        roll_back,
        lambda entries: entries.scan(),
        lambda entries: entries.discard(b"\x20", b"\xe0"),
    ],
    ids=["put", "delete", "commit", "rollback", "scan", "discard"],
)
def test_map_is_consistent_after_each_failed_allocation(change: Callable[[Any], object], is_stored: bool) -> None:
    capi = pytest.importorskip("_testcapi")
    for number in range(10_000):
        entries = _pages.PagedMap(MemoryPages() if is_stored else None, limits=PageLimits(200, 2_000))
        for name in NAMES[:40]:
            entries.put(name, bytes(8))
        commit(entries)
        error: Exception | None = None
        capi.set_nomemory(number, number + 1)
        try:
            change(entries)
        except (MemoryError, StreamsError) as raised:
            error = raised
        finally:
            capi.remove_mem_hooks()
        if change is roll_back and error is not None and is_stored:
            entries = _pages.PagedMap(MemoryPages())  # a failed rollback closes the map
        check_consistency(entries)
        if error is None and number > 50:
            break
    assert 50 < number < 9_999


@pytest.mark.parametrize(
    "serde", [BYTES, STRING, INTEGER, LONG, DOUBLE], ids=["bytes", "text", "int", "long", "double"]
)
def test_failed_allocation_of_object_is_reported(serde: Serde) -> None:
    capi = pytest.importorskip("_testcapi")
    store = TimestampedKeyValueStore("s", (serde, serde), False)
    item: Any = {BYTES: b"abc" * 200, STRING: "\u20ac" * 200, DOUBLE: 1.5}.get(serde, 1 << 30)
    other: Any = {BYTES: b"d", STRING: "d", DOUBLE: 2.5}.get(serde, 5)
    for number in range(10_000):
        entries = _pages.PagedMap(MemoryPages(), "s")
        objects = _pages.SerdeMap(entries, store._conversions())
        objects.put(item, ValueAndTimestamp(item, 1 << 40))
        results = [None, None]
        error = None
        capi.set_nomemory(number, number + 1)
        try:
            results = [objects.get(item), objects.delete(item)]
            objects.put(other, ValueAndTimestamp(other, 1 << 40))
        except MemoryError as raised:
            error = raised
        finally:
            capi.remove_mem_hooks()
        if error is None:
            assert results == [(item, 1 << 40)] * 2
            assert objects.get(other) == (other, 1 << 40)
            break
        assert objects.get(item) in (None, (item, 1 << 40))
        check_consistency(entries)
    assert 3 < number < 9_999


def check_consistency(entries: Any) -> None:
    """Check that the entries of a map are in order, and can be changed and committed."""
    found = entries.scan()
    names = [name for name, _ in found]
    assert names == sorted(set(names))
    for name, value in found:
        assert entries.get(name) == value
        entries.put(name, value + b"x")
    commit(entries)
    assert entries.scan() == [(name, value + b"x") for name, value in found]
