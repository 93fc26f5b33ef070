"""The compiled entries of record caches have the same results and errors as those in Python."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from fuzz.twins.cache_calls import CacheCalls
from fuzz.twins.sides import join_modules

from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    Record,
    SourceRecord,
    TaskRuntime,
    Topology,
    cache_py,
    loop,
    loop_py,
    stores,
)

TWIN = join_modules(cache_py, loop_py)


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
