"""The compiled entries of record caches have the same results and errors as those in Python."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest

from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    Record,
    SourceRecord,
    TaskRuntime,
    Topology,
    cache_py,
    stores,
)
from zkconsumer.topology.columns import SourceColumns
from zkconsumer.topology.loop import CacheEntries, RecordCache, RunState
from zkconsumer.topology.stores.serde_map import Conversions

#: Sources of records: none, and topics of different lengths.
SOURCES = [
    None,
    *(SourceColumns.from_records([SourceRecord(topic, 0, 1, 1, None, None)]) for topic in ("a", "long-topic")),
]

TEXT = Conversions(lambda text: text.encode(), lambda text: text.encode(), lambda data: data.decode(), (2, 2, 2))


class Run:
    """Random calls of entries, and what they return."""

    def __init__(self, entries: Any, cache: Any, seed: int) -> None:
        self._rng = random.Random(seed)
        self._store: dict[bytes, bytes] = {}
        self._state, self._cache = RunState(), cache(self._rng.choice([200, 600, 5_000]))
        self._entries = entries(self._cache, self._state, TEXT, self._miss, self._evict)
        self.log: list[Any] = []
        for row in range(400):
            self._state.row, self._state.source = row, self._rng.choice(SOURCES)
            headers: list[Any] = [("h", b"xx"), ("n", None)]
            self._state.record = self._rng.choice([None, Record(None, None, row), Record(None, None, row, headers)])
            try:
                self.log.append(self._call(self._rng.choice("abcdefghij") * self._rng.randint(1, 3)))
            except (KeyError, TypeError, AttributeError) as error:
                self.log.append(type(error))
            cached = self._entries
            self.log.append((self._cache.size_bytes, len(cached), cached.is_dirty, cached.keys(), cached.added))

    def _call(self, key: str) -> Any:
        entries, raw, value = self._entries, key.encode(), self._rng.choice([None, "v" * self._rng.randint(0, 30)])
        match self._rng.choice(["get"] * 6 + ["put"] * 8 + ["dirty", "drop", "find", "clear", "added", "wrong", "raw"]):
            case "get":
                return entries.get(key)
            case "put":
                return entries.put(key, value)
            case "dirty":
                return [self._describe(change) for change in entries.take_dirty()]
            case "drop":
                size = entries.drop_deleted(raw)
                self._cache.size_bytes -= size
                return size
            case "find":
                return entries.find(raw)
            case "clear":
                return entries.clear()
            case "added":
                entries.added = self._rng.choice([None, []])
                return None
            case "wrong":
                return entries.put(5, value)
            case _:
                entries.put_raw(raw, b"raw")
                return entries.get_raw(raw)

    def _miss(self, key: bytes) -> bytes | None:
        if self._rng.random() < 0.01:
            raise KeyError(key)
        return self._store.get(key)

    def _evict(self) -> None:
        while self._cache.size_bytes > self._cache.max_bytes:
            key, size, change = self._entries.pop_oldest()
            self._cache.size_bytes -= size
            if change is not None:
                self.log.append(self._describe(change))
                self._store[key] = change.data or b"deleted"

    def _describe(self, change: Any) -> tuple[Any, ...]:
        return change.key, change.data, change.source, change.row, change.timestamp, change.headers


@pytest.mark.parametrize("seed", range(50))
def test_random_calls_have_equal_results(seed: int) -> None:
    compiled, python = Run(CacheEntries, RecordCache, seed), Run(cache_py.CacheEntries, cache_py.RecordCache, seed)

    assert compiled.log == python.log


class _Put(Processor):
    def init(self, context: Any) -> None:
        self.store = context.get_state_store("s")
        self.store.set_flush_listener(lambda change: self.store.get(change.key))

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value)


def test_closed_task_with_cache_is_collected() -> None:
    topology = (
        Topology().add_source("a", "in").add_processor("p", _Put, "a", stores=[stores.key_value("s", caching=True)])
    )
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)
    task = topology.subtopology(0).task(0, ApplicationConfig(), runtime)
    task.initialize()
    [partition] = task.partitions
    task.add_records(partition, [SourceRecord("in", 0, 0, 0, b"k", b"v")])
    task.run()
    task.close()
    store = weakref.ref(task.stores["s"])

    del task
    gc.collect()

    assert store() is None
