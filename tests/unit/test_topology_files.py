"""Persistent stores in a file."""

from __future__ import annotations

import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from zkconsumer.errors import StreamsError
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
from zkconsumer.topology.stores import StateFile

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)

#: Writes records for ever, and prints the number of those whose commit has ended.
WRITER = """
import sys
from test_topology_files import TEXT, counting
from zkconsumer.topology import TopologyTestDriver
with TopologyTestDriver(counting(), TEXT, state_file=sys.argv[1]) as driver:
    words = driver.create_input_topic("in")
    for number in range(10**9):
        words.pipe_input(f"key-{number % 3000}", "x" * 30)
        print(number + 1, flush=True)
"""


class CountTwice(Processor):
    """Counts per key in two stores, and in one that is not persistent."""

    def init(self, context: ProcessorContext) -> None:
        self._stores = [context.get_state_store(name) for name in ("first", "second", "memory")]

    def process(self, record: Record) -> None:
        for store in self._stores:
            store.put(record.key, (store.get(record.key) or 0) + 1)
        if record.value == "bad":
            raise ValueError("bad value")


def counting() -> Topology:
    builders = [
        stores.key_value("first", serdes.STRING, serdes.LONG),
        stores.key_value("second", serdes.STRING, serdes.LONG),
        stores.key_value("memory", serdes.STRING, serdes.LONG, persistent=False),
    ]
    return Topology().add_source("src", "in").add_processor("count", CountTwice, "src", stores=builders)


def entries(driver: TopologyTestDriver, store: str) -> dict[str, int]:
    return dict(driver.get_state_store(store).all())


def test_persistent_stores_survive_close(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        driver.create_input_topic("in").pipe_key_values([("a", "x"), ("b", "x"), ("a", "x")])

    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        assert entries(driver, "first") == entries(driver, "second") == {"a": 2, "b": 1}
        assert entries(driver, "memory") == {}


def test_failed_record_does_not_change_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        words = driver.create_input_topic("in")
        words.pipe_input("a", "x")
        with pytest.raises(StreamsError, match="bad value"):
            words.pipe_input("a", "bad")

    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        assert entries(driver, "first") == entries(driver, "second") == {"a": 1}


@pytest.mark.timeout(60)
def test_kill_between_commits_leaves_stores_of_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "state"
    previous = 0
    for _ in range(5):
        written = _write_until_killed(path, records=random.randrange(1, 400))
        with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
            first = entries(driver, "first")
            assert first == entries(driver, "second")
            assert previous + written <= sum(first.values()) <= previous + written + 1
            previous = sum(first.values())


def _write_until_killed(path: Path, records: int) -> int:
    """Kill a writer after a number of records, and return how many commits it has reported."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as writer:
        assert writer.stdout is not None
        for _ in range(records):
            assert writer.stdout.readline()
        time.sleep(random.random() / 100)  # to hit any statement of the writer
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
    return records + sum(line.endswith("\n") for line in rest)


def test_file_in_use_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    driver = TopologyTestDriver(counting(), TEXT, state_file=path)

    with pytest.raises(StreamsError, match=f"state file {path} cannot be used: database is locked"):
        StateFile(path)

    driver.close()


def test_other_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("notes" * 1_000)

    with pytest.raises(StreamsError, match="cannot be used: file is not a database"):
        StateFile(path)
    with pytest.raises(StreamsError, match="missing/state cannot be used: unable to open"):
        StateFile(tmp_path / "missing" / "state")


def test_failed_init_releases_state_file(tmp_path: Path) -> None:
    class Failing(Processor):
        def init(self, _context: ProcessorContext) -> None:
            raise ValueError("no")

        def process(self, _record: Record) -> None:
            """Never called."""

    path = tmp_path / "state"
    with pytest.raises(StreamsError, match=r"init\(\) failed"):
        TopologyTestDriver(Topology().add_source("s", "in").add_processor("p", Failing, "s"), state_file=path)

    StateFile(path).close()


def test_pages_of_stores_are_separate(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    first, second = file.pages("first"), file.pages("second")
    first.write({1: b"one", 2: b"two", 3: None})
    second.write({1: b"other"})

    assert first.read((1, 2, 3)) == [b"one", b"two", None]
    assert second.read((1, 2, 3)) == [b"other", None, None]
    first.write({1: None})
    assert [*first.read((1, 2)), *second.read((1,))] == [None, b"two", b"other"]
    file.close()


# ---- corrupt files -------------------------------------------------------------------------------------------------


def written(path: Path) -> list[tuple[str, int, bytes]]:
    """Return store, id and data of all pages of a file with counts of 1,500 keys."""
    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        first = driver.get_state_store("first")
        first.put_all((f"key-{number:04}", number) for number in range(1_500))
        driver.create_input_topic("in").pipe_input("a", "x")
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT store, id, data FROM pages ORDER BY store, id").fetchall()


def change(path: Path, store: str, page_id: int, data: object) -> None:
    """Change a page of a file, but not its checksum."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE pages SET data = ? WHERE store = ? AND id = ?", (data, store, page_id))
        connection.commit()


def read(path: Path) -> None:
    """Read all pages of a file."""
    with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
        for store in ("first", "second"):
            entries(driver, store)


def test_each_changed_bit_is_found(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "state"
    for store, page_id, data in written(path):
        for _ in range(20):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            change(path, store, page_id, bytes(changed))
            what = f"page {page_id}" if page_id > 0 else "the directory"
            with pytest.raises(
                StreamsError,
                match=f"store '{store}': {what} in state file {path} is corrupt: checksum mismatch; restore it "
                "from a backup",
            ):
                read(path)
        change(path, store, page_id, data)
    read(path)


@pytest.mark.parametrize(("data", "kind"), [(None, "NoneType"), (5, "int"), ("text", "str"), (0.5, "float")])
@pytest.mark.parametrize("page_id", [0, -1, 1])
def test_page_that_is_no_blob_is_reported(tmp_path: Path, data: object, kind: str, page_id: int) -> None:
    path = tmp_path / "state"
    written(path)
    change(path, "second", page_id, data)

    what = f"page {page_id}" if page_id > 0 else "the directory"
    with pytest.raises(
        StreamsError, match=f"store 'second': {what} in state file {path} is corrupt: data must be a BLOB, got {kind};"
    ):
        read(path)


def test_page_of_other_store_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state"
    pages = {(store, page_id): data for store, page_id, data in written(path)}
    change(path, "first", 1, pages["second", 1])

    with pytest.raises(StreamsError, match="store 'first': page 1 in state file .* is corrupt: checksum mismatch"):
        read(path)


def test_malformed_database_names_remedy(tmp_path: Path) -> None:
    path = tmp_path / "state"
    written(path)
    data = bytearray(path.read_bytes())
    for start in range(4_096, len(data), 4_096):
        data[start : start + 64] = bytes(64)
    path.write_bytes(data)

    with pytest.raises(StreamsError, match=f"state file {path} cannot be used: .*malformed; restore it from a backup"):
        read(path)
