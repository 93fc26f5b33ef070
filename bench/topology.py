"""Throughput of a task of a topology: ``python -m bench.topology``.

One process on one core, records in memory whose keys are bytes, commits every 100,000 records. Beside it: the same
processors in the JVM's ``TopologyTestDriver`` with stores in memory, which commits after each record, and a loop with a
dictionary, which is the limit of what Python can do.
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
    StreamTask,
    TaskIO,
    Topology,
    serdes,
    stores,
)
from zkconsumer.topology.stores import MemoryPages, StateStore, StoreBuilder, Windowed

RECORDS, COMMIT_RECORDS, RUNS = 1_000_000, 100_000, 5
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

    io = TaskIO(lambda: 0, pages_of, lambda _record: None)
    task = StreamTask("0_0", topology.nodes.values(), topology.stores, {PARTITION: "src"}, ApplicationConfig(), io)
    task.initialize()
    started = time.perf_counter()
    for first in range(0, len(inputs), COMMIT_RECORDS):
        task.add_records(PARTITION, inputs[first : first + COMMIT_RECORDS])
        while task.process():
            pass
        task.commit()
    return len(inputs) / (time.perf_counter() - started)


def run_dictionary(inputs: list[SourceRecord]) -> float:
    """Return records per second of a loop that counts in a dictionary."""
    counts: dict[bytes | None, int] = {}
    started = time.perf_counter()
    for record in inputs:
        counts[record.key] = counts.get(record.key, 0) + 1
    return len(inputs) / (time.perf_counter() - started)


def main() -> None:
    """Run all cases alternately, and write the medians to ``bench/results/topology.rst``."""
    rows = []
    with Oracle() as oracle:
        for case, (keys, _, _) in CASES.items():
            inputs = records(keys)
            rates: dict[str, list[float]] = {"task": [], "jvm": [], "dict": []}
            for _ in range(RUNS):
                rates["task"].append(run_task(case, inputs))
                [answer] = oracle.ask(
                    [{"bench": case.split(",")[0].split(" ")[0], "keys": keys, "records": RECORDS // 5}]
                )
                rates["jvm"].append(answer["rate"])
                rates["dict"].append(run_dictionary(inputs))
            medians = [statistics.median(values) for values in rates.values()]
            rows.append((case, *(f"{rate / 1000:,.0f}" for rate in medians)))
            print(rows[-1], flush=True)
    header = ("thousand records/s, one core", "zkconsumer", "JVM's TopologyTestDriver", "Python dictionary")
    (FOLDER / "topology.rst").write_text(grid(header, rows))


if __name__ == "__main__":
    main()
