"""What an application must have done: its tasks in memory, with the records and ticks in the log of its checkpoint."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from helpers.aliases import Cluster
from helpers.operator_input import GivenRecords
from helpers.waiting import wait_for

from zkconsumer.spark.streams.checkpoint import StoredApplication
from zkconsumer.spark.streams.checkpoint_directory import FILE
from zkconsumer.spark.streams.output import TIMESTAMP_HEADER
from zkconsumer.spark.streams.plan import ApplicationPlan
from zkconsumer.topology import ApplicationConfig, SourceRecord, Topology
from zkconsumer.topology.subtopology import Subtopology

from .scenarios.cases import Case, create_subtopology
from .scenarios.query import TaskResult, open_session, read_states
from .scenarios.steps import Step

#: Spark keeps the offsets of all batches with this setting.
KEEP_BATCHES = {"spark.sql.streaming.minBatchesToRetain": "100000"}


class LoggedBatch(NamedTuple):
    """A batch in the checkpoint.

    Attributes:
        ranges: first offset and end offset of the records, by topic and partition.
        tick_ms: time of its tick; None if it has none.
    """

    ranges: Mapping[tuple[str, int], tuple[int, int]]
    tick_ms: int | None


def read_log(checkpoint: Path) -> list[LoggedBatch]:
    """Return the batches of a checkpoint, all of which must be committed.

    This is the case after a run with ``available_now``. A stopped application can leave a batch that was planned only.
    """
    numbers = _list_numbers(checkpoint / "offsets")
    assert numbers == list(range(len(numbers)))
    assert numbers == _list_numbers(checkpoint / "commits")
    batches, last_records, last_ms = [], "-", 0
    for number in numbers:
        _version, _metadata, of_records, of_ticks = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        # The same offset as before means that the batch has no records.
        ranges = {} if of_records in ("-", last_records) else json.loads(of_records)["ranges"]
        time_ms = last_ms if of_ticks == "-" else json.loads(of_ticks)["time"]
        tick_ms = time_ms if time_ms > last_ms else None
        by_partition = {
            (topic, int(key)): tuple(value) for topic, of_topic in ranges.items() for key, value in of_topic.items()
        }
        batches.append(LoggedBatch(by_partition, tick_ms))
        last_records, last_ms = of_records, time_ms
    return batches


def _list_numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


class TopicReader:
    """Reads committed records in a thread, before the application deletes those of internal topics.

    Args:
        cluster: the cluster.
        counts: number of partitions by topic.

    Attributes:
        records: the records so far, by topic and partition.
    """

    def __init__(self, cluster: Cluster, counts: Mapping[str, int]) -> None:
        self._cluster, self._counts = cluster, counts
        partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
        self.records: dict[tuple[str, int], list[SourceRecord]] = {partition: [] for partition in partitions}
        self._ends = dict.fromkeys(partitions, -1)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(*partition, 0) for partition in partitions])
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-topic-reader", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all records up to the current end offsets were read, and stop."""
        ends = {
            (topic, number): end
            for topic, count in self._counts.items()
            for number, end in self._cluster.admin.offsets(topic, count).items()
        }

        def has_read_all() -> bool:
            assert self._error is None, self._error
            return all(self._ends[partition] >= end for partition, end in ends.items())

        try:
            wait_for(has_read_all, 60, what="all records are read")
        finally:
            self.close()

    def close(self) -> None:
        """Stop. A second call has no effect."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                message = self._consumer.poll(0.1)
                if message is not None:
                    self._add(message)
        except BaseException as error:
            self._error = error
        finally:
            self._consumer.close()

    def _add(self, message: Any) -> None:
        partition, error = (message.topic(), message.partition()), message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            self._ends[partition] = message.offset()
            return
        _, time_ms = message.timestamp()
        headers = message.headers() or []
        if (TIMESTAMP_HEADER, b"0") in headers:  # a record of an internal topic
            headers.remove((TIMESTAMP_HEADER, b"0"))
            time_ms = 0
        record = SourceRecord(*partition, message.offset(), time_ms, message.key(), message.value(), tuple(headers))
        self.records[partition].append(record)


class Replay:
    """The tasks of an application with one topic, and their results in memory and in the checkpoint.

    Args:
        topology: the topology, whose only store is the key-value store ``counts``.
        records: its records by topic and partition.
        batches: the batches of the checkpoint.
    """

    def __init__(
        self, topology: Topology, records: Mapping[tuple[str, int], list[SourceRecord]], batches: list[LoggedBatch]
    ) -> None:
        [topic] = {topic for topic, _ in records}
        self._counts = {topic: len(records)}
        [subtopology] = topology.resolve(self._counts).subtopologies.values()
        self._subtopology: Subtopology = subtopology
        steps = [create_steps({topic: records[topic, number]}, number, batches) for number in range(len(records))]
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
            GivenRecords(),
        )
        results = {number: TaskResult() for number in stored.tasks}
        read_states(open_session(spark), plan, checkpoint, results)
        for number, result in results.items():
            expected = self._expected[number.partition].state
            found = result.restore(self._case, number.partition)._replace(batches=expected.batches)
            for name in expected._fields:
                assert getattr(found, name) == getattr(expected, name), f"task {number.task_id}, {name}"
            assert result.list_unused_pages(self._case) == []


def create_steps(records: Mapping[str, list[SourceRecord]], partition: int, batches: list[LoggedBatch]) -> list[Step]:
    """Return what a task receives in each batch, and check that the batches have each record once.

    Args:
        records: the records of its partition, by topic.
        partition: partition number of the task.
        batches: the batches of the checkpoint.
    """
    steps, positions = [], dict.fromkeys(records, 0)
    for batch in batches:
        received: list[SourceRecord] = []
        ends = {topic: batch.ranges[topic, partition][1] for topic in records if (topic, partition) in batch.ranges}
        for topic, of_topic in records.items():
            position = positions[topic]
            start, end = batch.ranges.get((topic, partition), (position, position))
            assert start == position, (
                f"{topic}/{partition}: a batch starts at {start}, the one before ends at {position}"
            )
            received += [record for record in of_topic if start <= record.offset < end]
            positions[topic] = end
        step = Step(received, batch.tick_ms, ends=ends)
        if not step.is_empty:
            steps.append(step)
    for topic, of_topic in records.items():
        last, end = (of_topic[-1].offset if of_topic else -1), positions[topic]
        assert last < end, f"{topic}/{partition}: the last batch ends at {end}, the last record is {last}"
    return steps
