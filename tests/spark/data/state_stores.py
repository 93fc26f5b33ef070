"""A topology with stores of all kinds, whose state file is stored here, see ``README.rst``: ``python state_stores.py
target``.

It runs with any version of zkconsumer that has topologies, so it uses only public names.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.stores import StoreBuilder, ValueAndTimestamp, Windowed

CONFIG = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.LONG)

#: Numbers of the records that the application has processed when the file is stored, and of those that follow.
STORED, CONTINUED = range(900), range(900, 1_000)

KEYS = [f"key-{number:03}" for number in range(300)]

#: Milliseconds from one record to the next one, of which every tenth is late, and retention time of the windows.
STEP_MS, LATE_MS, RETENTION_MS = 300, 20_000, 120_000


class UpdateStores(Processor):
    """Changes all stores of a task. Some entries are deleted, some expire, and some records are late."""

    def init(self, context: ProcessorContext) -> None:
        """Get the stores."""
        self._stores = {builder.name: context.get_state_store(builder.name) for builder in build_stores()}

    def process(self, record: Record) -> None:
        """Change each store once."""
        key, number, time = record.key, record.value, record.timestamp
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
        stores.timestamped_key_value("times", text, serdes.DOUBLE),
        stores.versioned_key_value("versions", text, number, history_ms=kept),
        stores.window("windows", text, number, retention_ms=kept, window_size_ms=size),
        stores.window("duplicates", serdes.INTEGER, retention_ms=kept, window_size_ms=size, retain_duplicates=True),
        stores.timestamped_window("timed_windows", text, number, retention_ms=kept, window_size_ms=size),
        stores.session("sessions", text, number, retention_ms=kept),
    ]


def build_topology() -> Topology:
    """Return a topology with the stores, and a global store."""
    names = stores.key_value("names", serdes.STRING, serdes.LONG, logging=False)
    topology = Topology().add_source("source", "events")
    topology.add_processor("update", UpdateStores, "source", stores=build_stores())
    return topology.add_global_store(names, "names_source", "names", "names_update", UpdateNames)


def process_records(driver: TopologyTestDriver, numbers: range) -> None:
    """Write records to both topics."""
    events, names = driver.create_input_topic("events"), driver.create_input_topic("names")
    for number in numbers:
        key, time = KEYS[number * 7 % len(KEYS)], LATE_MS + STEP_MS * number
        events.pipe_input(key, number, time - LATE_MS if number % 10 == 9 else time)
        names.pipe_input(key, number)


def read_stores(driver: TopologyTestDriver) -> Any:
    """Return the contents of all stores, as JSON."""
    found: Any = driver.get_all_state_stores()
    names = ("numbers", "documents", "times", "windows", "duplicates", "timed_windows", "names")
    contents: dict[str, Any] = {name: list(found[name].all()) for name in names}
    contents["sessions"] = list(found["sessions"].fetch_keys())
    times = (None, 200_000, 240_000, 270_000)
    contents["versions"] = [[found["versions"].get(key, time) for time in times] for key in KEYS]
    return json.loads(json.dumps(contents, default=bytes.decode))


def main(target: Path) -> None:
    """Write the state file, and the contents of the stores then and after further records."""
    target.mkdir(parents=True)
    path = target / "state"
    contents = {}
    for stage, numbers in (("stored", STORED), ("continued", CONTINUED)):
        with TopologyTestDriver(build_topology(), CONFIG, state_file=path) as driver:
            process_records(driver, numbers)
            contents[stage] = read_stores(driver)
        if stage == "stored":
            with path.open("rb") as file, gzip.open(target / "state.gz", "wb") as compressed:
                shutil.copyfileobj(file, compressed)
    path.unlink()
    (target / "contents.json.gz").write_bytes(gzip.compress(json.dumps(contents).encode()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
