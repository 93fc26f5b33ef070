"""Tasks after errors: what is in the stores, what is delivered, and which error the caller gets."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    ErrorContext,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SourceRecord,
    StreamTask,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
)
from zkconsumer.topology.stores import MemoryPages, StateStore, StoreBuilder, StoreContext
from zkconsumer.topology.task import owners
from zkconsumer.topology.task.task_runtime import TaskLifecycle, TaskState

PARTITION = TopicPartition("in", 0)


class Keep(Processor):
    """Stores values, forwards them, and fails for the value ``boom``."""

    def init(self, context: ProcessorContext) -> None:
        self._context, self._store = context, context.get_state_store("s")

    def process(self, record: Record) -> None:
        self._store.put(record.key, record.value)
        self._context.forward(record)
        if record.value == "boom":
            raise RuntimeError("boom")


def readable(_topic: str, data: bytes | None) -> str:
    if data == b"bad":
        raise ValueError("unreadable")
    return (data or b"").decode()


def keeping() -> Topology:
    store = stores.key_value("s", serdes.STRING, serdes.STRING)
    topology = Topology().add_source("src", "in").add_processor("p", Keep, "src", stores=[store])
    return topology.add_sink("out", "out", "p")


CONFIG: dict[str, Any] = {
    "key_serde": serdes.STRING,
    "value_serde": serdes.Serde(serdes.STRING.serialize, readable),
}


def keeping_task(pages: MemoryPages | None = None, *, is_initialized: bool = True, **settings: Any) -> StreamTask:
    topology, pages = keeping(), MemoryPages() if pages is None else pages
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _store: pages, commit=int, rollback=int)
    config = ApplicationConfig(**CONFIG, **settings)
    task = topology.combine().task(0, config, runtime)
    if is_initialized:
        task.initialize()
    return task


def add(task: StreamTask, *values: bytes, first: int = 0) -> None:
    numbered = enumerate(values, first)
    task.add_records(PARTITION, [SourceRecord("in", 0, n, n, str(n).encode(), value) for n, value in numbered])


def run(task: StreamTask) -> None:
    """Process all records."""
    while task.process():
        pass


def stored(task: StreamTask) -> list[str]:
    return [value for _, value in task.stores["s"].all()]  # type: ignore[attr-defined]


# ---- records that cannot be deserialized -----------------------------------------------------------------------------


def test_unreadable_record_ends_task_at_last_commit() -> None:
    task = keeping_task()
    add(task, b"0", b"1", b"bad", b"3")
    assert task.process()
    task.commit()
    committed = task.committable()

    with pytest.raises(
        StreamsError,
        match="node 'src', topic in, partition 0, offset 2: .* ValueError: unreadable; check the key and value "
        "deserializers of the source, or the default serdes$",
    ):
        task.process()

    assert stored(task) == ["0"]
    assert committed == {PARTITION: 1}


def test_unreadable_first_record_ends_task() -> None:
    task = keeping_task()
    with pytest.raises(StreamsError, match="offset 0"):
        add(task, b"bad", b"1")

    with pytest.raises(StreamsError, match="process.. was called after the task failed"):
        task.process()


def rebuilt(task: StreamTask, pages: MemoryPages) -> StreamTask:
    task.close()
    return keeping_task(pages)


def test_records_since_commit_are_repeated_by_next_task() -> None:
    pages = MemoryPages()
    task = keeping_task(pages)
    values = [b"%d" % number for number in range(10)]
    values[5] = b"boom"
    add(task, *values)
    for _ in range(3):
        assert task.process()
    task.commit()
    committed = task.committable()[PARTITION]
    with pytest.raises(StreamsError, match="offset 5: RuntimeError: boom"):
        run(task)

    task = rebuilt(task, pages)
    values[5] = b"5"
    add(task, *values[committed:], first=committed)
    run(task)

    assert committed == 3
    assert stored(task) == [str(number) for number in range(10)]


def test_committable_offset_is_that_of_next_record() -> None:
    task = keeping_task(deserialization_handler=handlers.log_and_continue)
    assert task.committable() == {}
    add(task, b"0", b"bad", b"2", b"bad")
    assert task.committable() == {PARTITION: 0}
    for expected in (2, 3, 4):  # a record that is dropped before the next one is not repeated
        assert task.process()
        assert task.committable() == {PARTITION: expected}
    assert not task.process()


CALLS: dict[str, Callable[[StreamTask], object]] = {
    "process": lambda task: task.process(),
    "add_records": lambda task: task.add_records(PARTITION, []),
    "commit": lambda task: task.commit(),
    "committable": lambda task: task.committable(),
    "punctuate_stream_time": lambda task: task.punctuate_stream_time(),
    "punctuate_wall_clock": lambda task: task.punctuate_wall_clock(),
    "initialize": lambda task: task.initialize(),
    "run": lambda task: task.run(),
    "suspend": lambda task: task.suspend(),
    "resume": lambda task: task.resume(),
    "snapshot": lambda task: task.snapshot(),
    "add_columns": lambda task: task.add_columns(PARTITION, pa.record_batch({"offset": [1]})),
    "take_output": lambda task: task.take_output(),
    "update_lags": lambda task: task.update_lags(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("created", r"was called before initialize\(\)"),
        ("failed", r"was called after the task failed; close it and create a new task"),
        ("closed", r"was called after close\(\)"),
    ],
)
def test_call_in_wrong_state_is_rejected(call: str, moment: str, message: str) -> None:
    if (call, moment) == ("initialize", "created"):
        keeping_task(is_initialized=False).initialize()
        return
    task = keeping_task(is_initialized=moment != "created")
    if moment == "failed":
        add(task, b"boom")
        with pytest.raises(StreamsError, match="boom"):
            run(task)
    elif moment == "closed":
        task.close()

    with pytest.raises(StreamsError, match=rf"task 0_0: {call}\(\) {message}"):
        CALLS[call](task)
    task.close()
    task.close()


@pytest.mark.parametrize("idle_ms", [-1, 0, 50])
@pytest.mark.timeout(20)
def test_driver_stops_after_error(idle_ms: int) -> None:
    with TopologyTestDriver(keeping(), ApplicationConfig(**CONFIG, max_task_idle_ms=idle_ms)) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "good")
        with pytest.raises(StreamsError, match="unreadable"):
            topic.pipe_input("b", "bad")

        calls: list[Callable[[], None]] = [
            lambda: topic.pipe_input("c", "good"),
            lambda: driver.advance_wall_clock_time(1),
        ]
        for call in calls:
            with pytest.raises(
                StreamsError, match="was stopped by an earlier error .*offset 1: .*unreadable"
            ) as stopped:
                call()
            assert isinstance(stopped.value.__cause__, StreamsError)
        assert driver.create_output_topic("out").read_values() == ["good"]
        assert list(driver.get_state_store("s").all()) == [("a", "good")]


def test_extractor_must_return_integer() -> None:
    task = keeping_task(timestamp_extractor=lambda *_: "7")
    with pytest.raises(StreamsError) as failed:
        add(task, b"0")

    assert str(failed.value) == (
        "task 0_0, node 'src', topic in, partition 0, offset 0: timestamp extractor failed: the timestamp must be an "
        "integer in milliseconds, got '7'"
    )


@pytest.mark.parametrize("handler", [handlers.fail, handlers.log_and_continue])
def test_error_of_extractor_is_cause(handler: handlers.ErrorHandler) -> None:
    def extract(_record: SourceRecord, _key: Any, value: Any, _partition_time_ms: int) -> int:
        return int(value)

    task = keeping_task(timestamp_extractor=extract, deserialization_handler=handler)
    with pytest.raises(StreamsError, match="offset 0: timestamp extractor failed: ValueError: .*: 'x'$") as failed:
        add(task, b"x")

    assert isinstance(failed.value.__cause__, ValueError)
    assert traceback.extract_tb(failed.value.__cause__.__traceback__)[-1].name == "extract"


def test_dropped_record_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "zkconsumer")
    task = keeping_task(deserialization_handler=handlers.log_and_continue)
    add(task, b"bad", b"1")

    [message] = [record.getMessage() for record in caplog.records if "record_dropped" in record.getMessage()]
    for text in ("task='0_0'", "node='src'", "topic='in'", "partition=0", "offset=0", "ValueError: unreadable"):
        assert text in message


# ---- handlers that fail ----------------------------------------------------------------------------------------------


def failing_handler(_context: ErrorContext, _error: Exception) -> handlers.ErrorResponse:
    raise KeyError("handler")


def quarantining_handler(_context: ErrorContext, _error: Exception) -> handlers.ErrorResponse:
    return handlers.ErrorResponse.QUARANTINE


@pytest.mark.parametrize(
    ("handler", "message"),
    [(failing_handler, "KeyError: 'handler'"), (quarantining_handler, "ApplicationConfig.quarantine_topic is not set")],
)
def test_failing_deserialization_handler_ends_task(handler: handlers.ErrorHandler, message: str) -> None:
    with pytest.raises(StreamsError, match=f"task 0_0, node 'src', topic in, partition 0, offset 0: .*{message}"):
        add(keeping_task(deserialization_handler=handler), b"bad")


def test_failing_handler_of_punctuation_rolls_back() -> None:
    class Punctuating(Keep):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(1, PunctuationType.STREAM_TIME, self._punctuate)

        def _punctuate(self, _now_ms: int) -> None:
            self._store.put("x", "dirty")
            raise RuntimeError("boom")

    topology = keeping()
    topology.add_processor("q", Punctuating, "src").connect_processor_and_state_stores("q", "s")
    config = ApplicationConfig(**CONFIG, processing_handler=failing_handler)
    with TopologyTestDriver(topology, config) as driver:
        with pytest.raises(StreamsError, match="task 0_0, node 'q': punctuator failed: KeyError: 'handler'"):
            driver.create_input_topic("in").pipe_input("a", "good")

        assert list(driver.get_state_store("s").all()) == []
        assert len(driver.create_output_topic("out")) == 0


# ---- output ----------------------------------------------------------------------------------------------------------


def test_output_of_failed_record_is_discarded() -> None:
    with TopologyTestDriver(keeping(), ApplicationConfig(**CONFIG)) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        with pytest.raises(StreamsError, match="RuntimeError: boom$"):
            topic.pipe_input("a", "boom")

        assert out.read_key_values() == []
        assert list(driver.get_state_store("s").all()) == []


def test_output_before_unreadable_looped_record_is_delivered() -> None:
    class Twice(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._context = context

        def process(self, record: Record) -> None:
            self._context.forward(record.with_value("bad"))
            self._context.forward(record.with_value("good"))

    topology = Topology().add_source("src", "in").add_processor("twice", Twice, "src").add_sink("loop", "mid", "twice")
    topology.add_source("again", "mid")
    with TopologyTestDriver(topology, ApplicationConfig(**CONFIG)) as driver:
        with pytest.raises(StreamsError, match="node 'again'"):
            driver.create_input_topic("in").pipe_input("a", "x")

        assert driver.create_output_topic("mid", value_deserializer=serdes.STRING.deserialize).read_values() == [
            "bad",
            "good",
        ]


# ---- commits ---------------------------------------------------------------------------------------------------------


class Custom(StateStore):
    """Fails in methods that the test selects."""

    def __init__(self, failing: str, name: str = "custom") -> None:
        super().__init__(name)
        self._failing = failing
        self.calls: list[str] = []

    def init(self, context: StoreContext) -> None:
        self._map = context.byte_map(self.name)
        self._call("init")

    def put(self, key: bytes, value: bytes) -> None:
        self._map.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(key)

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self._failing:
            raise OSError(f"no {name}")


def custom_topology(create: Callable[[], Any]) -> Topology:
    class Use(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._store = context.get_state_store("custom")

        def process(self, record: Record) -> None:
            self._store.put(record.key, record.value)

    builder = StoreBuilder("custom", lambda _name: create())
    return Topology().add_source("src", "in").add_processor("use", Use, "src", stores=[builder])


def test_failed_commit_rolls_back_and_names_task(tmp_path: Path) -> None:
    store = Custom("")
    with TopologyTestDriver(custom_topology(lambda: store), state_file=tmp_path / "state") as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input(b"a", b"1")
        store._failing = "flush"
        with pytest.raises(StreamsError, match="task 0_0: commit failed: OSError: no flush"):
            topic.pipe_input(b"b", b"2")

        assert [store.get(key) for key in (b"a", b"b")] == [b"1", None]


def test_changes_in_close_are_committed(tmp_path: Path) -> None:
    class Late(Keep):
        def close(self) -> None:
            self._store.put("late", "x")

    store = stores.key_value("s", serdes.STRING, serdes.STRING)
    topology = Topology().add_source("src", "in").add_processor("p", Late, "src", stores=[store])
    path = tmp_path / "state"
    with TopologyTestDriver(topology, ApplicationConfig(**CONFIG), state_file=path) as driver:
        driver.create_input_topic("in").pipe_input("a", "1")

    with TopologyTestDriver(topology, ApplicationConfig(**CONFIG), state_file=path) as driver:
        assert list(driver.get_state_store("s").all()) == [("a", "1"), ("late", "x")]


# ---- stores and processors -------------------------------------------------------------------------------------------


def test_store_is_closed_with_its_task() -> None:
    store = Custom("")
    driver = TopologyTestDriver(custom_topology(lambda: store))
    driver.close()

    assert store.calls[-1] == "close"
    with pytest.raises(StreamsError, match="store 'custom' is closed"):
        store.get(b"a")
    with pytest.raises(StreamsError, match="store 'custom' is closed"):
        store.put(b"a", b"1")


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Custom("", "other"), "StoreBuilder 'custom': create.. must return a StateStore named 'custom', got <"),
        (lambda: object(), "StoreBuilder 'custom': create.. must return a StateStore named 'custom', got <object"),
        (lambda: 1 / 0, "StoreBuilder 'custom': create.. failed: ZeroDivisionError"),
        (lambda: Custom("init"), r"store 'custom': init\(\) failed: OSError: no init"),
    ],
)
def test_wrong_store_is_rejected(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(StreamsError, match=f"task 0_0: .*{message}"):
        TopologyTestDriver(custom_topology(create))


@pytest.mark.parametrize("failing", ["init", ""])
def test_store_is_closed_only_after_its_init(failing: str) -> None:
    class Failing(Processor):
        def init(self, _context: ProcessorContext) -> None:
            raise ValueError("no")

        def process(self, _record: Record) -> None:
            """Never called."""

    store = Custom(failing)
    topology = custom_topology(lambda: store).add_processor("fails", Failing, "src")
    with pytest.raises(StreamsError, match=r"init\(\) failed"):
        TopologyTestDriver(topology)

    assert store.calls == (["init"] if failing else ["init", "close"])
    with pytest.raises(StreamsError, match="store 'custom' is closed"):
        store.get(b"a")
    assert owners.claim(store, "0_1") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("where", ["process", "punctuation", "flush"])
def test_interrupt_rolls_back_and_ends_task(error: BaseException, where: str) -> None:
    class Interrupted(Keep):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(1, PunctuationType.STREAM_TIME, self._punctuate)

        def process(self, record: Record) -> None:
            self._store.put("half", "processed")
            if record.value == where == "process":
                raise error

        def _punctuate(self, _now_ms: int) -> None:
            if where == "punctuation":
                raise error

    topology = Topology().add_source("src", "in")
    topology.add_processor("p", Interrupted, "src", stores=[stores.key_value("s", serdes.STRING, serdes.STRING)])
    with TopologyTestDriver(topology, ApplicationConfig(**CONFIG)) as driver:
        if where == "flush":
            driver.get_state_store("s").flush = lambda: (_ for _ in ()).throw(error)
        with pytest.raises(type(error)):
            driver.create_input_topic("in").pipe_input("a", where)

        assert list(driver.get_state_store("s").all()) == []
        with pytest.raises(StreamsError, match="was stopped by an earlier error"):
            driver.advance_wall_clock_time(1)


class FailingRollback(Custom):
    def rollback(self) -> None:
        self._call("rollback")


def test_failed_rollback_does_not_prevent_others() -> None:
    created = {name: FailingRollback("rollback", name) for name in ("custom", "other")}
    topology = custom_topology(lambda: created["custom"])
    topology.add_state_store(StoreBuilder("other", created.__getitem__), "use")
    config = ApplicationConfig(value_serde=serdes.JSON)  # the store rejects what is not bytes
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: MemoryPages(), commit=int, rollback=lambda: [][0])
    task = topology.combine().task(0, config, runtime)
    task.initialize()
    task.add_records(PARTITION, [SourceRecord("in", 0, 0, 0, b"k", b"5")])

    with pytest.raises(
        StreamsError, match="task 0_0, node 'use', topic in, partition 0, offset 0: TypeError"
    ) as failed:
        task.process()

    assert [store.calls[-1] for store in created.values()] == ["rollback", "rollback"]
    assert failed.value.__notes__ == [
        "rollback of storage failed: IndexError: list index out of range",
        "rollback of store 'other' failed: OSError: no rollback",
        "rollback of store 'custom' failed: OSError: no rollback",
    ]
    task.close()


def test_failure_in_close_of_store_closes_others() -> None:
    created = {name: Custom("close", name) for name in ("custom", "other")}
    topology = custom_topology(lambda: created["custom"])
    topology.add_state_store(StoreBuilder("other", created.__getitem__), "use")
    driver = TopologyTestDriver(topology)
    with pytest.raises(StreamsError, match=r"task 0_0: store '(custom|other)': close\(\) failed: OSError: no close"):
        driver.close()

    assert [store.calls[-1] for store in created.values()] == ["close", "close"]


def test_store_of_two_tasks_is_rejected() -> None:
    store = Custom("")
    first = TopologyTestDriver(custom_topology(lambda: store))

    with pytest.raises(
        StreamsError, match="store 'custom' belongs to task 0_0; its StoreBuilder must create a new object"
    ):
        TopologyTestDriver(custom_topology(lambda: store))

    first.create_input_topic("in").pipe_input(b"a", b"1")
    assert store.get(b"a") == b"1"
    first.close()
    TopologyTestDriver(custom_topology(lambda: store)).close()


def test_processor_of_two_tasks_is_rejected() -> None:
    objects = cycle([Keep(), Keep()])
    store = stores.key_value("s", serdes.STRING, serdes.STRING)
    topology = Topology().add_source("src", "in")
    topology.add_processor("p", lambda: next(objects), "src", stores=[store])
    first = TopologyTestDriver(topology)
    second = TopologyTestDriver(topology)

    with pytest.raises(StreamsError, match="processor 'p' belongs to task 0_0; its supplier must return a new object"):
        TopologyTestDriver(topology)

    first.close()
    second.close()


@dataclass(slots=True)
class Equal(Processor):
    """Equal to every other object of the class, and unhashable."""

    def process(self, record: Record) -> None:
        """Not called."""


def test_equal_processors_belong_to_different_tasks() -> None:
    created: list[Equal] = []

    def create() -> Equal:
        created.append(Equal())
        return created[-1]

    topology = Topology().add_source("src", "in").add_processor("p", create, "src")
    with TopologyTestDriver(topology), TopologyTestDriver(topology):
        assert created[-2] == created[-1]
        assert owners.claim(created[-2], "0_1") == owners.claim(created[-1], "0_1") == "0_0"
        assert vars(created[-1]) == {}
    assert owners.claim(created[-1], "0_1") is None


def test_deleted_object_has_no_owner() -> None:
    opened = Custom("")
    key = id(opened)
    assert owners.claim(opened, "0_0") is None

    del opened

    assert key not in owners._owners


def test_failed_init_closes_only_initialized_processors() -> None:
    closed: list[str] = []

    class First(Processor):
        def process(self, record: Record) -> None:
            """Not called."""

        def close(self) -> None:
            closed.append("first")
            raise OSError("close")

    class Second(First):
        def init(self, _context: ProcessorContext) -> None:
            raise KeyError("counts")

    topology = Topology().add_source("src", "in").add_processor("a", First, "src").add_processor("b", Second, "a")
    topology.add_processor("c", First, "b")
    with pytest.raises(StreamsError, match=r"processor 'b': init\(\) failed: KeyError: 'counts'") as failed:
        TopologyTestDriver(topology)

    assert closed == ["first"]
    assert failed.value.__notes__ == ["task 0_0: processor 'a': close() failed: OSError: close"]


def test_call_of_failed_task_has_the_failure_as_cause() -> None:
    lifecycle, failure = TaskLifecycle("0_1"), ValueError("x")
    lifecycle.move(TaskState.RUNNING)
    lifecycle.fail(failure)

    with pytest.raises(StreamsError, match=r"task 0_1: run\(\) was called ") as found:
        lifecycle.require("run", TaskState.RUNNING)

    assert found.value.__cause__ is failure
