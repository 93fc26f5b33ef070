"""A topology with stores of all kinds, and its records; see ``README.rst``.

It runs with any version of zkconsumer that has topologies, so it uses only public names. Checkpoints contain the names
of functions and classes with their module, so this module must be imported as ``state_stores``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.stores import StoreBuilder, ValueAndTimestamp, Windowed

#: Longer than any checkpoint is kept, in milliseconds.
IDLE_MS = 100 * 365 * 86_400_000

#: A task waits until both of its topics have records, so the order of the records does not depend on batches.
CONFIG = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.LONG, max_task_idle_ms=IDLE_MS)

#: Number of partitions by topic, without the prefix of its name. All records of a key are in the same partition.
TOPICS = {"events": 2, "corrections": 2, "names": 1, "output": 1}

#: Number of partitions of the topics from which tasks read.
PARTITIONS = 2

#: Number of events per partition in a batch of ``streams``.
PER_BATCH = 200

#: Numbers of the records that the application has processed when the file is stored, and of those that follow.
STORED, CONTINUED = range(900), range(900, 1_000)

#: Numbers of the corrections. The last ones wait until the clock of the driver is at ``IDLE_MS``.
CORRECTIONS = range(1_200)

KEYS = [f"key-{number:03}" for number in range(300)]

#: Milliseconds from one record to the next one, of which every tenth is late, and retention time of the windows.
STEP_MS, LATE_MS, RETENTION_MS = 300, 20_000, 120_000

#: Interval of the wall-clock punctuator.
CLOCK_MS = 60_000


class InputRecord(NamedTuple):
    """A record of a topic whose name has the prefix of the application."""

    topic: str
    key: str
    value: int | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def partition(self) -> int:
        """The partition of the record. The topic ``names`` has only one."""
        return KEYS.index(self.key) % TOPICS[self.topic]


class UpdateStores(Processor):
    """Changes all stores of a task. Some entries are deleted, some expire, and some records are late.

    The output for each record contains what the stores contained before.
    """

    def init(self, context: ProcessorContext) -> None:
        """Get the stores, and create schedules."""
        self._context = context
        self._stores = {builder.name: context.get_state_store(builder.name) for builder in build_stores()}
        self._names = context.get_state_store("names")
        self._records = context.remember("records", {"count": 0})
        context.schedule(STEP_MS * 50, PunctuationType.STREAM_TIME, self.report_stream_time)
        context.schedule(CLOCK_MS, PunctuationType.WALL_CLOCK_TIME, self.report_clock)

    def process(self, record: Record) -> None:
        """Change each store once."""
        number = record.value or 0
        self._records.value = {"count": self._records.value["count"] + 1}
        before = self._read(record)
        self._write(record.key, number, record.timestamp)
        self._context.forward(record.with_value(before))
        if number == 100:
            self._context.schedule(STEP_MS * 70, PunctuationType.STREAM_TIME, self.report_again)
        if number == 850:
            self._context.schedules()["report_again", 0].cancel()
        self._hold()

    def report_stream_time(self, now_ms: int) -> None:
        """Write the number of records so far."""
        self._report("stream time", now_ms)

    def report_again(self, now_ms: int) -> None:
        """Write the number of records so far."""
        self._report("again", now_ms)

    def report_clock(self, now_ms: int) -> None:
        """Write the number of records so far."""
        self._report("clock", now_ms)

    def _report(self, key: str, now_ms: int) -> None:
        self._context.forward(Record(key, self._records.value, now_ms))

    def _read(self, record: Record) -> dict[str, Any]:
        found, key = self._stores, record.key
        return {
            "record": record.value,
            "headers": [(name, None if value is None else value.decode()) for name, value in record.headers],
            "records": self._records.value["count"],
            "numbers": found["numbers"].get(key),
            "documents": found["documents"].get(key.encode()),
            "times": found["times"].get(key),
            "versions": found["versions"].get(key),
            "windows": list(found["windows"].fetch_times(key, 0, record.timestamp)),
            "duplicates": len(list(found["duplicates"].fetch_times((record.value or 0) % 5, 0, record.timestamp))),
            "timed_windows": list(found["timed_windows"].fetch_times(key, 0, record.timestamp)),
            "sessions": list(found["sessions"].fetch(key)),
            "names": self._names.get(key),
        }

    def _write(self, key: str, number: int, time: int) -> None:
        is_deleted = number % 7 == 3
        value = None if is_deleted else number
        self._stores["numbers"].put(key, value)
        self._stores["documents"].put(key.encode(), {"number": number, "tags": [key, None, True]})
        self._stores["times"].put(key, None if is_deleted else ValueAndTimestamp(number / 4, time))
        self._stores["versions"].put(key, value, time)
        self._stores["windows"].put(key, value, time - time % 50_000)
        self._stores["duplicates"].put(number % 5, b"%d" % number, time - time % 50_000)
        self._stores["timed_windows"].put(key, ValueAndTimestamp(number, time), time - time % 50_000)
        self._stores["sessions"].put(Windowed(key, time - 5, time), number)
        if is_deleted:
            self._stores["sessions"].remove(Windowed(key, time - 5, time))

    def _hold(self) -> None:
        """Block in batch 1 of the job ``streams`` while it is to be killed."""
        metadata = self._context.record_metadata
        last = (f"{self._context.application_id}-events", 0, 2 * PER_BATCH - 1)
        if "JOB_FOLDER" in os.environ and metadata == last:
            from jobs import write_line

            write_line(os.environ["JOB_FOLDER"], ["update", 1])


class UpdateNames(Processor):
    """Changes the global store."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._names = context.get_state_store("names")

    def process(self, record: Record) -> None:
        """Set the number of a name."""
        self._names.put(record.key, record.value)


def build_stores() -> list[StoreBuilder]:
    """Return a store of each kind."""
    text, number = serdes.STRING, serdes.LONG
    kept, size = RETENTION_MS, 50_000
    return [
        stores.key_value("numbers", text, number),
        stores.key_value("documents", value=serdes.JSON),
        stores.timestamped_key_value("times", text, serdes.DOUBLE, caching=True),
        stores.versioned_key_value("versions", text, number, history_ms=kept),
        stores.window("windows", text, number, retention_ms=kept, window_size_ms=size),
        stores.window("duplicates", serdes.INTEGER, retention_ms=kept, window_size_ms=size, retain_duplicates=True),
        stores.timestamped_window("timed_windows", text, number, retention_ms=kept, window_size_ms=size),
        stores.session("sessions", text, number, retention_ms=kept),
    ]


def build_topology(prefix: str = "old") -> Topology:
    """Return a topology with the stores, and a global store; its topics have a prefix."""
    names = stores.key_value("names", serdes.STRING, serdes.LONG, logging=False)
    topology = Topology().add_source("events", f"{prefix}-events").add_source("corrections", f"{prefix}-corrections")
    topology.add_processor("update", UpdateStores, "events", "corrections", stores=build_stores())
    topology.add_sink("output", f"{prefix}-output", "update", value_serializer=serdes.JSON.serialize)
    return topology.add_global_store(names, "names_source", f"{prefix}-names", "names_update", UpdateNames)


def list_names(numbers: range) -> list[InputRecord]:
    """Return the records of the global store topic."""
    return [InputRecord("names", KEYS[number % len(KEYS)], number, LATE_MS + number) for number in numbers]


def list_corrections() -> list[InputRecord]:
    """Return corrections, whose timestamps are between those of the events, and after them."""
    found = []
    for number in (number for number in CORRECTIONS if number % 40 in (20, 21)):
        key, time = KEYS[number % len(KEYS)], LATE_MS + STEP_MS * number + 7
        value = None if number % 400 in (20, 21) else -number
        headers = ("number", b"%d" % number), ("empty", None)
        found.append(InputRecord("corrections", key, value, time, headers))
    return found


def list_events(numbers: range) -> list[InputRecord]:
    """Return events, of which every tenth is late."""
    found = []
    for number in numbers:
        time = LATE_MS + STEP_MS * number
        key = KEYS[number * 7 % len(KEYS)]
        found.append(InputRecord("events", key, number, time - LATE_MS if number % 10 == 9 else time))
    return found


def list_stored(partition: int | None = None) -> list[InputRecord]:
    """Return the records that the application has processed when the file is stored.

    Args:
        partition: partition of the events and corrections; None for all partitions.
    """
    records = [*list_corrections(), *list_events(STORED)]
    return [*list_names(STORED), *(one for one in records if partition in (None, one.partition))]


def process_records(driver: TopologyTestDriver, records: Iterable[InputRecord], prefix: str = "old") -> None:
    """Write records to the topics."""
    topics = {name: driver.create_input_topic(f"{prefix}-{name}") for name in ("events", "corrections", "names")}
    for record in records:
        topics[record.topic].pipe_input(record.key, record.value, record.timestamp, record.headers)


def store_records(driver: TopologyTestDriver) -> None:
    """Process the records before the state file is saved."""
    process_records(driver, list_stored())
    driver.advance_wall_clock_time(CLOCK_MS // 2)


def continue_records(driver: TopologyTestDriver) -> None:
    """Process what follows: the waiting corrections, when the stored schedules and deadlines are due, and events."""
    driver.advance_wall_clock_time(CLOCK_MS // 2)
    driver.advance_wall_clock_time(IDLE_MS - CLOCK_MS)
    process_records(driver, [*list_names(CONTINUED), *list_events(CONTINUED)])
    driver.advance_wall_clock_time(IDLE_MS)


def read_stores(driver: TopologyTestDriver) -> Any:
    """Return the contents of all stores, as JSON."""
    found: Any = driver.get_all_state_stores()
    names = ("numbers", "documents", "times", "windows", "duplicates", "timed_windows", "names")
    contents: dict[str, Any] = {name: list(found[name].all()) for name in names}
    contents["sessions"] = list(found["sessions"].fetch_keys())
    times = (None, 200_000, 240_000, 270_000)
    contents["versions"] = [[found["versions"].get(key, time) for time in times] for key in KEYS]
    return json.loads(json.dumps(contents, default=bytes.decode))


def read_output(driver: TopologyTestDriver, prefix: str = "old") -> list[Any]:
    """Return key, value and timestamp of the records that were not read before."""
    output = driver.create_output_topic(f"{prefix}-output", value_deserializer=serdes.JSON.deserialize)
    return [[record.key, record.value, record.timestamp] for record in output.read_records()]
