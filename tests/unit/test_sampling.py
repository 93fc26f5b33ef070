"""The estimated record size of a partition, which the byte limits of batches use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from helpers.batches import Record, entry

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.protocol import PartitionData
from zkconsumer.message import TopicPartition
from zkconsumer.spark.planning.sampling import sample

PARTITION = TopicPartition("t", 0)


class Log:
    """Logs in memory with one record batch each.

    Args:
        records: records of the batch, by partition.
        returns_large: whether the broker returns a batch that is larger than the limit for the first partition of a
            request, as since Kafka 0.10.1.
    """

    def __init__(self, records: Mapping[TopicPartition, list[Record]], *, returns_large: bool = True) -> None:
        self._records = records
        self._returns_large = returns_large
        self.fetched: list[tuple[list[TopicPartition], int]] = []

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        self.fetched.append(([*positions], max_bytes))
        answers = {}
        for partition in positions:
            records = self._records.get(partition)
            if records is None:  # the position is out of range
                continue
            batch = entry(2, records)
            if len(batch) > max_bytes and not (self._returns_large and partition == next(iter(positions))):
                batch = b""
            answers[partition] = PartitionData(partition, 0, records[-1].offset + 1, (), batch)
        return answers


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([Record(0, 1, b"key", b"value")], 8, id="key and value"),
        pytest.param([Record(0, 1, None, None, (("\u00e4", b"12"), ("a", None), ("", b"")))], 5, id="headers"),
        pytest.param([Record(0, 1, b"k", b"v", (("h", b"1"),)), Record(1, 1, None, b"v" * 6)], 5, id="average"),
        pytest.param([Record(0, 1, b"k", b"v", (("h", b"1"),)), Record(7, 1, None, b"v" * 4)], 1, id="missing offsets"),
    ],
)
def test_sample_measures_keys_values_and_headers(records: list[Record], expected: float) -> None:
    found = sample(cast(LogOffsets, Log({PARTITION: records})), {PARTITION: 0})[PARTITION]

    assert found.bytes_per_offset == expected


def test_sample_of_sizes_reads_no_more_records_than_it_needs() -> None:
    log = Log({PARTITION: [Record(offset, 1, None, b"12345") for offset in range(10_000)]})
    [found] = sample(cast(LogOffsets, log), {PARTITION: 0}, min_records=2000).values()

    assert (found.start, found.until, found.bytes_per_offset) == (0, 2048, 5)
    assert [record.offset for record in found.records] == list(range(2048))
    [found] = sample(cast(LogOffsets, log), {PARTITION: 9_000}, min_records=2000).values()
    assert (found.start, found.until, len(found.records)) == (9_000, 10_000, 1_000)


@pytest.mark.parametrize("returns_large", [True, False], ids=["current broker", "broker before 0.10.1"])
def test_large_batches_are_fetched_one_by_one(returns_large: bool) -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    records = {partition: [Record(0, 1, None, b"v" * 5_000)] for partition in partitions[:2]}
    log = Log(records, returns_large=returns_large)
    found = sample(cast(LogOffsets, log), dict.fromkeys(partitions, 0), 1_000)

    assert {partition: one.bytes_per_offset for partition, one in found.items()} == dict.fromkeys(records, 5_000)
    large = [max_bytes for _, max_bytes in log.fetched if max_bytes > 1_000]
    assert len(large) == (0 if returns_large else 2), "the limit exceeds a sample only if the broker requires it"


def test_partition_whose_position_left_the_log_is_omitted() -> None:
    class Truncated(Log):
        def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
            answers = super().fetch(positions, max_bytes)
            self._records = {}
            return answers

    log = Truncated({PARTITION: [Record(0, 1, None, b"v" * 5_000)]}, returns_large=False)

    assert sample(cast(LogOffsets, log), {PARTITION: 0}, 1_000) == {}
