"""Throughput of a task of a topology: ``python -m bench.topology``.

One process on one core, records in memory whose keys are bytes, commits every 100,000 records. The limit of what Python
can do is a loop with a dictionary that counts the same. The test drivers, of this package and of the JVM, serialize
each record and commit after it.
"""

from __future__ import annotations

import random
import statistics
import struct
import time
from collections.abc import Callable

from bench.report import FOLDER, grid
from tests.oracle.oracle import Oracle
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    SourceRecord,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.stores import MemoryPages, StateStore, StoreBuilder, Windowed

RECORDS, COMMIT_RECORDS, DRIVER_RECORDS, RUNS = 1_000_000, 100_000, 50_000, 5
PARTITION = TopicPartition("in", 0)
WINDOW_MS, GAP_MS = 60_000, 30_000

#: Milliseconds of event time between two records: a window has 6,000 records.
STEP_MS = 10


class Count(Processor):
    """Counts the records of each key."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._store = context.get_state_store("s")

    def process(self, record: Record) -> None:
        """Count a record."""
        self._store.put(record.key, (self._store.get(record.key) or 0) + 1)


class CountByWindow(Count):
    """Counts the records of each key and minute."""

    def process(self, record: Record) -> None:
        """Count a record."""
        start = record.timestamp - record.timestamp % WINDOW_MS
        self._store.put(record.key, (self._store.fetch(record.key, start) or 0) + 1, start)


class CountBySession(Count):
    """Counts the records of each key and session."""

    def process(self, record: Record) -> None:
        """Count a record."""
        start = end = record.timestamp
        count = 1
        for session, earlier in self._store.find_sessions(record.key, start - GAP_MS, end + GAP_MS):
            start, end, count = min(start, session.start), max(end, session.end), count + earlier
            self._store.remove(session)
        self._store.put(Windowed(record.key, start, end), count)


CASES: dict[str, tuple[int, type[Processor], Callable[[], StoreBuilder]]] = {
    "count, 100,000 keys": (100_000, Count, lambda: stores.key_value("s", value=serdes.LONG)),
    "count, 1 million keys": (1_000_000, Count, lambda: stores.key_value("s", value=serdes.LONG)),
    "tumbling window of a minute, 1,000 keys": (
        1_000,
        CountByWindow,
        lambda: stores.window("s", value=serdes.LONG, retention_ms=600_000, window_size_ms=WINDOW_MS),
    ),
    "session window, 1,000 keys": (
        1_000,
        CountBySession,
        lambda: stores.session("s", value=serdes.LONG, retention_ms=600_000),
    ),
}


def records(keys: int) -> list[SourceRecord]:
    """Return records with random keys of eight bytes."""
    rng = random.Random(1)
    pack = struct.Struct(">Q").pack
    return [SourceRecord("in", 0, n, n * STEP_MS, pack(rng.randrange(keys)), b"") for n in range(RECORDS)]


def run_task(case: str, inputs: list[SourceRecord]) -> float:
    """Return records per second of a task."""
    _, processor, store = CASES[case]
    topology = Topology().add_source("src", "in").add_processor("p", processor, "src", stores=[store()])
    pages: dict[str, MemoryPages] = {}

    def pages_of(store: StateStore) -> MemoryPages:
        return pages.setdefault(store.name, MemoryPages())

    runtime = TaskRuntime(clock=lambda: 0, pages=pages_of, commit=int, rollback=int)
    task = topology.combine().task(0, ApplicationConfig(), runtime)
    task.initialize()
    started = time.perf_counter()
    for first in range(0, len(inputs), COMMIT_RECORDS):
        task.add_records(PARTITION, inputs[first : first + COMMIT_RECORDS])
        while task.process():
            pass
        task.commit()
    return len(inputs) / (time.perf_counter() - started)


def run_driver(case: str, keys: int) -> float:
    """Return records per second of the test driver, which commits after each record."""
    _, processor, store = CASES[case]
    topology = Topology().add_source("src", "in").add_processor("p", processor, "src", stores=[store()])
    rng = random.Random(1)
    pack = struct.Struct(">Q").pack
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in")
        started = time.perf_counter()
        for number in range(DRIVER_RECORDS):
            topic.pipe_input(pack(rng.randrange(keys)), b"", number * STEP_MS)
        return DRIVER_RECORDS / (time.perf_counter() - started)


def count_in_dictionary(inputs: list[SourceRecord]) -> None:
    """Count the records of each key."""
    counts: dict[bytes | None, int] = {}
    for record in inputs:
        counts[record.key] = counts.get(record.key, 0) + 1


def count_windows_in_dictionary(inputs: list[SourceRecord]) -> None:
    """Count the records of each key and minute."""
    counts: dict[tuple[bytes | None, int], int] = {}
    for record in inputs:
        window = record.key, record.timestamp - record.timestamp % WINDOW_MS
        counts[window] = counts.get(window, 0) + 1


def count_sessions_in_dictionary(inputs: list[SourceRecord]) -> None:
    """Count the records of each key and session; the records are in the order of their times."""
    sessions: dict[bytes | None, list[list[int]]] = {}
    for record in inputs:
        of_key = sessions.setdefault(record.key, [])
        if of_key and record.timestamp <= of_key[-1][1] + GAP_MS:
            of_key[-1][1] = record.timestamp
            of_key[-1][2] += 1
        else:
            of_key.append([record.timestamp, record.timestamp, 1])


def run_limit(case: str, inputs: list[SourceRecord]) -> float:
    """Return records per second of a loop with a dictionary."""
    count = {Count: count_in_dictionary, CountByWindow: count_windows_in_dictionary}.get(CASES[case][1])
    started = time.perf_counter()
    (count or count_sessions_in_dictionary)(inputs)
    return len(inputs) / (time.perf_counter() - started)


def run_jvm(oracle: Oracle, case: str, keys: int) -> float:
    """Return records per second of the JVM's test driver."""
    kind = case.split(",")[0].split(" ")[0]
    [answer] = oracle.send([{"bench": kind, "keys": keys, "records": DRIVER_RECORDS}])
    return float(answer["rate"])


def main() -> None:
    """Run all cases alternately, and write the medians to ``bench/results/topology.rst``."""
    rows = []
    with Oracle() as oracle:
        for case, (keys, _, _) in CASES.items():
            inputs = records(keys)
            runs = [
                (
                    run_task(case, inputs),
                    run_limit(case, inputs),
                    run_driver(case, keys),
                    run_jvm(oracle, case, keys),
                )
                for _ in range(RUNS)
            ]
            medians = [statistics.median(rates) for rates in zip(*runs, strict=True)]
            rows.append((case, *(f"{rate / 1000:,.0f}" for rate in medians)))
            print(*rows[-1], sep="  ", flush=True)
    header = ("thousand records/s, one core", "task", "dictionary", "test driver", "JVM's test driver")
    (FOLDER / "topology.rst").write_text(grid(header, rows))


if __name__ == "__main__":
    main()
