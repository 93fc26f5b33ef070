"""Tests of record caches: order, sizes, evictions, flush listeners, commits, and merged reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkconsumer.errors import ConfigurationError, StreamsError, TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Change,
    Processor,
    ProcessorContext,
    Record,
    SourceRecord,
    StreamTask,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
)
from zkconsumer.topology.errors import FlushError
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.headers import count_header_bytes
from zkconsumer.topology.loop.native import RunState
from zkconsumer.topology.stores import (
    MemoryPages,
    RecordCache,
    StateStore,
    StoreBuilder,
    ValueAndTimestamp,
    Windowed,
)
from zkconsumer.topology.stores.cache import StoreCache, merge
from zkconsumer.topology.stores.serde_map import Conversions

PARTITION = TopicPartition("in", 0)
TEXT = serdes.STRING


class Backing(dict[bytes, bytes]):
    """A store of bytes, which records what the cache reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[bytes, bytes | None]] = []

    def read(self, key: bytes) -> bytes | None:
        return self.get(key)

    def write(self, key: bytes, data: bytes | None) -> None:
        self.written.append((key, data))
        if data is None:
            self.pop(key, None)
        else:
            self[key] = data

    def conversions(self) -> Conversions:
        return Conversions(bytes, bytes, bytes, (1, 1, 1))

    def decode_key(self, key: bytes) -> Any:
        return key

    def decode_value(self, data: bytes) -> Any:
        return data


class Fixture:
    """A cache with its store, outside of a record."""

    def __init__(self, max_bytes: int = 1_000_000, shared: RecordCache | None = None) -> None:
        self.shared = shared or RecordCache(max_bytes)
        self.state = RunState()
        self.backing = Backing()
        self.cache = StoreCache("s", self.shared, self.state, self.backing)

    def keys(self) -> list[bytes]:
        """Return the keys from the least to the most recently used one."""
        return self.cache.entries.keys()


# ---- order and size of entries ----


def test_get_and_put_make_entry_most_recent() -> None:
    # Source: NamedCacheTest.shouldPutGet, shouldMoveToHeadOnUpdate
    fixture = Fixture()
    for key in (b"a", b"b", b"c"):
        fixture.cache.entries.put_raw(key, b"1")

    assert fixture.cache.entries.get_raw(b"a") == b"1"
    fixture.cache.entries.put_raw(b"b", b"2")

    assert fixture.keys() == [b"c", b"a", b"b"]


def test_size_is_that_of_kafka_streams() -> None:
    # Source: NamedCacheTest.shouldKeepTrackOfSize, shouldKeepTrackOfSizeAfterUpdate; LRUNode.size
    fixture = Fixture()
    fixture.state.source = SourceColumns.from_records([SourceRecord("topic", 0, 7, 9, None, None)])
    fixture.state.record = Record(None, None, 9, [("h", b"xy"), ("n", None)])

    fixture.cache.entries.put_raw(b"key", b"value")
    assert fixture.shared.size_bytes == 3 + 24 + 1 + 5 + 8 + 8 + 5 + 4 + (1 + 2) + 1
    fixture.cache.entries.put_raw(b"key", None)
    assert fixture.shared.size_bytes == 3 + 24 + 1 + 0 + 8 + 8 + 5 + 4 + (1 + 2) + 1


def test_header_names_count_utf16_units() -> None:
    assert count_header_bytes([("\U0001f600", b"1"), ("é", None)]) == 2 + 1 + 1


def test_clean_entry_has_no_topic() -> None:
    fixture = Fixture()
    fixture.state.source = SourceColumns.from_records([SourceRecord("topic", 0, 7, 9, None, None)])
    fixture.backing[b"k"] = b"v"

    assert fixture.cache.entries.get_raw(b"k") == b"v"
    assert (fixture.shared.size_bytes, fixture.cache.is_dirty) == (1 + 1 + 45, False)


def test_missing_key_is_not_added() -> None:
    fixture = Fixture()

    assert fixture.cache.entries.get_raw(b"k") is None
    assert len(fixture.cache.entries) == 0


def test_clear_subtracts_bytes_of_this_store_only() -> None:
    # Source: ThreadCacheTest.shouldCalculateSizeInBytes and cleanup of NamedCache.clear
    shared = RecordCache(10_000)
    one, other = Fixture(shared=shared), Fixture(shared=shared)
    one.cache.entries.put_raw(b"a", b"1")
    other.cache.entries.put_raw(b"b", b"1")

    one.cache.clear()

    assert shared.size_bytes == 47
    assert (one.cache.is_dirty, other.cache.is_dirty) == (False, True)


# ---- flushes ----


def test_flush_orders_keys_by_last_put() -> None:
    # Source: NamedCache.put removes the key from the dirty keys and adds it again
    fixture = Fixture()
    for key in (b"a", b"b", b"a", b"c"):
        fixture.cache.entries.put_raw(key, b"1")
    fixture.cache.entries.get_raw(b"b")

    fixture.cache.flush()

    assert fixture.backing.written == [(b"b", b"1"), (b"a", b"1"), (b"c", b"1")]
    assert not fixture.cache.is_dirty


def test_flush_removes_deleted_entries() -> None:
    # Source: NamedCacheTest.shouldRemoveDeletedValuesOnFlush
    fixture = Fixture()
    fixture.cache.entries.put_raw(b"a", None)
    fixture.cache.entries.put_raw(b"b", b"1")

    fixture.cache.flush()

    assert fixture.keys() == [b"b"]
    assert fixture.shared.size_bytes == 47


def test_eviction_flushes_all_with_evicted_first() -> None:
    # Source: NamedCacheTest.shouldFlushDirtyEntriesOnEviction
    fixture = Fixture(3 * 47)
    for key in (b"a", b"b", b"c"):
        fixture.cache.entries.put_raw(key, b"1")
    fixture.cache.entries.put_raw(b"a", b"2")  # b is now the least recently used one

    fixture.cache.entries.put_raw(b"d", b"1")

    assert [key for key, _ in fixture.backing.written] == [b"b", b"c", b"a", b"d"]
    assert fixture.keys() == [b"c", b"a", b"d"]


def test_eviction_of_clean_entry_does_not_flush() -> None:
    # Source: NamedCacheTest.shouldNotFlushDirtyEntriesOnEvictionOfCleanEntry
    fixture = Fixture(2 * 47)
    fixture.backing[b"a"] = b"1"
    fixture.cache.entries.get_raw(b"a")

    fixture.cache.entries.put_raw(b"b", b"1")
    fixture.cache.entries.put_raw(b"c", b"1")

    assert (fixture.keys(), fixture.backing.written) == ([b"b", b"c"], [])


def test_read_can_evict_dirty_entry() -> None:
    fixture = Fixture(47)
    fixture.cache.entries.put_raw(b"a", b"1")
    fixture.backing[b"b"] = b"1"

    fixture.cache.entries.get_raw(b"b")

    assert (fixture.keys(), fixture.backing.written) == ([b"b"], [(b"a", b"1")])


def test_eviction_takes_entries_of_own_store_only() -> None:
    # Source: ThreadCacheTest.shouldEvictImmediatelyIfCacheSizeIsVerySmall,
    # shouldNotLoopForEverWhenEvictingAndCurrentCacheIsEmpty
    shared = RecordCache(2 * 47)
    one, other = Fixture(shared=shared), Fixture(shared=shared)
    for key in (b"a", b"b"):
        one.cache.entries.put_raw(key, b"1")

    other.cache.entries.put_raw(b"c", b"1")

    assert (one.keys(), other.keys(), other.backing.written) == ([b"a", b"b"], [], [(b"c", b"1")])


def test_entry_put_by_listener_stays() -> None:
    fixture = Fixture()
    fixture.cache.entries.put_raw(b"a", None)
    fixture.backing[b"a"] = b"0"
    fixture.cache.listener = lambda change: (
        fixture.cache.entries.put_raw(change.key, b"2") if change.value.new is None else None
    )

    fixture.cache.flush()

    assert (fixture.cache.entries.get_raw(b"a"), fixture.cache.is_dirty) == (b"2", True)


def test_change_without_old_and_new_value_is_skipped() -> None:
    # Source: CachingInMemoryKeyValueStoreTest.shouldNotForwardDeletedValueIfNotInStore (putAndMaybeForward)
    fixture, changes = Fixture(), []
    fixture.cache.listener = lambda change: changes.append(change.value)
    fixture.backing[b"b"] = b"1"
    for key in (b"a", b"b"):
        fixture.cache.entries.put_raw(key, None)

    fixture.cache.flush()

    assert changes == [Change(None, None)]
    assert fixture.backing.written == [(b"b", None)]


@pytest.mark.parametrize("sends_old", [False, True])
def test_listener_gets_old_value_on_request(sends_old: bool) -> None:
    # Source: CachingInMemoryKeyValueStoreTest.shouldForwardOldValuesWhenEnabled, shouldNotForwardOldValuesWhenDisabled
    fixture, changes = Fixture(), []
    fixture.cache.listener, fixture.cache.sends_old_values = (lambda change: changes.append(change.value)), sends_old
    for value in (b"1", b"2"):
        fixture.cache.entries.put_raw(b"a", value)
    fixture.cache.flush()
    fixture.cache.entries.put_raw(b"a", b"3")
    fixture.cache.flush()

    assert changes == [Change(b"2", None), Change(b"3", b"2" if sends_old else None)]


def test_failed_flush_fails_later_ones() -> None:
    fixture = Fixture()
    fixture.cache.listener = lambda _change: [][0]
    fixture.cache.entries.put_raw(b"a", b"1")

    for _ in range(2):
        with pytest.raises(FlushError, match="store 's': record cache flush failed: IndexError"):
            fixture.cache.flush()


# ---- scans ----


def test_scan_returns_range_and_makes_it_most_recent() -> None:
    # Source: NamedCacheTest.keyRange of ThreadCacheTest.shouldPeekNextKey; MemoryLRUCacheBytesIterator calls get
    fixture = Fixture()
    for key in (b"d", b"b", b"a", b"c"):
        fixture.cache.entries.put_raw(key, key)

    assert fixture.cache.scan(b"a", b"c", False) == [(b"a", b"a"), (b"b", b"b")]
    assert fixture.keys() == [b"d", b"c", b"a", b"b"]
    fixture.cache.entries.put_raw(b"bb", None)
    assert fixture.cache.scan(b"b", None, True) == [(b"d", b"d"), (b"c", b"c"), (b"bb", None), (b"b", b"b")]


def test_scan_omits_evicted_keys() -> None:
    fixture = Fixture(2 * 47)
    for key in (b"a", b"b"):
        fixture.cache.entries.put_raw(key, b"1")
    fixture.cache.scan(b"", None, False)

    fixture.cache.entries.put_raw(b"c", b"1")

    assert [key for key, _ in fixture.cache.scan(b"", None, False)] == [b"b", b"c"]


def test_scan_finds_evicted_key_that_listener_put() -> None:
    fixture = Fixture(2 * 47)
    for key in (b"a", b"b"):
        fixture.cache.entries.put_raw(key, b"1")
    fixture.cache.scan(b"", None, False)
    put = fixture.cache.entries.put_raw
    fixture.cache.listener = lambda change: put(change.key, b"2") if change.value.new == b"1" else None
    fixture.shared.max_bytes = 3 * 47 + 10

    for key in (b"c", b"d"):
        put(key, b"1")

    found = fixture.cache.scan(b"", None, False)
    assert sorted(fixture.cache.entries.keys()) == [key for key, _ in found]
    assert fixture.shared.size_bytes == 47 * len(found)


@pytest.mark.parametrize("reverse", [False, True])
def test_merge_hides_deleted_keys(reverse: bool) -> None:
    found = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    cached: list[tuple[bytes, bytes | None]] = [(b"a", b"2"), (b"bb", b"2"), (b"c", None), (b"d", None)]
    expected = [(b"a", b"2"), (b"b", b"1"), (b"bb", b"2")]
    if reverse:
        found, cached, expected = found[::-1], cached[::-1], expected[::-1]

    assert merge(found, cached, reverse) == expected


# ---- tasks ----


class Cached(Processor):
    """Calls a function with the store and each record, and forwards the changes of the store."""

    def __init__(self, call: Callable[[Any, Record], object], sends_old: bool) -> None:
        self._call, self._sends_old = call, sends_old

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.get_state_store("s")
        self.is_cached = self.store.set_flush_listener(self.forward, self._sends_old)

    def forward(self, change: Record) -> None:
        key = change.key if isinstance(change.key, str) else "{}@{}/{}".format(*change.key)
        metadata = self.context.record_metadata
        assert metadata is not None
        text = f"{change.value.new}<{change.value.old} {metadata.topic} {metadata.offset}"
        self.context.forward(change.with_key(key).with_value(text))

    def process(self, record: Record) -> None:
        self._call(self.store, record)


class Owner:
    """A task with a cached store, and its output."""

    def __init__(
        self,
        call: Callable[[Any, Record], object],
        store: StoreBuilder | None = None,
        sends_old: bool = True,
        **config: Any,
    ) -> None:
        self._pages: dict[str, MemoryPages] = {}
        self._store = store or stores.key_value("s", TEXT, TEXT, caching=True)
        self._call, self._sends_old = call, sends_old
        self.processor: Cached
        self.task = self._create(ApplicationConfig(key_serde=TEXT, value_serde=TEXT, **config))
        self._offset = 0

    def send(self, *records: tuple[str, str, int]) -> list[tuple[Any, ...]]:
        """Process records, and return the output."""
        for key, value, time_ms in records:
            source = SourceRecord("in", 0, self._offset, time_ms, key.encode(), value.encode())
            self.task.add_records(PARTITION, [source])
            self._offset += 1
        self.task.run()
        return self.sent()

    def commit(self) -> list[tuple[Any, ...]]:
        """Commit, and return the output."""
        self.task.commit()
        return self.sent()

    def sent(self) -> list[tuple[Any, ...]]:
        return [
            ((record.key or b"").decode(), (record.value or b"").decode(), record.timestamp)
            for record in self.task.take_output().records()
        ]

    def _create(self, config: ApplicationConfig) -> StreamTask:
        topology = Topology().add_source("a", "in").add_processor("p", self._supply, "a", stores=[self._store])
        topology.add_sink("o", "out", "p")
        runtime = TaskRuntime(clock=lambda: 0, pages=self._pages_of, commit=int, rollback=int)
        task = topology.subtopology(0).task(0, config, runtime)
        task.initialize()
        return task

    def _supply(self) -> Cached:
        self.processor = Cached(self._call, self._sends_old)
        return self.processor

    def _pages_of(self, store: StateStore) -> MemoryPages:
        return self._pages.setdefault(store.name, MemoryPages())


def put(store: Any, record: Record) -> None:
    store.put(record.key, record.value or None)


def test_commit_forwards_last_change_of_each_key() -> None:
    # Source: CachingInMemoryKeyValueStoreTest.shouldFlushDirtyItemsToUnderlyingStoreOnFlush
    owner = Owner(put)

    assert owner.send(("a", "1", 5), ("b", "1", 6), ("a", "2", 3)) == []
    assert owner.commit() == [("b", "1<None in 1", 6), ("a", "2<None in 2", 3)]
    assert owner.send(("a", "3", 9)) == []
    assert owner.commit() == [("a", "3<2 in 3", 9)]
    assert owner.commit() == []


def test_uncached_store_has_no_listener() -> None:
    owner = Owner(put, stores.key_value("s", TEXT, TEXT))

    assert not owner.processor.is_cached
    assert owner.send(("a", "1", 5)) + owner.commit() == []


def test_zero_bytes_disable_caches() -> None:
    # Source: InternalTopologyBuilder.rewriteTopology, which removes the caches
    owner = Owner(put, statestore_cache_max_bytes=0)

    assert not owner.processor.is_cached
    assert type(owner.task.stores["s"]) is stores.KeyValueStore


@pytest.mark.parametrize("value", [-1, 1.5, "1", None])
def test_invalid_cache_size_is_rejected_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="statestore_cache_max_bytes must be a non-negative integer"):
        ApplicationConfig(statestore_cache_max_bytes=value)


def test_record_metadata_is_that_of_change_during_eviction() -> None:
    # an entry has 1 + 45 + 1 + 2 bytes
    owner = Owner(put, statestore_cache_max_bytes=2 * 49)

    assert owner.send(("a", "1", 1), ("b", "1", 2)) == []
    assert owner.send(("c", "1", 3)) == [("a", "1<None in 0", 1), ("b", "1<None in 1", 2), ("c", "1<None in 2", 3)]


def test_changed_timestamp_and_headers_belong_to_change() -> None:
    seen: list[Record] = []

    def call(store: Any, record: Record) -> None:
        record.headers.append(("n", b"x"))
        store.put(record.key, record.value)

    owner = Owner(call)
    owner.processor.store.set_flush_listener(seen.append)
    owner.send(("a", "1", 5))
    owner.commit()

    assert [(record.key, record.value, record.timestamp, record.headers) for record in seen] == [
        ("a", Change("1", None), 5, [("n", b"x")])
    ]


def test_tasks_share_budget_of_runtime() -> None:
    shared = RecordCache(2 * 49)
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int, cache=shared)
    builder = stores.key_value("s", TEXT, TEXT, caching=True)
    topology = Topology().add_source("a", "in").add_processor("p", lambda: Cached(put, False), "a", stores=[builder])
    topology.add_sink("o", "out", "p")
    config = ApplicationConfig(key_serde=TEXT, value_serde=TEXT)
    tasks = [topology.subtopology(0).task(number, config, runtime) for number in (0, 1)]
    for number, task in enumerate(tasks):
        task.initialize()
        for offset in (0, 1):
            record = SourceRecord("in", number, offset, 0, str(offset).encode(), b"1")
            task.add_records(TopicPartition("in", number), [record])
        task.run()

    assert [len(task.take_output()) for task in tasks] == [0, 2]
    assert shared.size_bytes == 2 * 49
    tasks[0].close()
    assert shared.size_bytes == 0


def test_rollback_discards_cached_changes() -> None:
    owner = Owner(lambda store, record: put(store, record) if record.value != "fail" else [][0])
    owner.send(("a", "1", 1))
    owner.commit()

    with pytest.raises(StreamsError, match="IndexError"):
        owner.send(("a", "2", 2), ("a", "fail", 3))

    assert owner.task.stores["s"].get("a") == "1"  # type: ignore[attr-defined]


def test_failed_listener_ends_task_in_spite_of_handler() -> None:
    owner = Owner(put, processing_handler=handlers.log_and_continue, statestore_cache_max_bytes=10)
    owner.processor.store.set_flush_listener(lambda _: [][0])

    with pytest.raises(StreamsError, match="store 's': record cache flush failed: IndexError"):
        owner.send(("a", "1", 1))
    with pytest.raises(StreamsError, match="after the task failed"):
        owner.task.commit()


def test_failed_listener_fails_commit() -> None:
    owner = Owner(put)
    owner.processor.store.set_flush_listener(lambda _: [][0])
    owner.send(("a", "1", 1))

    with pytest.raises(StreamsError, match="commit failed: store 's': record cache flush failed: IndexError"):
        owner.commit()
    assert owner.task.stores["s"].get("a") is None  # type: ignore[attr-defined]


def test_endless_changes_of_listener_fail_commit() -> None:
    owner = Owner(put)
    owner.processor.store.set_flush_listener(lambda change: owner.processor.store.put(change.key, "x"))
    owner.send(("a", "1", 1))

    with pytest.raises(
        StreamsError,
        match="record caches still have changes after 2 flushes, because flush listeners keep changing .*: s",
    ):
        owner.commit()


def test_suspended_task_gives_bytes_back_after_commit() -> None:
    owner = Owner(put)
    owner.send(("a", "1", 1))
    owner.task.suspend()

    assert owner.commit() == [("a", "1<None in 0", 1)]
    assert owner.task._stores._cache.size_bytes == 0
    owner.task.resume()
    owner.send(("a", "2", 2))
    assert owner.commit() == [("a", "2<1 in 1", 2)]


def test_put_outside_of_record_has_no_metadata() -> None:
    owner = Owner(put)
    owner.processor.store.put("a", "1")

    assert owner.commit() == [("a", "1<None None -1", 0)]


# ---- key-value stores ----


def test_reads_see_cached_entries() -> None:
    # Source: CachingInMemoryKeyValueStoreTest.shouldIterateOverRange, shouldDeleteItemsFromCache, shouldPutIfAbsent
    seen: list[Any] = []

    def call(store: Any, record: Record) -> None:
        put(store, record)
        if record.value == "read":
            store.delete("b")
            seen.append([store.put_if_absent("a", "x"), store.put_if_absent("e", "y"), store.get("b")])
            seen.append(list(store.range("a", "d")))
            seen.append(list(store.all(reverse=True)))
            seen.append(list(store.prefix_scan(b"c")))

    owner = Owner(call)
    owner.send(("a", "1", 0), ("b", "1", 0), ("ca", "1", 0))
    owner.commit()
    owner.send(("cb", "read", 0))

    assert seen[0] == ["1", None, None]
    assert seen[1] == [("a", "1"), ("ca", "1"), ("cb", "read")]
    assert seen[2] == [("e", "y"), ("cb", "read"), ("ca", "1"), ("a", "1")]
    assert seen[3] == [("ca", "1"), ("cb", "read")]


def test_timestamped_changes_have_timestamps() -> None:
    def call(store: Any, record: Record) -> None:
        store.put(record.key, ValueAndTimestamp(record.value or None, 7))

    owner = Owner(call, stores.timestamped_key_value("s", TEXT, serdes.STRING, caching=True))
    owner.send(("a", "1", 3))

    assert owner.commit() == [("a", f"{ValueAndTimestamp('1', 7)}<None in 0", 3)]
    owner.send(("a", "", 4))
    assert owner.commit() == [("a", f"None<{ValueAndTimestamp('1', 7)} in 1", 4)]


# ---- windows and sessions ----


def window_store(retention_ms: int = 200_000, **options: Any) -> StoreBuilder:
    return stores.window("s", TEXT, TEXT, retention_ms=retention_ms, window_size_ms=10, caching=True, **options)


def test_window_changes_have_windowed_keys() -> None:
    # Source: CachingPersistentWindowStoreTest.shouldForwardDirtyItemsWhenFlushCalled
    owner = Owner(lambda store, record: store.put(record.key, record.value or None, record.timestamp), window_store())
    owner.send(("a", "1", 20), ("a", "2", 20), ("a", "1", 30))

    assert owner.commit() == [("a@20/30", "2<None in 1", 20), ("a@30/40", "1<None in 2", 30)]
    owner.send(("a", "", 20))
    assert owner.commit() == [("a@20/30", "None<2 in 3", 20)]


def test_window_reads_merge_segments() -> None:
    # Source: CachingPersistentWindowStoreTest.shouldIterateCacheAndStore, shouldFetchAndIterateOverExactKeys
    seen: list[Any] = []

    def call(store: Any, record: Record) -> None:
        store.put(record.key, record.value or None, record.timestamp)
        seen[:] = [
            list(store.fetch_times("a", 0, 1 << 40)),
            list(store.fetch_times("a", 0, 1 << 40, reverse=True)),
            [(key.key, key.start) for key, _ in store.all()],
            [(key.key, key.start) for key, _ in store.fetch_keys("a", "aa", 0, 1 << 40)],
            store.fetch("a", 150_000),
        ]

    owner = Owner(call, window_store())
    owner.send(("a", "1", 150_000), ("b", "1", 10), ("a", "2", 10))
    owner.commit()
    owner.send(("aa", "3", 150_001), ("a", "", 10), ("a", "4", 11))

    assert seen[0] == [(11, "4"), (150_000, "1")]
    assert seen[1] == seen[0][::-1]
    assert seen[2] == [("a", 11), ("b", 10), ("a", 150_000), ("aa", 150_001)]
    assert seen[3] == [("a", 11), ("a", 150_000), ("aa", 150_001)]
    assert seen[4] == "1"


def test_expired_window_is_forwarded_and_counted_at_flush() -> None:
    # Source: CachingWindowStore.putAndMaybeForward; the store behind the cache drops the window
    seen: list[Any] = []

    def call(store: Any, record: Record) -> None:
        store.put(record.key, record.value, record.timestamp)
        seen.append(store.fetch(record.key, record.timestamp))

    owner = Owner(call, window_store(60_000))
    owner.send(("a", "1", 500_000), ("b", "1", 0))

    assert owner.task.metrics["dropped"] == 0
    assert owner.commit() == [("a@500000/500010", "1<None in 0", 500_000), ("b@0/10", "1<None in 1", 0)]
    assert (owner.task.metrics["dropped"], seen) == (1, ["1", None])
    assert [key.key for key, _ in owner.task.stores["s"].all()] == ["a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["window", "session"])
def test_rebuilt_task_keeps_time_of_change_that_was_not_written(kind: str) -> None:
    def call(store: Any, record: Record) -> None:
        if kind == "window":
            store.put(record.key, record.value or None, record.timestamp)
        elif record.value:
            store.put(Windowed(record.key, record.timestamp, record.timestamp), record.value)
        else:
            store.remove(Windowed(record.key, record.timestamp, record.timestamp))

    def find_all(owner: Owner) -> list[Any]:
        store: Any = owner.task.stores["s"]
        return list(store.all() if kind == "window" else store.find_sessions_of_keys(None, None, 0, 1_000_000))

    store = window_store(60_000)
    if kind == "session":
        store = stores.session("s", TEXT, TEXT, retention_ms=60_000, caching=True)
    owner = Owner(call, store)
    owner.send(("a", "1", 10_000))
    owner.commit()
    assert len(find_all(owner)) == 1
    owner.send(("b", "", 80_000))  # deletes an entry that does not exist
    owner.commit()
    assert find_all(owner) == []

    owner.task = owner._create(ApplicationConfig(key_serde=TEXT, value_serde=TEXT))
    assert find_all(owner) == []


def test_store_with_duplicates_is_not_cached() -> None:
    # Source: WindowStoreBuilder.build
    assert not window_store(retain_duplicates=True).caching


def test_session_changes_and_reads_are_merged() -> None:
    # Source: CachingPersistentSessionStoreTest.shouldRemove, shouldPutFetchFromCache,
    # shouldForwardChangedValuesDuringFlush
    found: list[Any] = []

    def call(store: Any, record: Record) -> None:
        if record.value == "remove":
            store.remove(Windowed(record.key, 0, 5))
        else:
            store.put(Windowed(record.key, record.timestamp - 5, record.timestamp), record.value)
        found[:] = [(tuple(key), value) for key, value in store.find_sessions(record.key, 0, 1 << 40)]
        found.append(store.fetch_session(record.key, 0, 5))

    owner = Owner(call, stores.session("s", TEXT, TEXT, retention_ms=100_000, caching=True))
    owner.send(("a", "1", 5), ("a", "2", 70_000))
    assert found == [(("a", 0, 5), "1"), (("a", 69_995, 70_000), "2"), "1"]
    assert owner.commit() == [("a@0/5", "1<None in 0", 5), ("a@69995/70000", "2<None in 1", 70_000)]
    owner.send(("a", "remove", 70_001))

    assert found == [(("a", 69_995, 70_000), "2"), None]
    assert owner.commit() == [("a@0/5", "None<1 in 2", 70_001)]


# ---- declarations ----


def test_caching_is_part_of_fingerprint_but_not_of_layout() -> None:
    builders = [stores.session("s", retention_ms=1, caching=caching) for caching in (False, True)]
    fingerprints = {
        Topology()
        .add_source("a", "in")
        .add_processor("p", lambda: Cached(put, False), "a", stores=[builder])
        .subtopology(0)
        .fingerprint
        for builder in builders
    }

    assert len(fingerprints) == 2
    assert len({builder.create().layout for builder in builders}) == 1


def test_other_kinds_cannot_be_cached() -> None:
    with pytest.raises(TopologyError, match="store 's': caching is not supported for "):
        StoreBuilder("s", stores.VersionedKeyValueStore, caching=True)


def test_global_store_is_not_cached() -> None:
    builder = stores.key_value("g", TEXT, TEXT, logging=False, caching=True)
    topology = Topology().add_source("a", "in").add_processor("p", _Ignore, "a")
    topology.add_global_store(builder, "g-source", "g-topic", "g-processor", _Update)
    with TopologyTestDriver(topology, ApplicationConfig(key_serde=TEXT, value_serde=TEXT)) as driver:
        driver.create_input_topic("g-topic").pipe_input("a", "1")

        assert type(driver.get_state_store("g")) is stores.KeyValueStore
        assert driver.get_state_store("g").get("a") == "1"


class _Ignore(Processor):
    def process(self, record: Record) -> None:
        pass


class _Update(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._store = context.get_state_store("g")

    def process(self, record: Record) -> None:
        self._store.put(record.key, record.value)
