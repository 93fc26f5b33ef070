"""State stores: boundaries, order, expiry, restarts. The oracle compares them with RocksDB stores of Kafka Streams."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.topology import Processor, ProcessorContext, Record, Topology, TopologyTestDriver, serdes, stores
from zkconsumer.topology.loop.native import RunState
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    KeyValueStore,
    MemoryPages,
    PagedMap,
    RecordCache,
    StateStore,
    StoreBuilder,
    StoreContext,
    ValueAndTimestamp,
    VersionedRecord,
    Windowed,
    key_value,
    session,
    timestamped_key_value,
    timestamped_window,
    versioned_key_value,
    window,
)
from zkconsumer.topology.stores.cache import Backing, StoreCache

TEXT, NUMBER = serdes.STRING, serdes.LONG
MINUTE, HOUR = 60_000, 3_600_000


class CountingPages(MemoryPages):
    """Counts the pages that are read."""

    reads = 0

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        self.reads += sum(page_id > 0 for page_id in page_ids)
        return super().read(page_ids)


class Opened:
    """A store with its pages, which can be closed and opened again."""

    def __init__(self, builder: StoreBuilder) -> None:
        self._builder = builder
        self.pages = CountingPages()
        self.expired = 0
        self.reopen()

    def byte_map(self, _store: str) -> PagedMap:
        return self._map

    def create_cache(self, store: str, backing: Backing) -> StoreCache:
        return StoreCache(store, RecordCache(1 << 20), RunState(), backing)

    def count_expired(self, _store: str) -> None:
        self.expired += 1

    def commit(self) -> None:
        self.store.flush()
        changes = self._map.collect_changes()
        self._map.write(changes)
        self._map.finish_commit(changes)

    def reopen(self) -> None:
        self._map = PagedMap(self.pages)
        self.store: Any = self._builder.create()
        self.store.init(self)

    @property
    def size(self) -> int:
        return sum(map(len, self.pages.values()))


# ---- key-value -------------------------------------------------------------------------------------------------------


@pytest.fixture
def counts() -> Any:
    store = Opened(key_value("counts", TEXT, NUMBER)).store
    store.put_all([("b", 2), ("a", 1), ("ab", 3), ("c", 4)])
    return store


def test_ranges_include_both_ends_and_are_ordered_by_bytes(counts: Any) -> None:
    assert list(counts.all()) == [("a", 1), ("ab", 3), ("b", 2), ("c", 4)]
    assert next(counts.all(reverse=True)) == ("c", 4)
    assert list(counts.range("a", "b")) == [("a", 1), ("ab", 3), ("b", 2)]
    assert list(counts.range("ab", None)) == [("ab", 3), ("b", 2), ("c", 4)]
    assert list(counts.range(None, "a", reverse=True)) == [("a", 1)]
    assert list(counts.range("c", "a")) == []
    assert list(counts.prefix_scan(b"a")) == [("a", 1), ("ab", 3)]
    assert counts.approximate_num_entries() == 4


def test_prefix_of_last_bytes_has_no_upper_limit() -> None:
    store = Opened(key_value("s")).store
    store.put_all([(b"\xff\xff", b"1"), (b"\xff\xff\x00", b"2"), (b"\xfe", b"3")])

    assert [key for key, _ in store.prefix_scan(b"\xff\xff")] == [b"\xff\xff", b"\xff\xff\x00"]


def test_changes_during_iteration_have_no_effect_on_it(counts: Any) -> None:
    seen = []
    for key, _ in counts.all():
        seen.append(key)
        counts.delete(key)
        counts.put(f"new-{key}", 1)

    assert seen == ["a", "ab", "b", "c"]
    assert [key for key, _ in counts.all()] == ["new-a", "new-ab", "new-b", "new-c"]


def test_put_if_absent_and_delete_return_previous_value(counts: Any) -> None:
    assert counts.put_if_absent("a", 9) == 1
    assert counts.put_if_absent("d", 9) is None
    assert counts.delete("d") == 9
    assert counts.delete("d") is None
    counts.put("a", None)
    assert counts.get("a") is None


def test_timestamped_values_keep_their_timestamp() -> None:
    opened = Opened(timestamped_key_value("s", TEXT, TEXT))
    opened.store.put("k", ValueAndTimestamp("v", 5))
    opened.commit()
    opened.reopen()

    assert opened.store.get("k") == ("v", 5)


def test_serializer_that_returns_no_bytes_is_named() -> None:
    store = Opened(key_value("s", Serde(lambda _store, _key: "text", TEXT.deserialize), TEXT)).store  # type: ignore[arg-type,return-value]

    with pytest.raises(TypeError, match="store 's': the key serializer must return bytes, got str"):
        store.get("k")


# ---- windows ---------------------------------------------------------------------------------------------------------


def windows(retain_duplicates: bool = False, retention_ms: int = 3 * MINUTE) -> Opened:
    return Opened(
        window("w", TEXT, TEXT, retention_ms=retention_ms, window_size_ms=10, retain_duplicates=retain_duplicates)
    )


def test_window_fetch_includes_both_ends() -> None:
    # Source: Kafka 3.9 AbstractWindowBytesStoreTest.testRangeAndSinglePointFetch, testPutAndFetchBefore,
    # testPutAndFetchAfter
    store = windows().store
    for time, value in [(0, "zero"), (1, "one"), (2, "two"), (4, "four"), (5, "five")]:
        store.put("k", value, time)

    assert store.fetch("k", 2) == "two"
    assert store.fetch("k", 3) is None
    assert list(store.fetch_times("k", 1, 4)) == [(1, "one"), (2, "two"), (4, "four")]
    assert list(store.fetch_times("k", 1, 4, reverse=True)) == [(4, "four"), (2, "two"), (1, "one")]
    assert list(store.fetch_times("k", -5, 0)) == [(0, "zero")]
    assert list(store.fetch_times("k", 5, 9)) == [(5, "five")]
    assert list(store.fetch_times("k", 4, 1)) == []


def test_window_fetch_excludes_keys_sharing_prefix() -> None:
    # Source: Kafka 3.9 AbstractWindowBytesStoreTest.shouldFetchAndIterateOverExactKeys
    store = windows().store
    for key in ("a", "aa", "a\0", "b"):
        store.put(key, key, 5)

    assert list(store.fetch_times("a", 0, 10)) == [(5, "a")]
    # As in RocksDB, the order is that of the bytes of key and start.
    assert [w for w, _ in store.fetch_keys("a", "aa", 0, 10)] == [("a\0", 5, 15), ("a", 5, 15), ("aa", 5, 15)]
    assert [w.key for w, _ in store.fetch_keys(None, "aa", 0, 10, reverse=True)] == ["aa", "a", "a\0"]
    assert [w.key for w, _ in store.fetch_keys("aa", None, 0, 10)] == ["aa", "b"]


def test_window_expires_after_retention_and_segment() -> None:
    # Source: Kafka 3.9 AbstractRocksDBSegmentedBytesStore.get,
    # put; AbstractWindowBytesStoreTest.shouldMeasureExpiredRecords
    opened = windows(retention_ms=2 * MINUTE)
    store = opened.store
    store.put("old", "v", 0)
    store.put("k", "v", 2 * MINUTE - 1)
    assert store.fetch("old", 0) == "v"

    store.put("k", "v", 2 * MINUTE)
    assert store.fetch("old", 0) is None
    store.put("late", "v", 0)  # its segment, of a minute, still exists
    assert opened.expired == 0

    store.put("k", "v", 3 * MINUTE)
    store.put("late", "v", MINUTE - 1)
    assert opened.expired == 1


def test_retained_duplicates_are_all_returned_and_survive_restart() -> None:
    # Source: Kafka 3.9 AbstractWindowBytesStoreTest.testFetchDuplicates
    opened = windows(retain_duplicates=True)
    opened.store.put("k", "first", 5)
    opened.store.put("k", "second", 5)
    opened.store.put("k", None, 5)
    assert opened.store.fetch("k", 5) == "second"
    opened.commit()
    opened.reopen()

    opened.store.put("k", "third", 5)

    assert [value for _, value in opened.store.fetch_times("k", 5, 5)] == ["first", "second", "third"]


def test_expiry_continues_after_restart() -> None:
    opened = windows(retention_ms=2 * MINUTE)
    opened.store.put("k", "v", 10 * MINUTE)
    opened.commit()
    opened.reopen()

    opened.store.put("k", "late", 0)

    assert opened.expired == 1
    assert list(opened.store.all()) == [(Windowed("k", 10 * MINUTE, 10 * MINUTE + 10), "v")]


@pytest.mark.parametrize("kind", ["window", "session"])
def test_expiry_bounds_size_with_rotating_keys(kind: str) -> None:
    builder = (
        timestamped_window("s", TEXT, TEXT, retention_ms=HOUR, window_size_ms=MINUTE)
        if kind == "window"
        else session("s", TEXT, TEXT, retention_ms=HOUR)
    )
    opened = Opened(builder)
    sizes = []
    for minute in range(24 * 60):
        for number in range(20):
            key, time = f"user-{minute}-{number}", minute * MINUTE
            if kind == "window":
                opened.store.put(key, ValueAndTimestamp("v", time), time)
            else:
                opened.store.put(Windowed(key, time, time), "v")
        opened.commit()
        if minute % 60 == 59:
            sizes.append(opened.size)

    assert max(sizes[3:]) < 1.3 * min(sizes[3:])
    assert len(opened.pages) < 20


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_sessions_are_found_by_their_overlap() -> None:
    # Source: Kafka 3.9 AbstractSessionBytesStoreTest.shouldFindValuesWithinMergingSessionWindowRange,
    # shouldFindSessionsToMerge
    store = Opened(session("s", TEXT, NUMBER, retention_ms=HOUR)).store
    for start, end in [(0, 0), (10, 20), (30, 40), (1_000, 2_000)]:
        store.put(Windowed("a", start, end), end)

    assert [value for _, value in store.find_sessions("a", 20, 30)] == [20, 40]
    assert [value for _, value in store.find_sessions("a", 21, 29)] == []
    assert [value for _, value in store.find_sessions("a", 0, 10_000, reverse=True)] == [2_000, 40, 20, 0]
    assert store.fetch_session("a", 10, 20) == 20
    assert store.fetch_session("a", 10, 21) is None
    store.remove(Windowed("a", 10, 20))
    store.put(Windowed("a", 30, 40), None)
    assert [value for _, value in store.fetch("a")] == [0, 2_000]


def test_sessions_of_keys_are_limited_and_exact() -> None:
    # Source: Kafka 3.9 AbstractSessionBytesStoreTest.shouldFetchExactKeys, shouldFetchAllSessionsWithinKeyRange
    store = Opened(session("s", TEXT, NUMBER, retention_ms=HOUR)).store
    for key in ("a", "aa", "b"):
        store.put(Windowed(key, 0, 5), 1)

    assert [w.key for w, _ in store.fetch("a")] == ["a"]
    assert [w.key for w, _ in store.fetch_keys("a", "aa")] == ["a", "aa"]
    assert [w.key for w, _ in store.fetch_keys()] == ["a", "aa", "b"]


def test_expired_session_is_not_returned_and_not_accepted() -> None:
    # Source: Kafka 3.9 AbstractSessionBytesStoreTest.shouldNotFetchExpiredSessions, shouldMeasureExpiredRecords
    opened = Opened(session("s", TEXT, NUMBER, retention_ms=MINUTE))
    opened.store.put(Windowed("a", 0, 10), 1)
    opened.store.put(Windowed("b", 0, 5 * MINUTE), 1)

    assert list(opened.store.fetch("a")) == []
    opened.store.put(Windowed("c", 0, 10), 1)
    assert opened.expired == 1


# ---- versions --------------------------------------------------------------------------------------------------------


def versions(history_ms: int = HOUR) -> Opened:
    return Opened(versioned_key_value("v", TEXT, TEXT, history_ms=history_ms))


def test_versions_are_valid_until_next_one() -> None:
    # Source: Kafka 3.9 RocksDBVersionedStoreTest.shouldPutLatest, shouldPutOlderWithNonNullLatest,
    # shouldPutNullAsLatest
    store = versions().store
    assert store.put("k", "a", 10) == VALID_TO_UNDEFINED
    assert store.put("k", "c", 30) == VALID_TO_UNDEFINED
    assert store.put("k", "b", 20) == 30

    assert store.get("k") == VersionedRecord("c", 30)
    assert store.get("k", 29) == VersionedRecord("b", 20, 30)
    assert store.get("k", 10) == VersionedRecord("a", 10, 20)
    assert store.get("k", 9) is None
    assert store.delete("k", 40) == VersionedRecord("c", 30)
    assert store.get("k") is None
    assert store.get("k", 35) == VersionedRecord("c", 30, 40)


def test_versions_older_than_history_are_rejected() -> None:
    # Source: Kafka 3.9 RocksDBVersionedStoreTest.shouldNotPutExpired, shouldNotGetExpired,
    # shouldGetExpiredIfLatestValue
    opened = versions(history_ms=MINUTE)
    opened.store.put("idle", "v", 0)
    opened.store.put("k", "v", 10 * MINUTE)

    assert opened.store.put("k", "late", 8 * MINUTE) == NOT_PUT
    assert opened.expired == 1
    assert opened.store.get("k", 8 * MINUTE) is None
    assert opened.store.get("idle", MINUTE) == VersionedRecord("v", 0)


def test_random_versions_equal_those_of_sorted_list() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    opened = versions()
    expected: dict[int, str | None] = {}
    for _ in range(400):
        time = rng.randrange(50)
        value = rng.choice([None, "a", "b"])
        # Like the JVM, a deletion at the time of the latest value forgets that time.
        if value is None and max(expected, default=-1) == time and expected[time] is not None:
            continue
        opened.store.put("k", value, time)
        expected[time] = value
        if rng.random() < 0.1:
            opened.commit()
            opened.reopen()
        for as_of in range(50):
            valid = max((t for t in expected if t <= as_of), default=None)
            found = opened.store.get("k", as_of)
            assert (found.value if found else None) == (None if valid is None else expected[valid]), (as_of, expected)


def test_old_versions_of_idle_keys_expire() -> None:
    opened = versions(history_ms=10 * MINUTE)
    for minute in range(600):
        for number in range(10):
            opened.store.put(f"user-{number}", str(minute), minute * MINUTE)
        opened.commit()

    assert opened.size < 20_000


# ---- stores of applications ------------------------------------------------------------------------------------------


class Journal(StateStore):
    """A store of an application: entries in the order in which they were added."""

    def init(self, context: StoreContext) -> None:
        self._map = context.byte_map(self.name)

    def add(self, text: str) -> None:
        self._map.put(len(self._map).to_bytes(8, "big"), text.encode())

    def all(self) -> list[str]:
        return [value.decode() for _, value in self._map.scan()]


class Note(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._journal = context.get_state_store("journal")

    def process(self, record: Record) -> None:
        self._journal.add(record.value.decode())
        if record.value == b"bad":
            raise RuntimeError("boom")


def test_store_of_application_uses_byte_map_of_task() -> None:
    builder = StoreBuilder("journal", Journal)
    topology = Topology().add_source("src", "t").add_processor("note", Note, "src", stores=[builder])
    with TopologyTestDriver(topology) as driver:
        notes = driver.create_input_topic("t")
        notes.pipe_input(b"k", b"one")
        with pytest.raises(StreamsError, match="boom"):
            notes.pipe_input(b"k", b"bad")

        assert driver.get_state_store("journal").all() == ["one"]


def test_store_types_are_those_of_builders() -> None:
    assert isinstance(stores.key_value("s").create(), KeyValueStore)
    assert not stores.key_value("s", persistent=False).create().is_persistent


# ---- wrong use -------------------------------------------------------------------------------------------------------


def test_negative_times_are_rejected_by_put_and_not_found() -> None:
    window_store, session_store = windows().store, Opened(session("s", TEXT, TEXT, retention_ms=MINUTE)).store
    versions = Opened(versioned_key_value("v", TEXT, TEXT, history_ms=MINUTE)).store

    assert window_store.fetch("a", -5) is None
    assert session_store.fetch_session("a", -5, 5) is None
    puts: list[Callable[[], object]] = [
        lambda: window_store.put("a", "x", -1),
        lambda: session_store.put(Windowed("a", -1, 5), "x"),
        lambda: versions.put("a", "x", -1),
    ]
    for put in puts:
        with pytest.raises(ValueError, match="store '[wsv]': a time must be a non-negative integer, got -1"):
            put()
    with pytest.raises(
        ValueError, match="store 's': the end must be an integer greater than or equal to the start 5, got 4"
    ):
        session_store.put(Windowed("a", 5, 4), "x")


@pytest.mark.parametrize("value", ["x", ("x", 5), ValueAndTimestamp("x", 1.5)])  # type: ignore[arg-type]
def test_timestamped_stores_need_value_and_timestamp(value: object) -> None:
    plain = Opened(timestamped_key_value("s", TEXT, TEXT)).store
    windowed = Opened(timestamped_window("s", TEXT, TEXT, retention_ms=MINUTE, window_size_ms=10)).store

    with pytest.raises(TypeError, match=r"store 's': the value must be ValueAndTimestamp\(value, milliseconds\), got"):
        plain.put("a", value)
    with pytest.raises(TypeError, match=r"store 's': the value must be ValueAndTimestamp\(value, milliseconds\), got"):
        windowed.put("a", value, 0)


def test_timestamped_none_deletes() -> None:
    store = Opened(timestamped_key_value("s", TEXT, TEXT)).store
    store.put("a", ValueAndTimestamp("x", 1))
    store.put("a", ValueAndTimestamp(None, 2))

    assert store.get("a") is None


def test_deserializer_that_fails_names_store() -> None:
    opened = Opened(key_value("s", TEXT, TEXT))
    opened.store.put("a", "x")
    opened.commit()
    numbers = Opened(key_value("s", TEXT, NUMBER))
    numbers.pages = opened.pages
    numbers.reopen()

    with pytest.raises(ValueError, match="store 's': value b'x' cannot be deserialized: unpack requires"):
        numbers.store.get("a")


def test_rejected_put_on_read_only_window_store_does_not_expire_entries() -> None:
    opened = windows()
    opened.store.put("a", "x", 0)
    opened.byte_map("w").is_read_only = True

    with pytest.raises(StreamsError, match="is read-only"):
        opened.store.put("b", "y", HOUR)

    assert opened.store.fetch("a", 0) == "x"


# ---- pages that are read ---------------------------------------------------------------------------------------------


def filled_with_prefixes(builder: StoreBuilder, put: Callable[[Any, str, int], object]) -> Opened:
    """Return a store with 20,000 keys, most of which start with ``user1``, whose pages are not in memory."""
    opened = Opened(builder)
    for number in range(1, 20_000):
        put(opened.store, f"user{number}", number % 1_000)
    opened.commit()
    opened.reopen()
    opened.pages.reads = 0
    return opened


@pytest.mark.parametrize(("earliest_end", "latest_start"), [(0, 10**15), (1, 1), (0, (1 << 63) - 1)])
def test_sessions_of_key_are_found_in_few_pages(earliest_end: int, latest_start: int) -> None:
    builder = session("s", TEXT, TEXT, retention_ms=HOUR)
    opened = filled_with_prefixes(builder, lambda store, key, time: store.put(Windowed(key, time, time), key))

    assert list(opened.store.find_sessions("user1", earliest_end, latest_start)) == [(Windowed("user1", 1, 1), "user1")]
    assert opened.pages.reads <= 3
    assert list(opened.store.fetch("user1", reverse=True)) == [(Windowed("user1", 1, 1), "user1")]
    assert opened.pages.reads <= 3


@pytest.mark.parametrize("last", [1, 10**15, (1 << 63) - 1, 1 << 70])
def test_windows_of_key_are_found_in_few_pages(last: int) -> None:
    builder = window("w", TEXT, TEXT, retention_ms=HOUR, window_size_ms=1)
    opened = filled_with_prefixes(builder, lambda store, key, time: store.put(key, key, time))

    assert list(opened.store.fetch_times("user1", 0, last)) == [(1, "user1")]
    assert opened.pages.reads <= 3


def test_sessions_of_binary_keys_equal_those_of_list() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    store = Opened(session("s", retention_ms=10 * MINUTE)).store
    keys = [b"", b"\0", b"\0" * 8, b"\0" * 16, b"\0" * 17, b"a", b"a" + b"\0" * 8, b"a\xff", b"\xff" * 20]
    expected: dict[Windowed, bytes] = {}
    for _ in range(3_000):
        start = rng.randrange(10 * MINUTE)
        entry = Windowed(rng.choice(keys), start, min(start + rng.choice([0, 1, 500, MINUTE]), 10 * MINUTE))
        store.put(entry, b"%d" % start)
        expected[entry] = b"%d" % start
    newest = max(entry.end for entry in expected)
    for _ in range(500):
        key, earliest, latest = rng.choice(keys), rng.randrange(-9, 11 * MINUTE), rng.randrange(-9, 11 * MINUTE)
        inside = [
            (entry, value)
            for entry, value in expected.items()
            if entry.key == key and entry.end >= max(earliest, newest - 10 * MINUTE + 1) and entry.start <= latest
        ]
        inside.sort(key=lambda item: (item[0].end, item[0].start))
        assert list(store.find_sessions(key, earliest, latest)) == inside
        assert list(store.find_sessions(key, earliest, latest, reverse=True)) == inside[::-1]


# ---- read-only stores ------------------------------------------------------------------------------------------------

READ_ONLY: list[tuple[StoreBuilder, Callable[[Any, int], object], Callable[[Any], object]]] = [
    (
        window("w", TEXT, TEXT, retention_ms=MINUTE, window_size_ms=1, retain_duplicates=True),
        lambda store, time: store.put("k", "v", time),
        lambda store: (store.fetch("k", 9 * MINUTE), list(store.all())),
    ),
    (
        session("s", TEXT, TEXT, retention_ms=MINUTE),
        lambda store, time: store.put(Windowed("k", time, time), "v"),
        lambda store: list(store.fetch("k")),
    ),
    (
        session("s", TEXT, TEXT, retention_ms=MINUTE),
        lambda store, time: store.remove(Windowed("k", time, time)),
        lambda store: list(store.fetch("k")),
    ),
    (
        versioned_key_value("v", TEXT, TEXT, history_ms=MINUTE),
        lambda store, time: store.put("k", "v", time),
        lambda store: store.get("k"),
    ),
    (
        key_value("kv", TEXT, TEXT),
        lambda store, _time: store.put_if_absent("k", "v"),
        lambda store: list(store.all()),
    ),
]


@pytest.mark.parametrize(("builder", "put", "read"), READ_ONLY)
@pytest.mark.parametrize("time", [0, 9 * MINUTE, 20 * MINUTE], ids=["expired", "same", "later"])
def test_change_of_read_only_store_has_no_effect(
    builder: StoreBuilder, put: Callable[[Any, int], object], read: Callable[[Any], object], time: int
) -> None:
    opened = Opened(builder)
    put(opened.store, 9 * MINUTE)
    before = read(opened.store)
    opened._map.is_read_only = True

    with pytest.raises(StreamsError, match="is read-only: only its own processor can update it"):
        put(opened.store, time)

    assert read(opened.store) == before
    assert opened.expired == 0
