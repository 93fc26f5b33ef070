"""Counts the records that the demo's members read, and detects lost and duplicate records."""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

from zkconsumer.errors import ZkConsumerError


class Chunk(NamedTuple):
    """Records of one partition, with consecutive offsets.

    Attributes:
        end: offset of the last record, plus one.
        total: sum of the numbers in the records.
    """

    partition: int
    first: int
    end: int
    records: int
    total: int


class RecordCount:
    """Counts the records that all members read. It is thread-safe.

    Attributes:
        by_member: number of records that each member read.
    """

    def __init__(self) -> None:
        self.by_member: Counter[str] = Counter()
        self._chunks: list[Chunk] = []
        self._positions: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, member: str, chunk: Chunk) -> None:
        """Add records that ``member`` read."""
        if chunk.records != chunk.end - chunk.first:
            raise ZkConsumerError(f"{member} must read one record per offset, got {chunk.records} records in {chunk}")
        with self._lock:
            self.by_member[member] += chunk.records
            self._chunks.append(chunk)
            self._positions[chunk.partition] = max(self._positions[chunk.partition], chunk.end)

    @property
    def positions(self) -> Counter[int]:
        """Highest offset read plus one, by partition."""
        with self._lock:
            return self._positions.copy()

    def lost_and_duplicates(self, ends: dict[int, int], total: int) -> tuple[int, int]:
        """Return the number of lost records and the number of duplicate records.

        Args:
            ends: end offset of each partition.
            total: sum of all produced numbers.

        Raises:
            ZkConsumerError: each offset was read exactly once, but the sum of the numbers is wrong.
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
