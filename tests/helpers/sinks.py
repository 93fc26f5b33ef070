"""Settings and input of the sink of a topology, and the records that it wrote."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Assigned

from helpers.waiting import wait_for
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.markers import encode_offsets
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.topology.handlers import fail

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def sink_settings(servers: str | None = None, **changes: Any) -> SinkSettings:
    """Return the settings of a sink that writes to the brokers ``servers``; ``changes`` replace the defaults."""
    default: dict[str, Any] = {
        "application_id": "app",
        "guarantee": ProcessingGuarantee.AT_LEAST_ONCE,
        "client": {} if servers is None else {"bootstrap.servers": servers},
        "producer": {},
        "has_sequence_headers": False,
        "partition_counts": {},
        "internal_topics": frozenset(),
        "fails_on_changed_output": True,
        "handler": fail,
        "quarantine_topic": None,
    }
    return SinkSettings(**{**default, **changes})


def output_of(
    topic: str | list[str], values: list[bytes], *, source: str, next_offset: int, sequence: int = 0, task: str = "0_0"
) -> TaskOutput:
    """Return the output of a task: records for ``topic``, or for one topic each, and the offset in ``source``."""
    count = len(values)
    topics = [topic] * count if isinstance(topic, str) else topic
    batch = pa.record_batch(
        {
            "topic": pa.array(topics).dictionary_encode(),
            "partition": pa.array([None] * count, pa.int32()),
            "timestamp": pa.array([1_000] * count, pa.int64()),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[("h", b"1")]] * count, HEADERS),
        }
    )
    partition = TopicPartition(source, int(task.partition("_")[2]))
    return TaskOutput(task, sequence, encode_offsets({partition: next_offset}), to_blob(batch))


def read_topic(servers: str, topic: str, count: int, isolation: str = "read_committed") -> list[Any]:
    """Return the records of a topic with one partition, after ``count`` of them can be read and no more follow."""
    return read_partitions(servers, topic, 1, count, isolation)[0]


def read_partitions(
    servers: str, topic: str, partitions: int, count: int, isolation: str = "read_committed"
) -> list[list[Any]]:
    """Return the records of each partition, after ``count`` of them can be read and no more follow."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[list[Any]] = [[] for _ in range(partitions)]
    ended: set[int] = set()

    def is_read() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found[message.partition()].append(message)
            else:
                ended.add(message.partition())
        return len(ended) == partitions and sum(map(len, found)) >= count

    try:
        consumer.assign([Assigned(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        wait_for(is_read, 30, what=f"{count} records of {topic}")
    finally:
        consumer.close()
    return found
