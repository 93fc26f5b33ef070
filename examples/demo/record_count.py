"""Counts the records that the members of the demo have read, and finds those that are lost or were read twice."""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

from zkconsumer.errors import ZkConsumerError


class Chunk(NamedTuple):
    """Records of one partition, with consecutive offsets.

    Attributes:
        end: offset after that of the last record.
        total: sum of the numbers in the records.
    """

    partition: int
    first: int
    end: int
    records: int
    total: int


class RecordCount:
    """What all members have read. Any thread may use it.

    Attributes:
        by_member: number of records that each member has read.
    """

    def __init__(self) -> None:
        self.by_member: Counter[str] = Counter()
        self._chunks: list[Chunk] = []
        self._positions: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, member: str, chunk: Chunk) -> None:
        """Add records that a member has read."""
        if chunk.records != chunk.end - chunk.first:
            raise ZkConsumerError(f"{member} has read {chunk.records} records for the offsets of {chunk}")
        with self._lock:
            self.by_member[member] += chunk.records
            self._chunks.append(chunk)
            self._positions[chunk.partition] = max(self._positions[chunk.partition], chunk.end)

    @property
    def positions(self) -> Counter[int]:
        """Highest offset that has been read, plus one, by partition."""
        with self._lock:
            return self._positions.copy()

    def lost_and_duplicates(self, ends: dict[int, int], total: int) -> tuple[int, int]:
        """Return how many records were not read, and how many were read again.

        Args:
            ends: end offset of each partition.
            total: sum of all numbers that were produced.

        Raises:
            ZkConsumerError: all offsets were read once, but the numbers are not those that were produced.
        """
        distinct, positions = 0, Counter[int]()
        chunks = sorted(self._chunks)
        for chunk in chunks:
            distinct += max(0, chunk.end - max(chunk.first, positions[chunk.partition]))
            positions[chunk.partition] = max(positions[chunk.partition], chunk.end)
        lost = sum(ends.values()) - distinct
        duplicates = sum(chunk.records for chunk in chunks) - distinct
        found = sum(chunk.total for chunk in chunks)
        if not lost and not duplicates and found != total:
            raise ZkConsumerError(f"the sum of the numbers must be {total:,}, got {found:,}")
        return lost, duplicates
