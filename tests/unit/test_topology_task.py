"""Tasks: order, time, punctuation, errors. The numbers are those of upstream's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Cancellable,
    ErrorContext,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SinkRecord,
    SourceRecord,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
    timestamps,
)
from zkconsumer.topology.processor import Punctuator
from zkconsumer.topology.stores import MemoryPages, StateStore
from zkconsumer.topology.task.punctuation import PunctuationQueue, Schedule, ScheduleKey

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)


class Calling(Processor):
    """Calls functions of the test."""

    def __init__(
        self,
        process: Callable[[ProcessorContext, Record], object] = lambda _context, _record: None,
        init: Callable[[ProcessorContext], object] = lambda _context: None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._init, self._process, self._close = init, process, close
        self._context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._init(context)

    def process(self, record: Record) -> None:
        self._process(self._context, record)

    def close(self) -> None:
        self._close()


class Setup:
    """A task with two partitions, ``a`` and ``b``, whose processor calls functions of the test."""

    def __init__(
        self,
        process: Callable[[ProcessorContext, Record], object] = lambda _context, _record: None,
        init: Callable[[ProcessorContext], object] = lambda _context: None,
        config: ApplicationConfig = TEXT,
    ) -> None:
        self.now_ms = 0
        self.lags: dict[str, int | None] = {"a": 0, "b": 0}
        self._sent: list[SinkRecord] = []
        self.pages: dict[str, MemoryPages] = {}
        topology = Topology().add_source("src-a", "a").add_source("src-b", "b")
        topology.add_processor(
            "p",
            lambda: Calling(process, init),
            "src-a",
            "src-b",
            stores=[stores.key_value("s", serdes.STRING, serdes.STRING)],
        )
        topology.add_sink("out", "out", "p")
        runtime = TaskRuntime(
            clock=lambda: self.now_ms,
            pages=self._pages_of,
            commit=int,
            rollback=int,
            lag_of=lambda partition: self.lags[partition.topic],
        )
        self.task = topology.combine().task(0, config, runtime)
        self._offsets = dict.fromkeys("ab", 0)
        self.task.initialize()

    def add(self, topic: str, times: Iterable[int], value: bytes = b"v") -> None:
        for timestamp in times:
            record = SourceRecord(topic, 0, self._offsets[topic], timestamp, b"k", value)
            self._offsets[topic] += 1
            self.task.add_records(TopicPartition(topic, 0), [record])

    def run(self) -> None:
        self.task.update_lags()
        self.task.run()

    @property
    def sent(self) -> list[SinkRecord]:
        self._sent += self.task.take_output().records()
        return self._sent

    def _pages_of(self, store: StateStore) -> MemoryPages:
        return self.pages.setdefault(store.name, MemoryPages())


def test_records_are_merged_by_timestamp_of_head() -> None:
    # Source: Kafka 3.9 StreamTaskTest.shouldProcessInOrder,
    # PartitionGroupTest.shouldChooseNextRecordBasedOnHeadTimestamp
    seen: list[int] = []
    setup = Setup(lambda _context, record: seen.append(record.timestamp))
    setup.add("a", [1, 5, 3])
    setup.add("b", [2, 4, 6])

    setup.run()

    assert seen == [1, 2, 4, 5, 3, 6]
    assert setup.task.stream_time_ms == 6
    assert [queue.time_ms for _, queue in sorted(setup.task._group.queues.items())] == [5, 6]


@pytest.mark.parametrize(
    ("lag", "idle_ms", "waits"), [(None, 0, True), (3, 0, True), (0, 0, False), (3, -1, False), (None, -1, False)]
)
def test_task_waits_for_partition_with_lag(lag: int | None, idle_ms: int, waits: bool) -> None:
    # Source: Kafka 3.9 PartitionGroupTest.shouldWaitForPollWhenLagIsNonzero, shouldNeverWaitIfIdlingIsDisabled
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=idle_ms))
    setup.lags["b"] = lag
    setup.add("a", [1])
    setup.task.update_lags()

    assert setup.task.run() == (0 if waits else 1)


def test_task_idles_for_empty_partition() -> None:
    # Source: Kafka 3.9 PartitionGroupTest.shouldIdleAsSpecifiedWhenLagIsZero
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=10))
    setup.add("a", [1])
    setup.task.update_lags()

    assert setup.task.run() == 0
    setup.now_ms = 9
    assert setup.task.run() == 0
    setup.now_ms = 10
    assert setup.task.run() == 1
    setup.add("a", [2])
    setup.add("b", [2])
    assert setup.task.run() == 1, "the other partition is empty again"


def test_records_beside_an_empty_partition_are_counted() -> None:
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=0))
    for _ in range(2):
        setup.add("a", [1, 3])
        setup.add("b", [2])
        setup.task.update_lags()
        assert setup.task.run(3) == 3

    assert setup.task.metrics["enforced"] == 2, "the last record of each round"


@pytest.mark.parametrize(
    ("arrivals", "processed"),
    [
        ({0: ("a", 1), 5: ("b", 0)}, {5: 1, 15: 1}),
        ({0: ("a", 1), 11: ("b", 2), 22: ("a", 3)}, {10: 1, 20: 1, 30: 1}),
    ],
    ids=["both have records", "one after the other"],
)
def test_idle_time_starts_again_after_records(arrivals: dict[int, tuple[str, int]], processed: dict[int, int]) -> None:
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=10))
    found = {}
    for setup.now_ms in range(40):
        if setup.now_ms in arrivals:
            topic, timestamp = arrivals[setup.now_ms]
            setup.add(topic, [timestamp])
        setup.task.update_lags()
        found[setup.now_ms] = setup.task.run()

    assert {now: count for now, count in found.items() if count} == processed


def test_size_of_queue_is_that_of_unprocessed_records() -> None:
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=-1))
    records = [SourceRecord("a", 0, number, number, b"k", b"v" * number) for number in range(10)]
    setup.task.add_records(TopicPartition("a", 0), records)
    queue = setup.task._group.queues[TopicPartition("a", 0)]
    sizes = [queue.size_bytes]
    while setup.task.run(2):
        sizes.append(queue.size_bytes)

    assert sizes == [sum(1 + number for number in range(first, 10)) for first in (0, 2, 4, 6, 8, 10)]


def test_partitions_of_one_bucket_are_waited_for_in_the_order_of_kafka_streams() -> None:
    # Source: Kafka 3.9 TopologyTestDriver; the last two share a bucket of its hash table
    topology = Topology()
    for number, topic in enumerate(["in0", "in1", "pattern2-[ab]+1?", "mi[a-f]"]):
        topology.add_source(f"src-{number}", topic)
    topology.add_sink("sink", "out", *(f"src-{number}" for number in range(4)))
    with TopologyTestDriver(topology, replace(TEXT, max_task_idle_ms=50)) as driver:
        mid, in0 = driver.create_input_topic("mi[a-f]"), driver.create_input_topic("in0")
        in1, out = driver.create_input_topic("in1"), driver.create_output_topic("out")
        in0.pipe_input("a", "1", 0)
        driver.advance_wall_clock_time(50)
        mid.pipe_input("a", "2", 0)
        in1.pipe_input("a", "3", 0)
        assert len(out) == 0

        driver.advance_wall_clock_time(50)

        assert out.read_values() == ["1"]


def test_idle_time_starts_again_after_lag() -> None:
    setup = Setup(config=ApplicationConfig(max_task_idle_ms=10))
    setup.add("a", [1])
    processed = []
    for now_ms, lag in ((0, 0), (5, 3), (10, 0), (19, 0), (20, 0)):
        setup.now_ms, setup.lags["b"] = now_ms, lag
        setup.task.update_lags()
        processed.append(setup.task.run())

    assert processed == [0, 0, 0, 0, 1]


def test_punctuation_after_gap_is_one_and_keeps_alignment() -> None:
    # Source: Kafka 3.9 PunctuationQueueTest.testPunctuationInterval, testPunctuationIntervalCustomAlignment
    for start, times, expected in (
        (0, [999, 1000, 1001, 1002, 1100, 1101, 1199], [999, 1000, 1100]),
        (50, [999, 1000, 1001, 1002, 1149, 1150, 1151], [999, 1050 + 99, 1150]),
    ):
        queue = PunctuationQueue()
        called: list[int] = []
        queue.add(Schedule(ScheduleKey("p", "init", 0), start, 100, called.append))
        for now_ms in times:
            before = len(called)
            was_due = queue.punctuate(now_ms, lambda schedule, now_ms=now_ms: schedule.punctuator(now_ms))  # type: ignore[misc]
            assert was_due is (len(called) > before)
        assert called == expected


def test_schedule_is_known_while_its_punctuator_is_called() -> None:
    queue, seen = PunctuationQueue(), list[int]()
    added = Schedule(ScheduleKey("p", "init", 0), 0, 100, lambda _now: seen.append(len(queue.schedules)))
    queue.add(added)
    queue.punctuate(100, lambda schedule, now_ms: schedule.punctuator(now_ms))

    assert (seen, queue.schedules) == ([1], [added])


def schedule(interval: int, kind: PunctuationType, call: Punctuator) -> Callable[[ProcessorContext], object]:
    return lambda context: context.schedule(interval, kind, call)


def test_stream_time_punctuation_follows_records() -> None:
    # Source: Kafka 3.9 StreamTaskTest.shouldPunctuateOnceStreamTimeAfterGap
    called: list[int] = []
    setup = Setup(init=schedule(10, PunctuationType.STREAM_TIME, called.append))
    setup.add("a", [20, 142, 155, 160])
    setup.add("b", [25, 145, 159, 161])

    setup.run()

    assert called == [20, 142, 155, 160]


def test_wall_clock_punctuation_does_not_need_records() -> None:
    # Source: Kafka 3.9 StreamTaskTest.shouldPunctuateSystemTimeWhenIntervalElapsed,
    # shouldPunctuateOnceSystemTimeAfterGap
    called: list[int] = []
    setup = Setup(init=schedule(10, PunctuationType.WALL_CLOCK_TIME, called.append))
    for now in (9, 10, 19, 20, 100, 101, 110):
        setup.now_ms = now
        setup.task.punctuate_wall_clock()

    assert called == [10, 20, 100, 110]


def test_schedule_can_be_cancelled_from_its_punctuator() -> None:
    # Source: Kafka 3.9 PunctuationQueueTest.testPunctuationIntervalCancelFromPunctuator
    called: list[int] = []
    schedules: list[Cancellable] = []

    def init(context: ProcessorContext) -> None:
        schedules.append(context.schedule(10, PunctuationType.STREAM_TIME, punctuate))

    def punctuate(now: int) -> None:
        called.append(now)
        schedules[0].cancel()

    setup = Setup(init=init)
    setup.add("a", [20, 40, 60])
    setup.run()

    assert called == [20]


def test_failed_record_leaves_state_of_last_commit() -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        store = context.get_state_store("s")
        store.put(record.key, record.value)
        if record.value == "bad":
            raise RuntimeError("boom")

    setup = Setup(process)
    setup.add("a", [1])
    setup.run()
    setup.task.commit()
    setup.add("a", [2], b"bad")

    with pytest.raises(
        StreamsError, match=r"task 0_0, node 'p', topic a, partition 0, offset 1: RuntimeError: boom"
    ) as failed:
        setup.run()

    assert isinstance(failed.value.__cause__, RuntimeError)
    assert list(setup.task.stores["s"].all()) == [("k", "v")]  # type: ignore[attr-defined]


def test_punctuation_error_names_node() -> None:
    def fail(_now: int) -> None:
        raise RuntimeError("boom")

    setup = Setup(init=schedule(10, PunctuationType.STREAM_TIME, fail))
    setup.add("a", [1])

    with pytest.raises(StreamsError, match="task 0_0, node 'p': punctuator failed: RuntimeError: boom"):
        setup.run()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda context, _record: context.get_state_store("other"),
            r"'p' is not connected to store 'other' \(connected stores: s\); connect it with connect_processor_and_",
        ),
        (
            lambda context, record: context.forward(record, "no"),
            "processor 'p' has no child 'no' .children: out",
        ),
        (
            lambda context, _record: context.schedule(0, PunctuationType.STREAM_TIME, print),
            "interval_ms must be a positive integer or a positive timedelta of whole milliseconds, got 0",
        ),
        (
            lambda context, _record: context.schedule(1, "stream", print),
            "kind must be a PunctuationType, got 'stream'",
        ),
        (
            lambda context, _record: context.schedule(1, PunctuationType.STREAM_TIME, None),
            "punctuator must be a function, got None",
        ),
        (
            lambda context, _record: context.forward("x"),
            "node 'p', .*forward..: record must be a Record, got 'x'",
        ),
        (lambda context, _record: context.get_state_store("s").put(None, "v"), "store 's': the key must not be None"),
        (lambda context, _record: context.get_state_store("s").get(None), "store 's': the key must not be None"),
        (lambda context, _record: context.get_state_store("s").put("k", 5), "store 's': value 5 .int. cannot be"),
        (
            lambda context, record: context.forward(record.with_value(5)),
            "sink 'out': the value of a record for topic 'out' cannot be serialized: TypeError: must be str, got int; "
            "check the value serializer of the sink, or the default serde$",
        ),
        (
            lambda context, record: context.forward(record.with_key(5)),
            "the key of a record for topic 'out' cannot be serialized: TypeError: must be str, got int; "
            "check the key serializer of the sink, or the default serde$",
        ),
        (
            lambda _context, record: record.with_timestamp(-1),
            "timestamp of a record must be a non-negative integer, got -1",
        ),
    ],
)
def test_wrong_use_names_node_and_reason(use: Any, message: str) -> None:
    setup = Setup(use)
    setup.add("a", [1])

    with pytest.raises(StreamsError, match=message) as failed:
        setup.run()
    assert "node 'p'" in str(failed.value)
    assert "handler" not in str(failed.value)


def test_init_and_close_errors_name_processor() -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("boom")

    closed: list[str] = []
    with pytest.raises(StreamsError, match=r"task 0_0: processor 'p': init\(\) failed: RuntimeError: boom"):
        Setup(init=fail)
    topology = Topology().add_source("src", "t")
    topology.add_processor("first", lambda: Calling(close=fail), "src")
    topology.add_processor("second", lambda: Calling(close=lambda: closed.append("second")), "src")

    with pytest.raises(StreamsError, match=r"processor 'first': close\(\) failed: RuntimeError: boom"):
        TopologyTestDriver(topology).close()
    assert closed == ["second"]


def test_processor_cannot_forward_outside_its_task() -> None:
    contexts: list[ProcessorContext] = []
    setup = Setup(init=contexts.append)

    with pytest.raises(
        StreamsError, match="'p': forward.. was called outside process.., punctuators and flush listeners"
    ):
        contexts[0].forward(Record("k", "v", 1))
    with pytest.raises(StreamsError, match="^processor 'p': schedule.. was called outside init.., process.. and punct"):
        contexts[0].schedule(1, PunctuationType.STREAM_TIME, print)
    assert setup.sent == []


def test_quarantine_topic_gets_record_as_it_was_read() -> None:
    def process(_context: ProcessorContext, record: Record) -> None:
        raise RuntimeError(f"boom {record.value}")

    def deserialize(_topic: str, data: bytes | None) -> str:
        if data == b"unreadable":
            raise ValueError("bad")
        return (data or b"").decode()

    config = ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.Serde(serdes.STRING.serialize, deserialize),
        deserialization_handler=handlers.quarantine,
        processing_handler=handlers.quarantine,
        quarantine_topic="bad-records",
    )
    setup = Setup(process, config=config)
    setup.add("a", [5], b"unreadable")
    setup.add("a", [6], b"v")
    setup.run()

    assert [(record.topic, record.timestamp, record.key, record.value) for record in setup.sent] == [
        ("bad-records", 5, b"k", b"unreadable"),
        ("bad-records", 6, b"k", b"v"),
    ]
    assert dict(setup.sent[1].headers) == {
        "zkconsumer.phase": b"processing",
        "zkconsumer.task": b"0_0",
        "zkconsumer.node": b"p",
        "zkconsumer.error": b"RuntimeError: boom v",
        "zkconsumer.topic": b"a",
        "zkconsumer.partition": b"0",
        "zkconsumer.offset": b"1",
    }
    assert setup.task.metrics["dropped"] == 2


def test_handlers_get_record_that_failed() -> None:
    seen: list[tuple[str, str, Record | None]] = []

    def handler(context: ErrorContext, _error: Exception) -> handlers.ErrorResponse:
        seen.append((context.phase, context.node, context.failed))
        return handlers.ErrorResponse.CONTINUE

    def fail(_context: ProcessorContext, record: Record) -> None:
        raise RuntimeError(record.value)

    def read(_topic: str, data: bytes | None) -> str:
        return (data or b"").decode("ascii")

    topology = Topology().add_source("src", "in", value_deserializer=read)
    topology.add_processor(
        "map", lambda: Calling(lambda context, record: context.forward(record.with_value([record.value]))), "src"
    )
    topology.add_processor("p", lambda: Calling(fail, schedule(1, PunctuationType.STREAM_TIME, int)), "map")
    topology.add_processor(
        "q", lambda: Calling(init=schedule(1, PunctuationType.STREAM_TIME, lambda _now: [][0])), "src"
    )
    topology.add_sink("out", "out", "map", value_serializer=serdes.STRING.serialize)
    config = ApplicationConfig(deserialization_handler=handler, processing_handler=handler, production_handler=handler)
    with TopologyTestDriver(topology, config) as driver:
        for value in (b"v", b"\xff"):
            driver.create_input_topic("in").pipe_input(b"k", value, 7)

    mapped = Record(b"k", ["v"], 7)
    assert seen == [
        ("processing", "p", mapped),
        ("production", "out", mapped),
        ("punctuation", "q", None),
        ("deserialization", "src", None),
    ]


def test_handler_must_return_response() -> None:
    def process(*_arguments: object) -> None:
        raise RuntimeError("boom")

    setup = Setup(process, config=ApplicationConfig(processing_handler=lambda *_: None))  # type: ignore[arg-type]
    setup.add("a", [1])

    with pytest.raises(StreamsError, match="node 'p', .*the error handler must return an ErrorResponse, got None"):
        setup.run()


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"topic": lambda *_: None}, "the topic extractor must return a non-empty str, got None"),
        ({"topic": lambda *_: [][0]}, "IndexError: list index out of range"),
        ({"partitioner": lambda *_: -1}, "partition numbers between 0 and 0, got -1"),
        ({"partitioner": lambda *_: 1}, "partition numbers between 0 and 0, got 1"),
        ({"partitioner": lambda *_: {0, 7}}, "the partitioner must return None or partition numbers .*, got {0, 7}"),
        ({"partitioner": lambda *_: "0"}, "the partitioner must return None or partition numbers .*, got '0'"),
        ({"partitioner": lambda *_: 0.5}, "the partitioner must return None or partition numbers .*, got 0.5"),
    ],
)
def test_errors_of_sink_functions_name_sink(sink: Any, message: str) -> None:
    topology = Topology().add_source("src", "in").add_sink("sink", sink.pop("topic", "out"), "src", **sink)
    with (
        TopologyTestDriver(topology, TEXT) as driver,
        pytest.raises(StreamsError, match=f"task 0_0, topic in, partition 0, offset 0: sink 'sink': .*{message}"),
    ):
        driver.create_input_topic("in").pipe_input("k", "v")


@pytest.mark.parametrize(
    ("selected", "partitions"),
    [(None, [None]), (2, [2]), ({3, 1}, [1, 3]), ([0, 0], [0]), (range(4), [0, 1, 2, 3]), ((), [])],
)
def test_partitioner_selects_partitions(selected: Any, partitions: list[int | None]) -> None:
    # Source: Kafka 3.9 RecordCollectorTest.shouldBroadcastToAllPartitions, shouldSendOnlyToEvenPartitions,
    # shouldDropAllRecords, shouldUseDefaultPartitionerViaPartitions
    topology = Topology().add_source("src", "in").add_sink("sink", "out", "src", partitioner=lambda *_: selected)
    runtime = TaskRuntime(
        clock=lambda: 0,
        pages=lambda _: MemoryPages(),
        commit=int,
        rollback=int,
        partition_count=lambda _topic: 4,
    )
    partition = TopicPartition("in", 0)
    task = topology.combine().task(0, ApplicationConfig(), runtime)
    task.initialize()
    task.add_records(partition, [SourceRecord("in", 0, 0, 0, b"k", b"v")])
    task.process()

    assert [record.partition for record in task.take_output().records()] == partitions
    assert task.metrics["dropped"] == (not partitions)


@pytest.mark.parametrize("header", [("oops",), "oops", ("name", "text"), ("name", b"1", b"2")])
def test_invalid_header_that_was_appended_is_rejected(header: Any) -> None:
    def append_and_forward(context: ProcessorContext, record: Record) -> None:
        record.headers.append(header)
        context.forward(record)

    topology = Topology().add_source("src", "in")
    topology.add_processor(
        "p",
        lambda: Calling(append_and_forward),
        "src",
    )
    topology.add_sink("sink", "out", "p")
    with (
        TopologyTestDriver(topology) as driver,
        pytest.raises(StreamsError, match=r"node 'p', .*sink 'sink': a header must be a tuple \(str, bytes or None\)"),
    ):
        driver.create_input_topic("in").pipe_input(b"k", b"v")


def test_header_as_list_becomes_tuple() -> None:
    header: Any = ["trace", b"1"]

    def append_and_forward(context: ProcessorContext, record: Record) -> None:
        record.headers.append(header)
        context.forward(record)

    assert Record("k", "v", 1, [header]) == Record("k", "v", 1, [("trace", b"1")])
    topology = Topology().add_source("src", "in")
    topology.add_processor(
        "p",
        lambda: Calling(append_and_forward),
        "src",
    )
    with TopologyTestDriver(topology.add_sink("sink", "out", "p")) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v", headers=[header])

        [record] = driver.create_output_topic("out").read_records()
        assert record.headers == (("trace", b"1"), ("trace", b"1"))


@pytest.mark.parametrize(
    "setting",
    [
        {"max_task_idle_ms": "5"},
        {"max_task_idle_ms": -2},
        {"key_serde": "str"},
        {"production_handler": None},
        {"timestamp_extractor": 5},
    ],
)
def test_invalid_settings_name_the_option(setting: Any) -> None:
    [(name, value)] = setting.items()
    with pytest.raises(ConfigurationError, match=f"{name} must be .*, got {value!r}"):
        ApplicationConfig(**setting)


def test_quarantine_needs_topic() -> None:
    with pytest.raises(ConfigurationError, match="quarantine_topic must be set"):
        ApplicationConfig(production_handler=handlers.quarantine)


def test_handler_that_fails_ends_task() -> None:
    def handler(*_arguments: object) -> handlers.ErrorResponse:
        raise KeyError("handler")

    def process(*_arguments: object) -> None:
        raise RuntimeError("boom")

    setup = Setup(process, config=ApplicationConfig(processing_handler=handler))
    setup.add("a", [1])

    with pytest.raises(StreamsError, match="node 'p'.*KeyError: 'handler'"):
        setup.run()


def test_record_without_timestamp_needs_extractor() -> None:
    setup = Setup()
    with pytest.raises(
        StreamsError,
        match="node 'src-a', topic a, partition 0, offset 0: .*; set another timestamp_extractor for the source",
    ):
        setup.add("a", [-1])


@pytest.mark.parametrize(
    ("extractor", "expected"),
    [(timestamps.skip_on_invalid, [5, 3]), (timestamps.partition_time_on_invalid, [5, 5, 3, 5])],
)
def test_extractors_replace_missing_timestamps(extractor: timestamps.TimestampExtractor, expected: list[int]) -> None:
    seen = []
    setup = Setup(
        lambda _context, record: seen.append(record.timestamp), config=ApplicationConfig(timestamp_extractor=extractor)
    )
    setup.add("a", [5, -1, 3, -1])
    setup.run()

    assert seen == expected
    assert setup.task.metrics["dropped"] == 4 - len(expected)


def test_partition_time_needs_earlier_record() -> None:
    setup = Setup(config=ApplicationConfig(timestamp_extractor=timestamps.partition_time_on_invalid))
    with pytest.raises(
        StreamsError, match="offset 0: .* neither the record nor an earlier record of its partition has a timestamp"
    ):
        setup.add("a", [-1])


def test_wall_clock_extractor_returns_time_of_task() -> None:
    seen = []
    config = ApplicationConfig(timestamp_extractor=timestamps.wall_clock)
    setup = Setup(lambda _context, record: seen.append(record.timestamp), config=config)
    for setup.now_ms in (7_000, 8_000):
        setup.add("a", [5])
        setup.run()

    assert seen == [7_000, 8_000]


def test_wall_clock_extractor_of_source_uses_clock_of_driver() -> None:
    topology = Topology().add_source("src", "in", timestamp_extractor=timestamps.wall_clock)
    with TopologyTestDriver(topology.add_sink("sink", "out", "src"), now_ms=1_000) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v", 5)
        driver.advance_wall_clock_time(500)
        driver.create_input_topic("in").pipe_input(b"k", b"v", 5)

        assert [record.timestamp for record in driver.create_output_topic("out").read_records()] == [1_000, 1_500]


def test_counters_of_processors_are_metrics() -> None:
    setup = Setup(lambda context, _record: context.count("seen", 2))
    setup.add("a", [1, 2])
    setup.run()

    assert setup.task.metrics["p/seen"] == 4


def test_commit_request_is_kept_until_commit() -> None:
    setup = Setup(lambda context, _record: context.commit())
    setup.add("a", [1])
    setup.run()
    assert setup.task.commit_requested

    setup.task.commit()

    assert not setup.task.commit_requested


def test_global_store_is_read_only_for_other_processors() -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        table = context.get_state_store("table")
        context.forward(record.with_value(table.get(record.key)))
        table.put("k", "v")

    class Update(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._table = context.get_state_store("table")

        def process(self, record: Record) -> None:
            self._table.put(record.key, record.value)

    topology = Topology().add_source("src", "t").add_processor("p", lambda: Calling(process), "src")
    table = stores.key_value("table", serdes.STRING, serdes.STRING, logging=False)
    topology.add_global_store(table, "g-src", "table-topic", "g-proc", Update).add_sink("out", "out", "p")
    with TopologyTestDriver(topology, TEXT) as driver:
        driver.create_input_topic("table-topic").pipe_input("k", "joined")

        with pytest.raises(
            StreamsError, match="global store 'table' is read-only: only its own processor can update it"
        ):
            driver.create_input_topic("t").pipe_input("k", "v")
        assert driver.get_state_store("table").get("k") == "joined"


class Table(Processor):
    """Updates the global store ``table``, after a call of the test."""

    def __init__(self, use: Callable[[ProcessorContext], object], where: str) -> None:
        self._use, self._where = use, where

    def init(self, context: ProcessorContext) -> None:
        self._context, self._table = context, context.get_state_store("table")
        if self._where == "init":
            self._use(context)

    def process(self, record: Record) -> None:
        self._use(self._context)
        self._table.put(record.key, record.value)


@pytest.mark.parametrize("where", ["init", "process"])
@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda context: context.schedule(1, PunctuationType.STREAM_TIME, print),
            "processor 'g-proc': schedule.. is not available to the processor of a global store",
        ),
        (
            lambda context: context.schedule(1, PunctuationType.WALL_CLOCK_TIME, print),
            "processor 'g-proc': schedule.. is not available to the processor of a global store",
        ),
        (
            lambda context: context.current_stream_time_ms,
            "'g-proc'.*current_stream_time_ms is not available to the processor of a global store",
        ),
    ],
)
def test_global_store_has_no_schedules_and_stream_time(use: Any, message: str, where: str) -> None:
    # Source: Kafka 3.9 GlobalProcessorContextImpl.schedule, currentStreamTimeMs
    topology = Topology().add_source("src", "t")
    table = stores.key_value("table", logging=False)
    topology.add_global_store(table, "g-src", "table-topic", "g-proc", lambda: Table(use, where))
    if where == "init":
        with pytest.raises(StreamsError, match=message):
            TopologyTestDriver(topology)
        return
    with TopologyTestDriver(topology) as driver:
        with pytest.raises(StreamsError, match=message):
            driver.create_input_topic("table-topic").pipe_input(b"k", b"v")
        assert list(driver.get_state_store("table").all()) == []


def test_error_of_global_processor_recommends_no_handler() -> None:
    def fail(_context: ProcessorContext) -> None:
        raise RuntimeError("boom")

    topology = Topology().add_source("src", "t")
    table = stores.key_value("table", logging=False)
    topology.add_global_store(table, "g-src", "table-topic", "g-proc", lambda: Table(fail, ""))
    config = ApplicationConfig(processing_handler=handlers.log_and_continue)
    with (
        TopologyTestDriver(topology, config) as driver,
        pytest.raises(StreamsError, match="task global, node 'g-proc', .*: RuntimeError: boom$"),
    ):
        driver.create_input_topic("table-topic").pipe_input(b"k", b"v")


def unreadable(_topic: str, _data: bytes | None) -> str:
    raise ValueError("unreadable")


@pytest.mark.parametrize(
    ("deserializer", "timestamp", "message"),
    [
        (
            unreadable,
            0,
            "check the key and value deserializers of the source, or the default serdes$",
        ),
        (None, -1, "the record has no timestamp; records of a global store must have timestamps$"),
    ],
)
def test_errors_of_global_source_contain_remedy(deserializer: Any, timestamp: int, message: str) -> None:
    topology = Topology().add_source("src", "t")
    table = stores.key_value("table", logging=False)
    topology.add_global_store(
        table, "g-src", "table-topic", "g-proc", lambda: Table(print, ""), value_deserializer=deserializer
    )
    with TopologyTestDriver(topology) as driver, pytest.raises(StreamsError, match=message):
        driver.create_input_topic("table-topic").pipe_input(b"k", b"v", timestamp)


@pytest.mark.parametrize("topic", ["table-topic", "t"])
def test_quarantined_record_is_delivered_at_once(topic: str) -> None:
    topology = Topology().add_source("src", "t", value_deserializer=unreadable).add_source("other", "u")
    table = stores.key_value("table", logging=False)
    topology.add_global_store(
        table, "g-src", "table-topic", "g-proc", lambda: Table(print, ""), value_deserializer=unreadable
    )
    config = ApplicationConfig(
        deserialization_handler=handlers.quarantine, quarantine_topic="errors", max_task_idle_ms=60_000
    )
    with TopologyTestDriver(topology, config) as driver:
        driver.create_input_topic(topic).pipe_input(b"k", b"v")

        assert driver.create_output_topic("errors").read_key_values() == [(b"k", b"v")]


def test_failure_in_start_closes_tasks_and_keeps_first_error() -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("boom")

    class Failing(Table):
        def close(self) -> None:
            raise OSError("close")

    topology = Topology().add_source("src", "t").add_processor("p", lambda: Calling(init=fail), "src")
    table = stores.key_value("table", logging=False)
    topology.add_global_store(table, "g-src", "table-topic", "g-proc", lambda: Failing(print, ""))

    with pytest.raises(StreamsError, match=r"processor 'p': init\(\) failed: RuntimeError: boom") as failed:
        TopologyTestDriver(topology)
    assert failed.value.__notes__ == ["task global: processor 'g-proc': close() failed: OSError: close"]


def test_schedule_can_be_due_after_highest_timestamp() -> None:
    times: list[int] = []

    def init(context: ProcessorContext) -> None:
        context.schedule(1 << 63, PunctuationType.STREAM_TIME, times.append)

    setup = Setup(init=init)
    setup.task.update_lags()
    for times_of_a in ([5, 6], [(1 << 63) - 1]):
        setup.add("a", times_of_a)
        setup.task.run()

    assert times == [5]
    assert setup.task.queued == 0


@pytest.mark.parametrize("fails", [False, True])
def test_records_dropped_in_a_batch_are_in_one_event(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The task is committed after the batch. If the batch fails, the task is only closed."""
    setup = Setup(lambda context, _record: context.drop("unwanted"))
    setup.add("a", range(1_000))
    setup.run()
    assert "record_dropped" not in caplog.text
    if not fails:
        setup.task.commit()
    setup.task.close()

    [event] = [one.getMessage() for one in caplog.records]
    assert "event='record_dropped'" in event
    assert "offset=0 " in event
    assert event.endswith("records=1000")
