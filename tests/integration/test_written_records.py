"""Records with unusual values that a task writes to Kafka, and that the tasks of another sub-topology read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from random import Random

import pyarrow as pa
import pytest
from helpers import batches
from helpers.aliases import Cluster, Topics
from helpers.sinks import sink_settings
from helpers.topics import end_offsets

from zkconsumer.message import TopicPartition
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.spark.streams.cluster import ClusterState
from zkconsumer.spark.streams.dataframe import create_fetcher
from zkconsumer.spark.streams.fetching import FetchRange
from zkconsumer.spark.streams.markers import Marker, encode_offsets
from zkconsumer.spark.streams.output import (
    SEQUENCE_HEADER,
    TIMESTAMP_HEADER,
    ProcessingGuarantee,
    TaskOutput,
    restore_timestamps,
)
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.spark.streams.task_writer import TaskWriters
from zkconsumer.topology.handlers import log_and_continue
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.records import Header, SinkRecord, SourceRecord
from zkconsumer.topology.murmur2 import murmur2

#: Key, value, timestamp and headers of a record.
SourceFields = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]

PARTITIONS = 3
#: ``max.message.bytes`` of the topics.
LIMIT = 3_000
QUERY = "6f1c2b9e-0d1a-4a41-9d9c-0d6a8d0f7a35"

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Generator:
    """Generates the output of a task with sequence numbers from 0.

    Args:
        rng: source of all random choices.
        topics: output topics; the last one is an internal topic.
        has_sequence_headers: whether the writer adds sequence headers.
    """

    def __init__(self, rng: Random, topics: Sequence[str], *, has_sequence_headers: bool) -> None:
        self._rng, self._topics, self._has_sequence_headers = rng, topics, has_sequence_headers
        self.records: list[SinkRecord] = []

    def add(self) -> None:
        """Add a record. Its size is sometimes close to the limit of its topic."""
        rng = self._rng
        headers: tuple[Header, ...] = rng.choice(
            [(), (), (("h", b"1"),), (("h", b""), ("h", None), ("", b"2"), ("\u00e4", b"\xff"))]
        )
        record = SinkRecord(
            topic=rng.choice(self._topics),
            partition=rng.choice([None, None, 0, PARTITIONS - 1]),
            timestamp=rng.choice([0, 0, 1, 2, 1_000, 1 << 41]),
            key=rng.choice([None, b"", b"a", b"b", b"\x00"]),
            value=rng.choice([None, b"", b"v", b"\x00\xff" * 50]),
            headers=headers,
        )
        number = len(self.records)
        if rng.random() < 0.1:
            record = record._replace(value=b"v" * 2_000)
            missing = LIMIT - self.measure(number, record)
            record = record._replace(value=b"v" * (2_000 + missing + rng.choice([-1, 0, 1])))
        self.records.append(record)

    def measure(self, number: int, record: SinkRecord) -> int:
        """Return the size of a record batch with one record as it is written."""
        _, _, timestamp, key, value, headers = record
        added = [*headers, *self.list_added(number, record)]
        if timestamp == 0 and record.topic == self._topics[-1]:
            added.append((TIMESTAMP_HEADER, b"0"))
        return len(batches.batch([batches.Record(0, timestamp, key, value, tuple(added))]))

    def list_added(self, number: int, record: SinkRecord) -> list[Header]:
        """Return the headers that readers of the topic find in addition to those of the record."""
        if not self._has_sequence_headers or record.topic == self._topics[-1]:
            return []
        return [(SEQUENCE_HEADER, f"{QUERY[:8]}:0_0:{number}".encode())]

    def list_written(self, topic: str, partition: int) -> list[SourceFields]:
        """Return the expected records of a partition, in order."""
        replaced = int(topic != self._topics[-1])
        return [
            (one.key, one.value, one.timestamp or replaced, (*one.headers, *self.list_added(number, one)))
            for number, one in enumerate(self.records)
            if one.topic == topic and find_partition(number, one) == partition and self.measure(number, one) <= LIMIT
        ]


def create_output(records: list[SinkRecord]) -> TaskOutput:
    headers = [[{"key": name, "value": value} for name, value in one.headers] or None for one in records]
    batch = pa.record_batch(
        {
            "topic": pa.array([one.topic for one in records]).dictionary_encode(),
            "partition": pa.array([one.partition for one in records], pa.int32()),
            "timestamp": pa.array([one.timestamp for one in records], pa.int64()),
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    return TaskOutput("0_0", 0, encode_offsets({TopicPartition(records[0].topic, 0): 1}), to_blob(batch))


def read_task_input(cluster: Cluster, topic: str) -> list[list[SourceRecord]]:
    """Return the records of each partition, as they are added to the queues of tasks."""
    ends = end_offsets(cluster, topic, PARTITIONS)
    brokers = tuple(parse_bootstrap(cluster.bootstrap_servers))
    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    state = ClusterState({topic: PARTITIONS}, brokers)
    fetcher = create_fetcher({**properties, "isolation.level": "read_committed"}, [topic], state)
    ranges = {
        TopicPartition(topic, number): FetchRange(0, end, None, brokers, None) for number, end in ends.items() if end
    }
    found: list[list[SourceRecord]] = [[] for _ in range(PARTITIONS)]
    for partition, fetched in fetcher.fetch(ranges).items():
        for batch in restore_timestamps(fetched.combine_chunks()).to_batches():
            columns = SourceColumns.from_arrow(topic, partition.partition, batch)
            found[partition.partition] += map(columns.record, range(columns.rows))
    return found


def find_partition(number: int, record: SinkRecord) -> int:
    """Return the partition that a record must be written to; ``number`` is its sequence number."""
    if record.partition is not None:
        return record.partition
    if record.key is None:
        return number // 100 % PARTITIONS
    return (murmur2(record.key) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.parametrize("guarantee", list(ProcessingGuarantee), ids=lambda one: one.value)
@pytest.mark.parametrize(
    ("seed", "count"), [(0, 40), *(pytest.param(seed, 150, marks=pytest.mark.slow) for seed in range(1, 9))]
)
def test_other_subtopology_reads_written_records(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, guarantee: ProcessingGuarantee, seed: int, count: int
) -> None:
    """Only the timestamp 0 and headers are changed, and records above the limit of their topic are skipped."""
    rng = Random(seed)
    sink, internal = (topic(PARTITIONS, config={"max.message.bytes": str(LIMIT)}) for _ in range(2))
    is_transactional = guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    settings = sink_settings(
        zkconsumer_cluster.bootstrap_servers,
        application_id=group,
        guarantee=guarantee,
        has_sequence_headers=not is_transactional,
        partition_counts={sink: PARTITIONS, internal: PARTITIONS},
        internal_topics=frozenset({internal}),
        handler=log_and_continue,
    )
    generated = Generator(rng, [sink, internal], has_sequence_headers=not is_transactional)
    for _ in range(count):
        generated.add()
    with closing(TaskWriters()) as writers:
        writers.write(settings.encode(), create_output(generated.records), Marker(QUERY, 0), None)

    assert any(generated.measure(number, one) > LIMIT for number, one in enumerate(generated.records))
    for name in (sink, internal):
        for number, of_partition in enumerate(read_task_input(zkconsumer_cluster, name)):
            found = [(one.key, one.value, one.timestamp, one.headers) for one in of_partition]
            assert found == generated.list_written(name, number), f"{name} partition {number}"
