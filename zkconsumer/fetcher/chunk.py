"""Chunk and PositionChanged: the items that fetchers add to queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.fetcher.damage import Damage
from zkconsumer.message import TopicPartition

#: Value of ``Chunk.until`` for a chunk without a stop offset: the largest possible offset.
NO_LIMIT = (1 << 63) - 1

#: Default value of ``decompressed.batch.max.bytes``.
DEFAULT_DECOMPRESSED_BATCH_MAX_BYTES = 128 << 20


@dataclass(slots=True)
class Chunk:
    """Encoded records of one partition, as received from the broker.

    Attributes:
        fetch_offset: requested offset. The data may start at a lower offset, because brokers send whole batches.
        next_offset: offset to fetch next.
        data: batches or messages of any format; only the last one may be incomplete.
        aborted: aborted transactions, as ``(producer id, first offset)``; only with ``isolation.level=read_committed``.
        until: stop offset; records at or above it are skipped.
        end_offset: high watermark in the response, or the log end offset if it was looked up; ``NO_LIMIT`` if unknown.
        decompressed_batch_max_bytes: maximum decompressed size of a batch, in bytes.
        damage: the first corrupt entry; None if no entry is known to be corrupt.
    """

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    data: Any
    aborted: Sequence[tuple[int, int]] = ()
    until: int = NO_LIMIT
    end_offset: int = NO_LIMIT
    decompressed_batch_max_bytes: int = DEFAULT_DECOMPRESSED_BATCH_MAX_BYTES
    damage: Damage | None = None

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class PositionChanged:
    """Announces that the reader must continue at ``offset``, where the partition's next chunk starts.

    The item is added when the start offset was looked up, when an out-of-range offset was reset, or when records were
    deleted before a Spark task could read them.
    """

    partition: TopicPartition
    offset: int

    @property
    def nbytes(self) -> int:
        """Always 0, because the item does not count toward queue limits."""
        return 0


#: Queue item.
QueueItem = Chunk | PositionChanged
