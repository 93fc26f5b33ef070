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
    """A log in memory, with one record batch."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        assert max_bytes > 0
        assert positions == {PARTITION: 0}
        return {PARTITION: PartitionData(PARTITION, 0, self._records[-1].offset + 1, (), entry(2, self._records))}


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
    found = sample(cast(LogOffsets, Log(records)), {PARTITION: 0})[PARTITION]

    assert found.bytes_per_offset == expected
