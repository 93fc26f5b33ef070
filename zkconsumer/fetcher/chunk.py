"""Chunk: the records of one partition as one fetch response brought them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.message import TopicPartition

NO_LIMIT = (1 << 63) - 1


@dataclass(slots=True)
class Chunk:
    """Records of one partition as one answer brought them.

    ``data`` holds whole entries of any format and perhaps an incomplete last one. ``fetch_offset`` is what
    was asked for: compressed batches may start below it. ``next_offset`` is where fetching goes on.
    ``aborted`` are the ``(producer id, first offset)`` of aborted transactions, where the broker was asked
    for them; ``until`` bounds the offsets from above.
    """

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    data: Any
    aborted: Sequence[tuple[int, int]] = ()
    until: int = NO_LIMIT

    @property
    def nbytes(self) -> int:
        """Bytes that the chunk keeps in memory."""
        return len(self.data)
