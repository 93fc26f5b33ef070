"""The size of the records that wait in a queue."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.records import Header, Record, SourceRecord
from zkconsumer.topology.task.partition_group import PartitionGroup
from zkconsumer.topology.task.queues import RecordQueue

PARTITION = TopicPartition("in", 0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Deserializer:
    """Deserializes whole batches, or one record at a time and drops records without a value."""

    def __init__(self, is_columnar: bool) -> None:
        self._is_columnar = is_columnar

    def deserialize(self, source: SourceRecord, partition_time_ms: int) -> Record | None:
        return None if source.value is None else Record(source.key, source.value, source.timestamp, source.headers)

    def deserialize_columns(self, columns: SourceColumns) -> tuple[list[Any], list[Any]] | None:
        lists = columns.to_lists()
        return (list(lists.keys), list(lists.values)) if self._is_columnar else None


def measure(records: list[SourceRecord]) -> int:
    of_headers = sum(len(name.encode()) + len(value or b"") for one in records for name, value in one.headers)
    return of_headers + sum(len(one.key or b"") + len(one.value or b"") for one in records)


def to_columns(records: list[SourceRecord], is_arrow: bool) -> SourceColumns:
    columns = SourceColumns.from_records(records)
    if not is_arrow:
        return columns
    headers = [[{"key": name, "value": value} for name, value in one.headers] or None for one in records]
    batch = pa.record_batch(
        {
            "offset": pa.array(columns.offsets, pa.int64()),
            "timestamp": pa.array(columns.timestamps, pa.int64()),
            "key": pa.array(columns.keys, pa.binary()),
            "value": pa.array(columns.values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    return SourceColumns.from_arrow(*PARTITION, batch)


def create_records(chosen: random.Random, first: int, count: int) -> list[SourceRecord]:
    headers: list[tuple[Header, ...]] = [(), (("ü", b"123"), ("trace", None)), (("id", b""),)]
    return [
        SourceRecord(*PARTITION, offset, 5, chosen.choice([None, b"", b"key"]), chosen.choice([None, b"v" * 9]), one)
        for offset, one in zip(range(first, first + count), chosen.choices(headers, k=count), strict=True)
    ]


@pytest.mark.parametrize("is_arrow", [False, True])
@pytest.mark.parametrize("is_columnar", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_size_is_that_of_unprocessed_records(seed: int, is_columnar: bool, is_arrow: bool) -> None:
    chosen = random.Random(seed)
    deserializer, records = Deserializer(is_columnar), list[SourceRecord]()
    queue = RecordQueue(PARTITION, deserializer)
    for _ in range(60):
        step = chosen.choice(["add", "poll", "skip", "restore", "read"])
        if step == "add":
            added = create_records(chosen, len(records), chosen.choice([1, 30, 1_500]))
            queue.add(to_columns(added, is_arrow))
            records += added
        elif step == "poll" and not queue.is_empty:
            queue.poll()
        elif step == "skip" and queue.batch is not None and queue.batch.keys:
            queue.skip(chosen.randint(1, queue.batch.columns.rows - queue.row))
        elif step == "restore":
            state, queue = queue.state(), RecordQueue(PARTITION, deserializer)
            queue.restore(state)
        else:
            rest = [
                record.offset
                for columns in queue.state().columns
                for record in map(columns.record, range(columns.rows))
            ]
            assert queue.size_bytes == measure([records[offset] for offset in rest])
    assert records


class CountedBytes(bytes):
    """Counts how often values are measured."""

    measured = 0

    def __len__(self) -> int:
        CountedBytes.measured += 1
        return super().__len__()


def test_each_waiting_record_is_measured_a_constant_number_of_times() -> None:
    queues = [RecordQueue(TopicPartition(topic, 0), Deserializer(is_columnar=True)) for topic in ("in", "idle")]
    group = PartitionGroup(queues, 60_000, lambda _partition: 0, max_waiting_bytes=0)
    records = [SourceRecord(*PARTITION, offset, 5, None, CountedBytes(b"v")) for offset in range(3_000)]
    group.add(PARTITION, SourceColumns.from_records(records))
    CountedBytes.measured = 0
    while group.poll() is not None:
        group.is_ready(0)

    assert len(records) <= CountedBytes.measured <= 3 * len(records)
