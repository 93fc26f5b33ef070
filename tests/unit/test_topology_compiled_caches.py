"""The compiled entries of record caches have the same results and errors as those in Python."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fuzz.twins.cache_calls import CacheCalls
from fuzz.twins.sides import join_modules

from zkconsumer.topology import ApplicationConfig, Processor, Record, SourceRecord, TaskRuntime, Topology, stores
from zkconsumer.topology.loop import cache_py, loop_py
from zkconsumer.topology.loop import native as loop
from zkconsumer.topology.stores.serde_map import Conversions
from zkconsumer.version import IS_PURE

TWIN = join_modules(cache_py, loop_py)

pytestmark = pytest.mark.skipif(IS_PURE, reason="ZKCONSUMER_PURE=1 is set: there are no compiled entries")


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_have_equal_results(seed: int) -> None:
    CacheCalls(loop, TWIN, random.Random(seed)).run(10)


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


@pytest.mark.parametrize("call", ["find", "pop_oldest"])
def test_finalizer_can_remove_entries_that_are_being_returned(call: str) -> None:
    class Clearing:
        def __del__(self) -> None:
            entries.clear()

    for _ in range(20):
        conversions = Conversions(bytes, bytes, bytes, (1, 1, 1))
        entries: Any = loop.CacheEntries(
            loop.RecordCache(10**9), loop.RunState(), conversions, lambda _: None, lambda: None
        )
        for number in range(3):
            entries.put_raw(b"key %d" % number + b"x" * 50, b"v" * 100)
        entries.take_dirty()
        with collecting(Clearing):
            found = entries.find(b"key 1" + b"x" * 50) if call == "find" else entries.pop_oldest()
        assert found is None or found[0] in (b"key 0" + b"x" * 50, b"key 1" + b"x" * 50)


class _Source:
    topic = "in"


class _Changes:
    """Compiled entries in which each key is changed by a record with the same number."""

    def __init__(self) -> None:
        conversions, self.state, self.source = Conversions(bytes, bytes, bytes, (1, 1, 1)), loop.RunState(), _Source()
        self.entries: Any = loop.CacheEntries(
            loop.RecordCache(10**9), self.state, conversions, lambda _: None, lambda: None
        )

    def put(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.state.source = self.source
            self.state.record = loop.Record(None, None, number, [("h", b"x")])
            self.entries.put_raw(b"key %d" % number, b"value")
        self.state.source = self.state.record = None


def _describe(changes: Any) -> list[tuple[Any, ...]]:
    return [(change.key, change.timestamp, list(change.headers)) for change in changes]


def test_failed_allocation_loses_no_change() -> None:
    capi = pytest.importorskip("_testcapi")
    for number in range(1_000):
        changed = _Changes()
        changed.put(range(20))
        changes: Any = None
        order = [*range(20)]
        capi.set_nomemory(number, number + 1)
        try:
            changes = changed.entries.take_dirty()
        except MemoryError:
            assert changed.entries.is_dirty
        finally:
            capi.remove_mem_hooks()
        is_complete = changes is not None
        if not is_complete:
            changed.put([0])  # the entry moves to the end
            changes, order = changed.entries.take_dirty(), [*range(1, 20), 0]
        assert _describe(changes) == [(b"key %d" % key, key, [("h", b"x")]) for key in order]
        assert all(change.source is changed.source for change in changes)
        assert not changed.entries.is_dirty
        if is_complete:
            break
    assert 20 < number < 999


def test_entries_keep_no_source_of_taken_changes() -> None:
    changed = _Changes()
    changed.put(range(3))
    source = weakref.ref(changed.source)

    assert len(changed.entries.take_dirty()) == len(changed.entries) == 3
    del changed.source

    assert source() is None


def test_entries_change_again_after_take_dirty() -> None:
    changed = _Changes()
    for numbers, order in (([0, 1, 2], [0, 1, 2]), ([1], [1]), ([], []), ([2, 0], [2, 0]), ([3, 1, 3], [1, 3])):
        changed.put(numbers)
        assert [change.timestamp for change in changed.entries.take_dirty()] == order


@contextlib.contextmanager
def collecting(garbage: type) -> Iterator[None]:
    """Collect an object of a class at the next allocation of a tuple."""
    gc.disable()
    cycle = garbage()
    cycle.itself = cycle
    del cycle
    tuples = [(number, number) for number in range(5_000)] + [(number,) * 3 for number in range(5_000)]
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        del tuples
