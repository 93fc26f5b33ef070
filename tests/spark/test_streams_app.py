"""Topologies on Spark: outputs, stores and schedules are those of a task that processes the same records."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.waiting import wait_for

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError, TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.spark.streams.progress import Progress
from zkconsumer.spark.streams.supervisor import ExceptionResponse
from zkconsumer.topology import (
    ApplicationConfig,
    ApplicationState,
    SourceRecord,
    TaskRuntime,
    Topology,
    stores,
)

from .streams_output import Output

sys.path.append(str(Path(__file__).parent / "on_path"))

_topologies: Any = importlib.import_module("streams_topologies")
counting: Callable[[str, str], Topology] = _topologies.counting
looking: Callable[[str, str, str], Topology] = _topologies.looking
copying: Callable[[str, str], Topology] = _topologies.copying

PARTITIONS = 3


def values_of(rng: random.Random, count: int) -> list[bytes]:
    return [b"key %d" % rng.randrange(20) for _ in range(count)]


def expected_of(
    topology: Topology, topic: str, partition: int, values: list[bytes], time_ms: int, step: int = 1_000_000
) -> list[Any]:
    """Return the output of a task that processes the records of a partition.

    The time of each ``step`` records is that of the ones before, and ``step`` milliseconds.
    """
    runtime = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)
    task = topology.resolve({topic: PARTITIONS}).subtopologies[0].task(partition, ApplicationConfig(), runtime)
    task.initialize()
    records = [
        SourceRecord(topic, partition, number, time_ms + number // step * step, None, value)
        for number, value in enumerate(values)
    ]
    task.add_records(TopicPartition(topic, partition), records)
    task.run()
    return [(record.key, record.value) for record in task.take_output().records()]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"processing_guarantee": "exactly_once_v2", "has_zookeeper": False}, marks=pytest.mark.slow)],
    ids=["at_least_once", "exactly_once"],
)
def test_application_continues_from_its_checkpoint(
    app: Callable[..., StreamsApp],
    topic: Topics,
    admin: Admin,
    output_of: Callable[[str], Output],
    settings: dict[str, Any],
) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    output = output_of(sink)
    rng = random.Random(5)
    values = {partition: values_of(rng, 400) for partition in range(PARTITIONS)}
    topology = counting(source, sink)
    states: list[ApplicationState] = []
    batches: list[Progress] = []

    def record(new: ApplicationState, _old: ApplicationState) -> None:
        states.append(new)

    expected = sorted(
        output for partition in values for output in expected_of(topology, source, partition, values[partition], 1_000)
    )
    for part in (slice(0, 150), slice(150, 400)):
        for partition, of_partition in values.items():
            admin.produce(TopicPartition(source, partition), batch(of_partition[part], timestamp_ms=1_000))
        running = app(topology, **settings)
        running.set_state_listener(record)
        running.set_progress_listener(batches.append)
        running.start()
        wait_for(partial(output.has_all, PARTITIONS * (part.stop + 1)), 90, what="all records are written")
        assert running.close()
        assert batches[-1] == running.progress

    assert sorted(output.read()) == expected
    assert (
        states
        == [
            ApplicationState.REBALANCING,
            ApplicationState.RUNNING,
            ApplicationState.PENDING_SHUTDOWN,
            ApplicationState.NOT_RUNNING,
        ]
        * 2
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_checkpoint_of_another_topology_is_rejected(app: Callable[..., StreamsApp], topic: Topics) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    first = app(counting(source, sink))
    first.start()
    with pytest.raises(StreamsError, match="is already running in process .*, which holds znode .*/application; stop"):
        app(counting(source, sink)).start()
    first.close()
    changed = counting(source, sink).add_state_store(stores.key_value("more"), "count")

    other = app(changed)
    with pytest.raises(StreamsError, match=r'was written with a different topology.*\n(.*\n)*\+.*"name": "more"'):
        other.start()
    assert other.state is ApplicationState.ERROR


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_application_ends_when_everything_is_processed_and_starts_again_after_clean_up(
    app: Callable[..., StreamsApp], topic: Topics, admin: Admin, output_of: Callable[[str], Output]
) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    output, topology = output_of(sink), counting(source, sink)
    admin.produce(TopicPartition(source, 0), batch([b"a", b"b", b"a"], timestamp_ms=1_000))
    settings: dict[str, Any] = {
        "available_now": True,
        "wall_clock_punctuation": False,
        "processing_guarantee": "exactly_once_v2",
    }

    def run() -> StreamsApp:
        running = app(topology, **settings)
        running.start()
        assert running.wait(100)
        return running

    def numbers() -> list[tuple[bytes, int]]:
        return [(key, int.from_bytes(value)) for key, value in output.read()]

    run()
    assert [pair for pair in numbers() if pair[0] != b"total"] == [(b"a", 1), (b"b", 1), (b"a", 2)]
    count = len(numbers())
    admin.produce(TopicPartition(source, 0), batch([b"a"], timestamp_ms=1_100))
    ended = run()
    assert numbers()[count:] == [(b"a", 3)]
    assert re.match(r"batch \d+ took ", str(ended.progress))
    assert "1 records processed" in str(ended.progress)

    deleted = ended.clean_up()
    assert [text.split()[0] for text in deleted] == ["committed", "committed", "checkpoint"], deleted
    assert ended.clean_up() == []
    count = len(numbers())
    run()
    assert [pair for pair in numbers()[count:] if pair[0] == b"a"] == [(b"a", 1), (b"a", 2), (b"a", 3)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_tasks_read_a_global_store(
    app: Callable[..., StreamsApp], topic: Topics, admin: Admin, output_of: Callable[[str], Output]
) -> None:
    source, words, sink = topic(2), topic(2), topic(1)
    output, topology = output_of(sink), looking(source, words, sink)
    admin.produce(TopicPartition(words, 1), batch([b"apple"], timestamp_ms=1_000))
    admin.produce(TopicPartition(source, 0), batch([b"a", b"b"], timestamp_ms=1_000))

    def numbers() -> list[tuple[bytes, int]]:
        return [(key, int.from_bytes(value, signed=True)) for key, value in output.read()]

    def is_known() -> bool:
        """Produce a record, because the store changes with the ticks."""
        admin.produce(TopicPartition(source, 1), batch([b"b"], timestamp_ms=1_000))
        return (b"b", 4) in numbers()

    running = app(topology, trigger_ms=200)
    running.start()
    wait_for(lambda: numbers() == [(b"a", 5), (b"b", -1)], 90, what="the store has its first record")
    admin.produce(TopicPartition(words, 0), batch([b"bear"], timestamp_ms=1_000))
    wait_for(is_known, 60, what="the store has its second record")
    assert running.close()
    again = app(topology, available_now=True)
    admin.produce(TopicPartition(source, 0), batch([b"a2", b"b2"], timestamp_ms=1_000))
    again.start()
    assert again.wait(60)
    assert set(numbers()) >= {(b"a2", 5), (b"b2", 4)}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_new_topics_and_partitions_are_read(
    app: Callable[..., StreamsApp],
    topic: Topics,
    admin: Admin,
    output_of: Callable[[str], Output],
    unique: Callable[[str], str],
) -> None:
    prefix, sink = unique("in"), topic(1)
    first = topic(1, name=f"{prefix}.1")
    output = output_of(sink)
    pattern = f"{prefix}\\..*"
    running = app(copying(pattern, sink), trigger_ms=200, properties={"metadata.max.age.ms": "1000"})
    running.start()
    for source, partition, value in ((first, 0, b"1"), (topic(1, name=f"{prefix}.2"), 0, b"2"), (first, 1, b"3")):
        if partition:
            admin.create_partitions(first, 2)
        admin.produce(TopicPartition(source, partition), batch([value], timestamp_ms=1_000))
        wait_for(partial(output.has_value, value), 60, what=f"{value!r} is copied")
    assert [value for _, value in output.read()] == [b"1", b"2", b"3"]
    assert running.state is ApplicationState.RUNNING


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_lost_checkpoint_is_detected(
    app: Callable[..., StreamsApp], topic: Topics, admin: Admin, checkpoint: Path
) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    admin.produce(TopicPartition(source, 0), batch([b"a"], timestamp_ms=1_000))
    settings: dict[str, Any] = {"available_now": True, "processing_guarantee": "exactly_once_v2"}
    running = app(counting(source, sink), **settings)
    running.start()
    assert running.wait(100)

    checkpoint.rename(checkpoint.with_name("moved"))
    with pytest.raises(StreamsError, match="has no batches, but group .* offset 1 .*query .*clean_up"):
        app(counting(source, sink), **settings).start()
    checkpoint.with_name("moved").rename(checkpoint)
    again = app(counting(source, sink), **settings)
    again.start()
    assert again.wait(100)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_failed_application_is_restarted_and_then_stopped(
    app: Callable[..., StreamsApp], topic: Topics, admin: Admin, output_of: Callable[[str], Output]
) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    output = output_of(sink)
    running = app(counting(source, sink), has_zookeeper=False)
    errors: list[BaseException] = []

    def decide(error: BaseException) -> ExceptionResponse:
        errors.append(error)
        return ExceptionResponse.REPLACE_QUERY if len(errors) == 1 else ExceptionResponse.SHUTDOWN

    running.set_uncaught_exception_handler(decide)
    admin.produce(TopicPartition(source, 0), batch([b"a"], timestamp_ms=1_000))
    running.start()
    wait_for(partial(output.has_all, 2), 90, what="the first record is counted")
    wait_for(lambda: running.task_metrics.get("0_0", {}).get("processed") == 1, what="the metrics have the record")
    admin.produce(TopicPartition(source, 0), batch([b"b", b"fail"], timestamp_ms=1_000))

    with pytest.raises(StreamsError, match="failed: .*task 0_0, node 'count', topic .*, offset 2: ValueError: planned"):
        running.wait(90)
    assert running.state is ApplicationState.ERROR
    assert len(errors) == 2
    assert len(output.read()) == 2  # nothing of the batch that failed


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_application_that_was_closed_or_never_started_ends(app: Callable[..., StreamsApp], topic: Topics) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    never_started = app(counting(source, sink))
    assert never_started.close()
    with pytest.raises(StreamsError, match="a StreamsApp can be started only once; its state is NOT_RUNNING"):
        never_started.start()

    running = app(counting(source, sink))
    running.set_state_listener(fail)
    running.set_progress_listener(fail)
    running.start()
    with pytest.raises(StreamsError, match="a StreamsApp can be started only once; its state is RUNNING"):
        running.start()
    with pytest.raises(
        StreamsError, match=r"a progress listener can be set only before start\(\); the state is RUNNING"
    ):
        running.set_progress_listener(fail)
    assert running.close()
    assert running.close()
    assert running.state is ApplicationState.NOT_RUNNING
    assert running.wait(0)

    missing = app(counting("missing", sink))
    with pytest.raises(TopologyError, match="source topics do not exist: missing"):
        missing.start()
    assert missing.state is ApplicationState.ERROR
    assert missing.close()


def fail(*_: object) -> None:
    raise ValueError("planned")


def test_properties_of_kafka_streams_start_application(
    spark: Any,
    zkconsumer_cluster: Cluster,
    topic: Topics,
    admin: Admin,
    output_of: Callable[[str], Output],
    group: str,
    checkpoint: Path,
) -> None:
    source, sink = topic(1), topic(1)
    admin.produce(TopicPartition(source, 0), batch([b"a", b"b"]))
    properties = {
        "application.id": group,
        "bootstrap.servers": zkconsumer_cluster.bootstrap_servers,
        "commit.interval.ms": "200",
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": "2",
        "producer.linger.ms": "0",
    }
    with StreamsApp.from_properties(copying(source, sink), properties, spark, checkpoint):
        output = output_of(sink)
        wait_for(lambda: output.has_all(2), 60, what="all records were copied")
    assert [value for _, value in output.read()] == [b"a", b"b"]
