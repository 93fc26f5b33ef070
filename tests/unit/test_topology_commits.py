"""Commits of a task: all of its stores contain the same commit, whatever fails."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    Record,
    SourceRecord,
    StreamTask,
    TaskRuntime,
    Topology,
    stores,
)
from zkconsumer.topology.stores import MemoryPages, PageStore, StateFile, StateStore

PARTITION = TopicPartition("in", 0)


class FailingFile(StateFile):
    """Fails once: at the n-th write to a store, or at the commit."""

    failing: str | None = None
    writes = 1
    error: BaseException = OSError("no space left")

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        if values and values[0] == self.failing and not statement.startswith("SELECT"):
            self.writes -= 1
            if self.writes == 0:
                raise self.error
        return super().execute(statement, values)

    def commit(self) -> None:
        if self.failing == "commit":
            raise self.error
        super().commit()


class Apply(Processor):
    """Calls a function of the test for each record."""

    def __init__(self, change: Callable[[dict[str, Any]], object]) -> None:
        self._change = change

    def init(self, context: Any) -> None:
        self._stores = {name: context.get_state_store(name) for name in "abc"}

    def process(self, _record: Record) -> None:
        self._change(self._stores)


class Runner:
    """A task with the stores ``a``, ``b`` and ``c``, which can be built again as a runtime does after a failure."""

    def __init__(self, path: Path, persistent: str) -> None:
        self._path, self._persistent = path, persistent
        self._memory: dict[str, MemoryPages] = {}
        self.file = FailingFile(path)
        self.task = self._new_task()

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Process a record that changes stores."""
        self._change = change
        self._offset += 1
        self.task.add_records(PARTITION, [SourceRecord("in", 0, self._offset, 0, b"", b"")])
        assert self.task.process()

    def put(self, value: bytes) -> None:
        """Put a value into all stores."""
        self.change(lambda opened: [store.put(b"key", value) for store in opened.values()])

    def contents(self) -> dict[str, dict[bytes, bytes]]:
        """Return the entries of all stores."""
        return {name: dict(store.all()) for name, store in self.task.stores.items()}  # type: ignore[attr-defined]

    def rebuild(self) -> None:
        """Continue with another task, as after a failure."""
        self.task.close()
        self.file.failing = None
        self.task = self._new_task()

    def reopen(self) -> None:
        """Continue with another task and the file, as after a restart."""
        self.task.close()
        self.file.close()
        self._memory = {}
        self.file = FailingFile(self._path)
        self.task = self._new_task()

    def _new_task(self) -> StreamTask:
        self._offset = -1
        builders = [stores.key_value(name, persistent=name in self._persistent) for name in "abc"]
        topology = Topology().add_source("src", "in")
        topology.add_processor("p", lambda: Apply(lambda opened: self._change(opened)), "src", stores=builders)
        runtime = TaskRuntime(
            clock=lambda: 0,
            pages=self._pages,
            commit=lambda: self.file.commit(),
            rollback=lambda: self.file.rollback(),
        )
        config = ApplicationConfig()
        task = topology.combine().task(0, config, runtime)
        task.initialize()
        return task

    def _pages(self, store: StateStore) -> PageStore:
        if store.is_persistent:
            return self.file.pages(store.name)
        return self._memory.setdefault(store.name, MemoryPages())


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize(
    ("persistent", "failing"),
    [(names, failing) for names in ("abc", "ab", "bc", "ac", "b") for failing in (*names, "commit")],
)
def test_failed_commit_changes_no_store(tmp_path: Path, persistent: str, failing: str, error: BaseException) -> None:
    runner = Runner(tmp_path / "state", persistent)
    runner.put(b"committed")
    runner.task.commit()
    runner.put(b"uncommitted")
    runner.file.failing, runner.file.error = failing, error

    with pytest.raises((StreamsError, KeyboardInterrupt)):
        runner.task.commit()

    committed = {name: {b"key": b"committed"} for name in "abc"}
    assert runner.contents() == committed
    runner.rebuild()
    assert runner.contents() == committed
    runner.change(lambda opened: [store.put(b"other", b"1") for store in opened.values()])
    runner.task.commit()
    assert runner.contents() == {name: {b"key": b"committed", b"other": b"1"} for name in "abc"}
    runner.reopen()
    expected = {b"key": b"committed", b"other": b"1"}
    assert runner.contents() == {name: expected if name in persistent else {} for name in "abc"}


def test_commits_that_fail_anywhere_equal_model(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    runner = Runner(tmp_path / "state", "ab")
    committed: dict[str, dict[bytes, bytes]] = {name: {} for name in "abc"}
    current: dict[str, dict[bytes, bytes]] = {name: {} for name in "abc"}

    def change(opened: dict[str, Any]) -> None:
        for _ in range(rng.randrange(300)):
            name, key, value = rng.choice("abc"), b"%03d" % rng.randrange(400), bytes(rng.randrange(400))
            if rng.random() < 0.3:
                opened[name].delete(key)
                current[name].pop(key, None)
            else:
                opened[name].put(key, value)
                current[name][key] = value

    for _ in range(150):
        runner.change(change)
        assert runner.contents() == current
        match rng.choice(["commit", "fail", "fail", "reopen", "continue"]):
            case "commit":
                runner.task.commit()
                committed = {name: dict(entries) for name, entries in current.items()}
            case "fail":
                runner.file.failing, runner.file.writes = rng.choice(["a", "b", "commit"]), rng.randint(1, 12)
                try:
                    runner.task.commit()
                    committed = {name: dict(entries) for name, entries in current.items()}  # fewer writes than that
                except StreamsError:
                    current = {name: dict(entries) for name, entries in committed.items()}
                assert runner.contents() == current
                runner.rebuild()
            case "reopen":
                runner.reopen()
                committed["c"] = {}
                current = {name: dict(entries) for name, entries in committed.items()}
        assert runner.contents() == current
