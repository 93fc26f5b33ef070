"""The records that a producer sends before the others, because it has not written to their partitions yet."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest

from zkconsumer.spark.streams.first_records import FirstRecords, hash_keys
from zkconsumer.spark.streams.output import RecordFields
from zkconsumer.topology.murmur2 import murmur2

COUNTS = {"one": 1, "three": 3, "later": 0}


def record_of(topic: str, number: int, key: bytes | None = None, partition: int = -1) -> RecordFields:
    return topic, b"%d" % number, key, partition, lambda *_: None, None, 1, None


def find_partition(record: RecordFields, counts: dict[str, int]) -> int | None:
    """Return the partition to which a producer writes a record; None if it chooses one randomly."""
    topic, _, key, partition, *_ = record
    if partition >= 0 or key is None:
        return partition if partition >= 0 else None
    return (murmur2(key) & 0x7FFFFFFF) % counts[topic]


def test_hashes_of_keys_are_those_of_one_key() -> None:
    random = Random(1)
    keys = [random.randbytes(length) for length in [*range(40), *range(40), 0, 4]]

    assert hash_keys(keys) == [murmur2(key) & 0x7FFFFFFF for key in keys]
    assert hash_keys([]) == []


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_gets_one_record_before_others(seed: int) -> None:
    random, counts = Random(seed), dict(COUNTS)
    first_records = FirstRecords(counts.__getitem__)
    passed: list[RecordFields] = []
    written: defaultdict[str, set[int | None]] = defaultdict(set)
    written_order: defaultdict[tuple[str, int | None], list[bytes | None]] = defaultdict(list)

    def write(sent: list[RecordFields]) -> None:
        for record in sent:
            topic = record[0]
            counts[topic] = counts[topic] or 2  # the first record creates the topic
            partition = find_partition(record, counts)
            written[topic].add(partition)
            written_order[topic, partition].append(record[1])

    for _ in range(random.randint(1, 4)):
        chunk = [
            record_of(
                random.choice(list(counts)),
                len(passed) + number,
                random.choice([None, b"", b"a", random.randbytes(6)]),
                random.choice([-1, -1, 0]),
            )
            for number in range(random.choice([1, 5, 300]))
        ]
        passed += chunk
        first, others = first_records.divide(chunk)
        while first:
            partitions = [(record[0], find_partition(record, counts) if counts[record[0]] else 0) for record in first]
            assert len(set(partitions)) == len(first)
            write(first)
            first_records.confirm()
            first, others = first_records.divide(others)
        for record in others:
            topic, partition = record[0], find_partition(record, counts)
            if partition is None:  # the producer may choose any
                assert written[topic] >= set(range(counts[topic]))
            else:
                assert partition in written[topic]
        write(others)

    assert sum(map(len, written_order.values())) == len(passed)
    for (topic, partition), values in written_order.items():
        found: Any = [int(value or b"") for value in values]
        assert found == sorted(found), (topic, partition)


def test_partitions_are_written_first_until_confirmed_and_again_after_an_hour() -> None:
    now = 0.0
    first_records = FirstRecords({"three": 3}.__getitem__, lambda: now)
    records = [record_of("three", number, None, number % 3) for number in range(9)]

    for _ in range(2):
        assert first_records.divide(records) == (records[:3], records[3:])
    first_records.confirm()
    assert first_records.divide(records) == ([], records)
    now = 3_600.0
    first_records.forget_old()
    assert first_records.divide(records) == ([], records)
    now = 3_601.0
    first_records.forget_old()
    assert first_records.divide(records)[0] == records[:3]
