"""Tasks that another process continues: snapshots, schedules, remembered values, and the states of a task."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Cancellable,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SinkRecord,
    SourceRecord,
    StreamTask,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
)
from zkconsumer.topology.stores import MemoryPages, StateStore
from zkconsumer.topology.task.snapshot import FORMAT
from zkconsumer.topology.task.task_runtime import TRANSITIONS, TaskState

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)
STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 0)


class Counting(Processor):
    """Counts records in the store, and calls at each 10 ms of stream time in a remembered value."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = context.get_state_store("s")
        self.ticks = context.remember("ticks", 0)
        context.schedule(10, STREAM, self.tick)
        context.schedule(20, WALL, self.tock)

    def process(self, record: Record) -> None:
        count = int(self.store.get(record.key) or 0) + 1
        self.store.put(record.key, str(count))
        if record.value == "later":
            self.context.schedule(7, STREAM, self.tock)
        if record.value == "cancel":
            for schedule in self.context.schedules().values():
                schedule.cancel()
        if record.value == "cancel later":
            first = next((one for (method, _), one in self.context.schedules().items() if method == "tock"), None)
            if first is not None:
                first.cancel()
        self.context.forward(record.with_value(f"{count}/{self.ticks.value}"))

    def tick(self, now_ms: int) -> None:
        self.ticks.value += 1
        self.context.forward(Record("tick", str(now_ms), now_ms))

    def tock(self, now_ms: int) -> None:
        self.context.forward(Record("tock", str(now_ms), now_ms))


def counting(supplier: Callable[[], Processor] = Counting) -> Topology:
    topology = Topology().add_source("src", "in").add_source("src2", "other")
    store = stores.key_value("s", serdes.STRING, serdes.STRING)
    return topology.add_processor("p", supplier, "src", "src2", stores=[store]).add_sink("out", "out", "p")


class Owner:
    """Runs a task, and replaces it by one that continues from its snapshot."""

    def __init__(self, topology: Topology | None = None, config: ApplicationConfig = TEXT) -> None:
        self.now_ms = 0
        self.config = config
        self.sent: list[SinkRecord] = []
        self._pages: dict[str, MemoryPages] = {}
        self._offsets = {IN: 0, OTHER: 0}
        self._subtopology = (topology or counting()).subtopology(0)
        self.task = self._create(None)

    def add(self, *timed: tuple[int, str], partition: TopicPartition = IN) -> None:
        records = []
        for timestamp, value in timed:
            records.append(SourceRecord(*partition, self._offsets[partition], timestamp, b"k", value.encode()))
            self._offsets[partition] += 1
        self.task.add_records(partition, records)

    def run(self, limit: int | None = None) -> int:
        self.task.update_lags()
        count = self.task.run(limit)
        self.task.punctuate_wall_clock()
        self.sent += self.task.take_output().records()
        return count

    def rebuild(self) -> None:
        self.task.commit()
        snapshot = self.task.snapshot()
        self.task.close()
        self.task = self._create(snapshot)
        assert self.task.snapshot() == snapshot

    def continue_from(self, snapshot: bytes | None) -> StreamTask:
        return self._subtopology.task(0, self.config, self._runtime(), snapshot)

    def _create(self, snapshot: bytes | None) -> StreamTask:
        task = self.continue_from(snapshot)
        task.initialize()
        return task

    def _runtime(self) -> TaskRuntime:
        return TaskRuntime(
            clock=lambda: self.now_ms, pages=self._pages_of, commit=int, rollback=int, takes_snapshots=True
        )

    def _pages_of(self, store: StateStore) -> MemoryPages:
        return self._pages.setdefault(store.name, MemoryPages())


#: Metrics that continue in another task.
SAVED_COUNTS = {"processed", "punctuated", "dropped", "enforced"}

VALUES = ["a", "later", "b", "later", "c", "cancel later", "d", "later", "e", "cancel", "f"]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_rebuilt_task_continues_with_everything(every: int) -> None:
    results = []
    for is_rebuilt in (False, True):
        owner = Owner()
        for number, value in enumerate(VALUES * 3):
            owner.now_ms = number * 3
            owner.add((number * 4, value), (number * 4 + 1, "x"))
            owner.add((number * 4 + 2, value), partition=OTHER)
            owner.run(2)
            if is_rebuilt and number % every == 0:
                owner.rebuild()
        while owner.run():
            pass
        task = owner.task
        contents = dict(task.stores["s"].all())  # type: ignore[attr-defined]
        counts = {name: number for name, number in task.metrics.items() if name in SAVED_COUNTS}
        times = [queue.time_ms for queue in task._group.queues.values()]
        results.append((owner.sent, contents, counts, times, task.committable(), task.queued))
    assert results[0] == results[1]
    assert len(results[0][0]) > 100


def test_dropped_head_is_continued() -> None:
    config = ApplicationConfig(value_serde=serdes.LONG, deserialization_handler=handlers.log_and_continue)
    owner = Owner(Topology().add_source("src", "in"), config)
    owner.add((5, "bad"), (6, "bad"))

    owner.rebuild()

    assert owner.task.metrics["dropped"] == 2
    assert (owner.task.queued, owner.task.committable()) == (1, {IN: 1})
    assert owner.run() == 1
    assert (owner.task.queued, owner.task.committable()) == (0, {IN: 2})


def test_headers_and_missing_keys_of_queued_records_are_kept() -> None:
    owner = Owner(Topology().add_source("src", "in").add_sink("out", "out", "src"))
    headers = (("h", b"1"), ("h", None))
    records = [SourceRecord("in", 0, 7, 5, None, b"v", headers), SourceRecord("in", 0, 9, 6, b"k", None)]
    owner.task.add_records(IN, records)

    owner.rebuild()
    owner.run()

    assert [(one.key, one.value, one.headers) for one in owner.sent] == [(None, b"v", headers), (b"k", None, ())]
    assert owner.task.committable() == {IN: 10}


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin")])
def test_columns_of_arrow_are_processed(kind: pa.DataType) -> None:
    owner = Owner(Topology().add_source("src", "in").add_sink("out", "out", "src"))
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "offset": pa.array(range(3_000)),
        "timestamp": pa.array(range(3_000), pa.timestamp("ms")).cast(kind),
        "key": pa.array([b"k", None, b""] * 1_000),
        "value": pa.array([b"v"] * 3_000),
        "headers": pa.array([None, [("h", b"1")], []] * 1_000, pa.list_(header)),
    }
    owner.task.add_columns(IN, pa.record_batch(columns).slice(1))
    owner.run(1_500)
    owner.rebuild()
    owner.run()

    assert [(one.timestamp, one.key, one.headers) for one in owner.sent] == [
        (number, [b"k", None, b""][number % 3], (("h", b"1"),) if number % 3 == 1 else ()) for number in range(1, 3_000)
    ]
    with pytest.raises(ValueError, match="records of topic 'in': missing columns: key, value"):
        owner.task.add_columns(IN, pa.record_batch({"offset": [1], "timestamp": [1]}))


def test_table_of_several_batches_is_processed() -> None:
    owner = Owner(Topology().add_source("src", "in").add_sink("out", "out", "src"))
    rows = {"offset": [0, 1], "timestamp": [5, 6], "key": [b"a", b"b"], "value": [b"x", b"y"]}
    batch = pa.record_batch(rows)

    owner.task.add_columns(IN, pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]))
    owner.run()

    assert [(one.key, one.value) for one in owner.sent] == [(b"a", b"x"), (b"b", b"y")]


def test_snapshot_with_partition_that_no_source_reads_is_rejected() -> None:
    topology = Topology().add_source("src", pattern="t[0-9]")
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)
    both = topology.resolve({"t1": 1, "t2": 1}).subtopologies[0]
    task = both.task(0, ApplicationConfig(), runtime)
    task.initialize()
    snapshot = task.snapshot()

    remaining = topology.resolve({"t1": 1}).subtopologies[0]
    with pytest.raises(StreamsError, match="task 0_0: the snapshot contains partitions that no source reads: t2 parti"):
        remaining.task(0, ApplicationConfig(), runtime, snapshot)


def test_output_is_read_as_arrow() -> None:
    owner = Owner(Topology().add_source("src", "in").add_sink("out", "out", "src", partitioner=lambda *_: 0))
    headers = (("h", b"1"), ("h", None))
    owner.task.add_records(IN, [SourceRecord("in", 0, 0, 5, None, b"v", headers)])
    owner.task.run()

    batch = owner.task.take_output().to_arrow()

    assert batch.to_pylist() == [
        {
            "topic": "out",
            "partition": 0,
            "timestamp": 5,
            "key": None,
            "value": b"v",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        }
    ]
    assert len(owner.task.take_output()) == 0


def test_sequence_counts_output_of_all_owners() -> None:
    owner = Owner(Topology().add_source("src", "in").add_sink("out", "out", "src"))
    owner.add((1, "a"), (2, "b"))
    assert (owner.run(), owner.task.sequence) == (2, 2)
    owner.add((3, "c"))
    owner.task.run()
    assert owner.task.sequence == 2, "the output was not taken"
    snapshot = owner.task.snapshot()
    assert len(owner.task.take_output()) == 1

    assert owner.task.snapshot() == snapshot
    continued = owner.continue_from(snapshot)
    continued.initialize()
    assert continued.sequence == owner.task.sequence == 3


# ---- rejected snapshots --------------------------------------------------------------------------------------


def corrupt(snapshot: bytes, position: int) -> bytes:
    return snapshot[:position] + bytes([snapshot[position] ^ 1]) + snapshot[position + 1 :]


def test_each_changed_byte_is_rejected() -> None:
    owner = Owner()
    owner.add((1, "later"), (2, "b"))
    owner.run(1)
    snapshot = owner.task.snapshot()

    for position in range(len(snapshot)):
        with pytest.raises(StreamsError, match="task 0_0: the snapshot is corrupt"):
            owner.continue_from(corrupt(snapshot, position))
    for length in range(len(snapshot)):
        with pytest.raises(StreamsError, match="task 0_0: the snapshot is corrupt"):
            owner.continue_from(snapshot[:length])


def test_snapshot_of_later_release_is_rejected() -> None:
    snapshot = Owner().task.snapshot()
    head = struct.pack("<4sH", b"ZKTS", FORMAT + 1) + snapshot[6:10]
    later = head + struct.pack("<I", zlib.crc32(snapshot[14:], zlib.crc32(head))) + snapshot[14:]

    with pytest.raises(
        StreamsError, match="task 0_0: snapshot format 2 is newer than the supported format 1; upgrade zkconsumer"
    ):
        Owner().continue_from(later)


def test_snapshot_of_other_task_is_rejected() -> None:
    owner = Owner()
    snapshot = owner.task.snapshot()
    subtopology = counting().subtopology(0)

    with pytest.raises(StreamsError, match="task 0_1: the snapshot belongs to task 0_0"):
        subtopology.task(1, TEXT, owner._runtime(), snapshot)
    with pytest.raises(StreamsError, match="task 0_0: the snapshot was taken with a different topology .fingerprint"):
        counting().add_sink("more", "more", "p").subtopology(0).task(0, TEXT, owner._runtime(), snapshot)


# ---- schedules and remembered values --------------------------------------------------------------------------


class Calling(Processor):
    """Calls functions of the test."""

    def __init__(self, init: Callable[[Any], object], process: Callable[[Any], object] = lambda _self: None) -> None:
        self._init, self._process = init, process
        self.context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._init(self)

    def process(self, record: Record) -> None:
        self._process(self)

    def call(self, now_ms: int) -> None:
        self.context.count(f"called at {now_ms}")


def calling(
    init: Callable[[Any], object] = lambda _self: None,
    process: Callable[[Any], object] = lambda _self: None,
    kind: type[Calling] = Calling,
) -> Topology:
    """Return a topology whose fingerprint does not depend on the arguments."""
    return counting(lambda: kind(init, process))


def test_schedule_without_method_is_rejected_at_once() -> None:
    owner = Owner(calling(process=lambda processor: processor.context.schedule(10, STREAM, lambda _now_ms: None)))
    owner.add((1, "a"))

    with pytest.raises(
        StreamsError,
        match=r"processor 'p': a schedule created outside init\(\) cannot be saved, because its punctuator is "
        "not a method of the processor; pass a method such as self.punctuate",
    ):
        owner.run()


def test_snapshot_of_schedule_without_method_is_rejected() -> None:
    """Without ``takes_snapshots``, the schedule can be created; it prevents snapshots until it is cancelled."""
    schedules: list[Cancellable] = []
    owner = Owner(
        calling(process=lambda one: schedules.append(one.context.schedule(10, WALL, lambda _now_ms: None))),
    )
    owner.task = owner._subtopology.task(0, owner.config, replace(owner._runtime(), takes_snapshots=False))
    owner.task.initialize()
    owner.add((1, "a"))
    owner.run()
    owner.task.commit()

    with pytest.raises(StreamsError, match="task 0_0: processor 'p': a schedule created outside init"):
        owner.task.snapshot()

    schedules[0].cancel()
    owner.task.snapshot()


def test_cancelled_schedules_do_not_come_back() -> None:
    def init(processor: Any) -> None:
        handles = [processor.context.schedule(10, STREAM, processor.call) for _ in range(2)]
        if not processor.context.remember("cancelled", False).value:
            processor.context.remember("cancelled", False).value = True
            handles[0].cancel()

    owner = Owner(calling(init))
    for time_ms in (5, 15, 25):
        owner.add((time_ms, "a"))
        owner.run()
        owner.rebuild()

    assert {key: count for key, count in owner.task.metrics.items() if "called" in key} == {
        f"p/called at {time_ms}": 1 for time_ms in (5, 15, 25)
    }


def test_schedule_that_init_no_longer_creates_ends() -> None:
    owner = Owner(calling(lambda processor: processor.context.schedule(10, STREAM, processor.call)))
    owner.add((5, "a"))
    owner.run()
    snapshot = owner.task.snapshot()

    owner._subtopology = calling().subtopology(0)
    owner.task = owner._create(snapshot)
    owner.add((95, "a"))
    owner.run()

    assert owner.task.metrics["punctuated"] == 1


def test_schedule_with_other_clock_is_rejected() -> None:
    snapshot = Owner(calling(lambda processor: processor.context.schedule(10, STREAM, processor.call))).task.snapshot()
    owner = Owner(calling())
    owner._subtopology = calling(lambda one: one.context.schedule(10, WALL, one.call)).subtopology(0)

    with pytest.raises(
        StreamsError,
        match=r"schedule 0 of init\(\) uses wall-clock time, but was saved with stream time; keep the order "
        r"and types of saved schedules, and create new schedules after them",
    ):
        owner._create(snapshot)


def test_method_that_is_missing_is_named() -> None:
    class Old(Calling):
        def removed(self, now_ms: int) -> None:
            pass

    old = calling(lambda _: None, lambda one: one.context.schedule(10, STREAM, one.removed), Old)
    owner = Owner(old)
    owner.add((1, "a"))
    owner.run()
    snapshot = owner.task.snapshot()
    owner._subtopology = calling().subtopology(0)

    with pytest.raises(
        StreamsError, match="a saved schedule calls the method 'removed', but processor 'p' has no such method"
    ):
        owner._create(snapshot)


def test_remembered_value_of_other_type_is_rejected() -> None:
    owner = Owner(calling(lambda processor: processor.context.remember("last", {"list": [None, 1, 2.5, True, b"x"]})))

    with pytest.raises(StreamsError, match=r"processor 'p': remembered value 'last' must be .*, got b'x'"):
        owner.task.snapshot()


# ---- states ---------------------------------------------------------------------------------------------------


def test_suspended_task_commits_and_resumes() -> None:
    outputs = []
    for is_suspended in (False, True):
        owner = Owner()
        owner.add((1, "a"), (11, "later"))
        owner.run(2)
        if is_suspended:
            owner.task.suspend()
            owner.task.commit()
            with pytest.raises(StreamsError, match=r"task 0_0: run\(\) was called while the task was suspended"):
                owner.run()
            owner.task.resume()
        owner.add((21, "b"))
        owner.run()
        outputs.append(owner.sent)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 8


def test_suspend_needs_running_task() -> None:
    owner = Owner()
    owner.task.suspend()

    with pytest.raises(StreamsError, match=r"task 0_0: suspend\(\) was called while the task was suspended"):
        owner.task.suspend()


def test_failed_resume_ends_task() -> None:
    def init(_processor: Any) -> None:
        if owners:
            raise RuntimeError("boom")

    owners: list[Owner] = []
    owners.append(Owner(calling(init)))
    task = owners[0].task
    task.suspend()

    with pytest.raises(StreamsError, match=r"processor 'p': init\(\) failed: RuntimeError: boom"):
        task.resume()
    with pytest.raises(StreamsError, match=r"run\(\) was called after the task failed"):
        task.run()


def test_records_of_other_partition_are_rejected() -> None:
    owner = Owner()
    owner.add((1, "a"))

    with pytest.raises(KeyError):
        owner.task.add_records(TopicPartition("in", 1), [SourceRecord("in", 1, 0, 0, b"k", b"v")])

    assert owner.run() == 1


def test_nodes_cannot_forward_after_process() -> None:
    processors: list[Any] = []
    owner = Owner(calling(processors.append))
    owner.add((1, "a"))
    owner.task.process()

    assert processors[0].context.record_metadata is None
    with pytest.raises(StreamsError, match=r"forward\(\) was called outside process\(\)"):
        processors[0].context.forward(Record("k", "v", 1))


def test_states_lead_to_closed() -> None:
    assert TRANSITIONS.keys() == set(TaskState)
    assert all(TaskState.CLOSED in following for following in TRANSITIONS.values())


# ---- the test driver ------------------------------------------------------------------------------------------


def test_driver_continues_with_times_and_schedules(tmp_path: Path) -> None:
    # Kafka Streams keeps the times of partitions with the committed offsets.
    outputs = []
    for parts in ([range(8)], [range(3), range(3, 5), range(5, 8)]):
        path, found = tmp_path / str(len(parts)), []
        for part in parts:
            with TopologyTestDriver(counting(), TEXT, state_file=path) as driver:
                for number in part:
                    driver.advance_wall_clock_time(9)
                    value = VALUES[number]
                    driver.create_input_topic("in").pipe_input("k", value, timestamp=number * 6 % 35)
                found += driver.create_output_topic("out").read_records()
                counts = {name: number for name, number in driver.metrics.items() if name in SAVED_COUNTS}
        outputs.append((found, counts))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) > 12


def test_state_file_of_other_topology_is_rejected(tmp_path: Path) -> None:
    TopologyTestDriver(counting(), TEXT, state_file=tmp_path / "state").close()

    with pytest.raises(StreamsError, match="the snapshot was taken with a different topology"):
        TopologyTestDriver(counting().add_sink("more", "more", "p"), TEXT, state_file=tmp_path / "state")


def test_snapshot_is_plain_data() -> None:
    owner = Owner()
    owner.add((1, "a"), (2, "b"))
    snapshot = owner.task.snapshot()
    (length,) = struct.unpack_from("<I", snapshot, 6)

    content = json.loads(snapshot[14 : 14 + length])

    assert content["task"] == "0_0"
    assert pa.ipc.open_stream(snapshot[14 + length :]).read_all().column("value").to_pylist() == [b"a", b"b"]


# ---- metrics --------------------------------------------------------------------------------------------------


def test_metrics_count_nodes_stores_and_reasons() -> None:
    config = ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.STRING,
        deserialization_handler=handlers.log_and_continue,
        page_bytes=1_024,
        page_memory_bytes=0,
    )
    owner = Owner(config=config)
    owner.add((1, "a"), (2, "a"), (3, "a"))
    owner.task.add_records(IN, [SourceRecord("in", 0, 9, 4, b"\xff", b"a")])
    owner.run()
    metrics = owner.task.metrics

    assert metrics["processed"] == metrics["p/processed"] == metrics["enforced"] == 3
    assert metrics["dropped"] == metrics["dropped/deserialization"] == 1
    assert (metrics["s/gets"], metrics["s/puts"]) == (3, 3)
    assert metrics["p/nanoseconds"] > 0


def test_changes_of_metrics_are_taken_per_commit() -> None:
    owner = Owner()
    owner.add((1, "a"), (2, "b"))
    owner.run(1)
    owner.task.commit()
    first = owner.task.take_metrics()
    owner.run(1)
    owner.task.commit()
    second = owner.task.take_metrics()

    for changes in (first, second):
        assert (changes["processed"], changes["p/processed"], changes["s/gets"], changes["s/puts"]) == (1, 1, 1, 1)
    assert first["s/pages_written"] == 3  # the page, the directory and the header
    assert second["s/pages_written"] == 2
    assert owner.task.take_metrics() == {}
