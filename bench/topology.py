"""``python -m bench.topology``: CPU time of a topology task, and throughput of test drivers.

The cases use processors of the benchmark, or aggregations of ``StreamsBuilder``, which count records.

A task runs in one process on one core. Its CPU time per record includes everything from decoded Arrow columns to Arrow
output columns, with a commit every 200,000 records. The stores are filled before the measurement. The test drivers of
zkconsumer and Kafka Streams serialize each record and commit after it; their throughput is based on wall-clock time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from bench.grid import grid
from bench.report import FOLDER
from tests.oracle.oracle import Oracle
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    StreamTask,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.dsl import Materialized, StreamsBuilder
from zkconsumer.topology.dsl.materialized import Windows
from zkconsumer.topology.stores import MemoryPages, StateStore, StoreBuilder, Windowed
from zkconsumer.topology.windows import SessionWindows, SlidingWindows, TimeWindows

COMMIT_RECORDS, COMMITS, DRIVER_RECORDS, RUNS = 200_000, 3, 50_000, 5
VALUE = bytes(92)
PARTITION = TopicPartition("in", 0)
WINDOW_MS, GAP_MS = 60_000, 30_000

#: Difference between the event times of consecutive records, in milliseconds. A window contains 6,000 records.
STEP_MS = 10


class Count(Processor):
    """Counts the records of each key."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._context = context
        self._store = context.get_state_store("s")

    def process(self, record: Record) -> None:
        """Count a record, and forward the count."""
        count = (self._store.get(record.key) or 0) + 1
        self._store.put(record.key, count)
        self._context.forward(record.with_value(count))


class CachedCount(Count):
    """Counts the records of each key, and forwards the last count of each key on commit."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._store.set_flush_listener(self._forward)

    def process(self, record: Record) -> None:
        """Count a record."""
        self._store.put(record.key, (self._store.get(record.key) or 0) + 1)

    def _forward(self, change: Record) -> None:
        self._context.forward(change.with_value(change.value.new))


class CountByWindow(Count):
    """Counts the records per key and minute."""

    def process(self, record: Record) -> None:
        """Count a record."""
        start = record.timestamp - record.timestamp % WINDOW_MS
        count = (self._store.fetch(record.key, start) or 0) + 1
        self._store.put(record.key, count, start)
        self._context.forward(record.with_value(count))


class CountBySession(Count):
    """Counts the records per key and session."""

    def process(self, record: Record) -> None:
        """Count a record."""
        start = end = record.timestamp
        count = 1
        for session, earlier in self._store.find_sessions(record.key, start - GAP_MS, end + GAP_MS):
            start, end, count = min(start, session.start), max(end, session.end), count + earlier
            self._store.remove(session)
        self._store.put(Windowed(record.key, start, end), count)
        self._context.forward(record.with_value(count))


class Case(NamedTuple):
    """A benchmark case: the number of keys, a processor and its store."""

    keys: int
    processor: type[Processor]
    store: Callable[[], StoreBuilder]

    def build(self, *, has_output: bool = True) -> Topology:
        """Return the topology, with or without an output topic for the changes."""
        topology = Topology().add_source("src", "in")
        topology.add_processor("p", self.processor, "src", stores=[self.store()])
        if has_output:
            topology.add_sink("out", "out", "p", value_serializer=serdes.LONG.serialize)
        return topology


class BuilderCase(NamedTuple):
    """A benchmark case of ``StreamsBuilder``: the windows of a count (None for none), and whether it has a cache."""

    windows: Windows | None
    is_cached: bool
    keys: int = 1_000

    def build(self) -> Topology:
        """Return the topology."""
        builder = StreamsBuilder()
        grouped = builder.stream("in").group_by_key()
        store = Materialized("s", caching=self.is_cached)
        counts = grouped if self.windows is None else grouped.windowed_by(self.windows)
        counts.count(store=store).to_stream().to("out")
        return builder.build()


def count_store() -> StoreBuilder:
    """Return a builder for a key-value store of counts."""
    return stores.key_value("s", value=serdes.LONG)


def cached_store() -> StoreBuilder:
    """Return a builder for a cached key-value store of counts."""
    return stores.key_value("s", value=serdes.LONG, caching=True)


def window_store() -> StoreBuilder:
    """Return a builder for a window store of counts."""
    return stores.window("s", value=serdes.LONG, retention_ms=600_000, window_size_ms=WINDOW_MS)


def session_store() -> StoreBuilder:
    """Return a builder for a session store of counts."""
    return stores.session("s", value=serdes.LONG, retention_ms=600_000)


CASES = {
    "count, 12,500 keys": Case(12_500, Count, count_store),
    "count, 125,000 keys": Case(125_000, Count, count_store),
    "count, 1 million keys": Case(1_000_000, Count, count_store),
    "count, 12,500 keys, cached": Case(12_500, CachedCount, cached_store),
    "count, 125,000 keys, cached": Case(125_000, CachedCount, cached_store),
    "tumbling window of a minute, 1,000 keys": Case(1_000, CountByWindow, window_store),
    "session window, 1,000 keys": Case(1_000, CountBySession, session_store),
}

_TUMBLING = TimeWindows(size_ms=WINDOW_MS)

BUILDER_CASES = {
    f"StreamsBuilder: count, {name}1,000 keys{', cached' if is_cached else ''}": BuilderCase(windows, is_cached)
    for name, windows in {
        "": None,
        "tumbling windows of a minute, ": _TUMBLING,
        "four hopping windows of a minute, ": replace(_TUMBLING, advance_ms=WINDOW_MS // 4),
        "sliding windows of 5 s, ": SlidingWindows(difference_ms=5_000),
        "sessions, ": SessionWindows(gap_ms=GAP_MS),
    }.items()
    for is_cached in (False, True)
}

#: Test driver cases: (name in ``OracleRunner``, case).
DRIVER_CASES = {
    "count, 100,000 keys": ("count", Case(100_000, Count, count_store)),
    "count, 1 million keys": ("count", Case(1_000_000, Count, count_store)),
    "tumbling window of a minute, 1,000 keys": ("tumbling", Case(1_000, CountByWindow, window_store)),
    "session window, 1,000 keys": ("session", Case(1_000, CountBySession, session_store)),
}


class Input:
    """Generates batches of records with random 8-byte keys."""

    def __init__(self, keys: int) -> None:
        self._keys, self._rng, self._offset = keys, random.Random(1), 0

    def fill(self) -> Iterator[Any]:
        """Yield batches that together contain each key once."""
        for first in range(0, self._keys, COMMIT_RECORDS):
            yield self._batch(range(first, min(first + COMMIT_RECORDS, self._keys)))

    def batch(self) -> Any:
        """Return a batch with random keys."""
        return self._batch([self._rng.randrange(self._keys) for _ in range(COMMIT_RECORDS)])

    def _batch(self, numbers: Any) -> Any:
        offsets = range(self._offset, self._offset + len(numbers))
        self._offset += len(numbers)
        columns = {
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([offset * STEP_MS for offset in offsets], pa.int64()),
            "key": pa.array(list(map(struct.Struct(">Q").pack, numbers)), pa.binary()),
            "value": pa.array([VALUE] * len(numbers), pa.binary()),
        }
        return pa.record_batch(columns)


def create_task(case: Case | BuilderCase) -> StreamTask:
    """Return a task that keeps its pages in memory."""
    pages: dict[str, MemoryPages] = {}

    def pages_of(store: StateStore) -> MemoryPages:
        return pages.setdefault(store.name, MemoryPages())

    runtime = TaskRuntime(clock=lambda: 0, pages=pages_of, commit=int, rollback=int)
    config = ApplicationConfig(page_bytes=65_536, page_memory_bytes=1 << 30)
    task = case.build().subtopology(0).task(0, config, runtime)
    task.initialize()
    return task


def process_batch(task: StreamTask, batch: Any) -> int:
    """Process a batch, commit, and return the number of output records."""
    task.add_columns(PARTITION, batch)
    task.run()
    task.commit()
    return int(task.take_output().to_arrow().num_rows)


def measure_task(case: Case | BuilderCase) -> float:
    """Return the CPU time per record of a task with filled stores, in microseconds."""
    inputs, task = Input(case.keys), create_task(case)
    for batch in inputs.fill():
        process_batch(task, batch)
    batches = [inputs.batch() for _ in range(COMMITS + 1)]
    process_batch(task, batches.pop(0))
    expected: list[int | None] = [None] * COMMITS  # the number of changed windows is not computed
    if isinstance(case, Case):
        is_cached = case.processor is CachedCount
        expected = [len(batch.column("key").unique()) if is_cached else COMMIT_RECORDS for batch in batches]
    started = time.process_time()
    for batch, count in zip(batches, expected, strict=True):
        if (written := process_batch(task, batch)) != count and count is not None:
            raise RuntimeError(f"expected {count} output records, got {written}")
    used = time.process_time() - started
    task.close()
    return used / (COMMITS * COMMIT_RECORDS) * 1e6


def measure_driver(case: Case) -> float:
    """Return the throughput of zkconsumer's test driver without output, in records per second."""
    rng = random.Random(1)
    pack = struct.Struct(">Q").pack
    with TopologyTestDriver(case.build(has_output=False)) as driver:
        topic = driver.create_input_topic("in")
        started = time.perf_counter()
        for number in range(DRIVER_RECORDS):
            topic.pipe_input(pack(rng.randrange(case.keys)), b"", number * STEP_MS)
        return DRIVER_RECORDS / (time.perf_counter() - started)


def measure_jvm(oracle: Oracle, kind: str, case: Case) -> float:
    """Return the throughput of the Kafka Streams test driver, in records per second."""
    [answer] = oracle.send([{"bench": kind, "keys": case.keys, "records": DRIVER_RECORDS}])
    return float(answer["rate"])


def main() -> None:
    """Run all cases alternately, and write the medians to ``bench/results``."""
    parser = argparse.ArgumentParser("bench.topology", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs per case (default: %(default)s)")
    parser.add_argument("--only", default="", help="run only the task cases whose name contains this text")
    options = parser.parse_args()
    runs: dict[str, list[float]] = {}
    for _ in range(options.runs):
        for name, case in {**CASES, **BUILDER_CASES}.items():
            if options.only in name:
                runs.setdefault(name, []).append(measure_task(case))
                print(f"{name}: {runs[name][-1]:.2f} µs/record", file=sys.stderr, flush=True)
    rows = [(name, f"{statistics.median(figures):.2f}") for name, figures in runs.items()]
    print(grid(("CPU time per record", "µs"), rows))
    if options.only:
        return
    (FOLDER / "topology.rst").write_text(grid(("CPU time per record, one task, warm", "µs"), rows))
    rates: dict[str, list[tuple[float, float]]] = {}
    with Oracle() as oracle:
        for _ in range(options.runs):
            for name, (kind, case) in DRIVER_CASES.items():
                rates.setdefault(name, []).append((measure_driver(case), measure_jvm(oracle, kind, case)))
    medians = {name: map(statistics.median, zip(*found, strict=True)) for name, found in rates.items()}
    rows = [(name, *(f"{rate / 1000:,.0f}" for rate in found)) for name, found in medians.items()]
    header = ("thousand records/s", "zkconsumer", "Kafka Streams")
    (FOLDER / "topology-drivers.rst").write_text(grid(header, rows))
    print(grid(header, rows))


if __name__ == "__main__":
    main()
