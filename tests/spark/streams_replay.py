"""What an application must have done: its tasks in memory, with the records and ticks in the log of its checkpoint."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from aliases import Cluster

from zkconsumer.spark.streams.checkpoint import FILE, StoredApplication
from zkconsumer.spark.streams.plan import ApplicationPlan
from zkconsumer.topology import ApplicationConfig, SourceRecord, Topology
from zkconsumer.topology.subtopology import Subtopology

from .scenario_query import TaskResult, open_session, read_states
from .scenario_steps import Step
from .scenarios import Case, create_subtopology

#: Spark keeps the offsets of all batches with this setting.
KEEP_BATCHES = {"spark.sql.streaming.minBatchesToRetain": "100000"}


class LoggedBatch(NamedTuple):
    """A batch in the checkpoint.

    Attributes:
        ranges: first offset and end offset of the records, by partition.
        tick_ms: time of its tick; None if it has none.
    """

    ranges: Mapping[int, tuple[int, int]]
    tick_ms: int | None


def read_log(checkpoint: Path, topic: str) -> list[LoggedBatch]:
    """Return the batches of a checkpoint, all of which must be committed.

    Args:
        checkpoint: its directory.
        topic: the topic that the application reads.
    """
    numbers = _list_numbers(checkpoint / "offsets")
    assert numbers == list(range(len(numbers)))
    assert numbers == _list_numbers(checkpoint / "commits")
    batches, last_records, last_ms = [], "-", 0
    for number in numbers:
        _version, _metadata, of_records, of_ticks = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        # The same offset as before means that the batch has no records.
        ranges = {} if of_records in ("-", last_records) else json.loads(of_records)["ranges"].get(topic, {})
        time_ms = last_ms if of_ticks == "-" else json.loads(of_ticks)["time"]
        tick_ms = time_ms if time_ms > last_ms else None
        batches.append(LoggedBatch({int(key): tuple(value) for key, value in ranges.items()}, tick_ms))
        last_records, last_ms = of_records, time_ms
    return batches


def _list_numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


def read_source(cluster: Cluster, topic: str, ends: Mapping[int, int]) -> dict[int, list[SourceRecord]]:
    """Return the records of a topic by partition, whose first offset must be 0.

    Args:
        cluster: the cluster.
        topic: name of the topic.
        ends: end offset of each partition.
    """
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    records: dict[int, list[SourceRecord]] = {number: [] for number in ends}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in ends])
        while any(len(records[number]) < end for number, end in ends.items()):
            messages = consumer.consume(1_000, 5)
            assert messages, f"records of topic {topic} are missing"
            for message in messages:
                assert message.error() is None, message.error()
                number = message.partition()
                assert message.offset() == len(records[number])
                _, time_ms = message.timestamp()
                record = SourceRecord(topic, number, message.offset(), time_ms, message.key(), message.value())
                records[number].append(record)
    finally:
        consumer.close()
    return records


class Replay:
    """The tasks of an application with one topic, and their results in memory and in the checkpoint.

    Args:
        topology: the topology, whose only store is the key-value store ``counts``.
        records: its records by partition.
        batches: the batches of the checkpoint.
    """

    def __init__(
        self, topology: Topology, records: Mapping[int, list[SourceRecord]], batches: list[LoggedBatch]
    ) -> None:
        [topic] = {record.topic for of_partition in records.values() for record in of_partition}
        self._counts = {topic: len(records)}
        [subtopology] = topology.resolve(self._counts).subtopologies.values()
        self._subtopology: Subtopology = subtopology
        steps = [_create_steps(records[number], number, batches) for number in range(len(records))]
        self._case = Case(
            request={},
            subtopology=create_subtopology(subtopology, subtopology.number, ApplicationConfig()),
            kinds={"counts": "key_value"},
            steps=steps,
        )
        self._expected = [self._case.expect(number) for number in range(len(records))]

    def list_outputs(self) -> dict[bytes, list[tuple[bytes, int]]]:
        """Return value and timestamp of the expected records in their order, by key."""
        outputs: defaultdict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
        for of_task in self._expected:
            for of_batch in of_task.outputs:
                for _topic, _partition, key, value, time_ms, _headers in of_batch:
                    outputs[key.encode()].append((value.encode(), time_ms))
        return dict(outputs)

    def check_states(self, spark: Any, checkpoint: Path) -> None:
        """Raise AssertionError if stores, schedules or metrics of the checkpoint differ from the expected ones."""
        stored = StoredApplication.from_json((checkpoint / FILE).read_text(), str(checkpoint))
        plan = ApplicationPlan.create(
            {self._subtopology.number: self._subtopology},
            ApplicationConfig(),
            self._counts,
            stored.tasks,
            stored.partitions,
        )
        results = {number: TaskResult() for number in stored.tasks}
        read_states(open_session(spark), plan, checkpoint, results)
        for number, result in results.items():
            expected = self._expected[number.partition].state
            found = result.restore(self._case, number.partition)._replace(batches=expected.batches)
            for name in expected._fields:
                assert getattr(found, name) == getattr(expected, name), f"task {number.task_id}, {name}"
            assert result.list_unused_pages(self._case) == []


def _create_steps(records: list[SourceRecord], partition: int, batches: list[LoggedBatch]) -> list[Step]:
    """Return what a task receives in each batch, and check that the batches have each record once."""
    steps, position = [], 0
    for batch in batches:
        start, end = batch.ranges.get(partition, (position, position))
        assert start == position, f"partition {partition}: a batch starts at {start}, the one before ends at {position}"
        step = Step(records[start:end], batch.tick_ms)
        if not step.is_empty:
            steps.append(step)
        position = end
    assert position == len(records), f"partition {partition}: the last batch ends at {position} of {len(records)}"
    return steps
