"""What fetchers put into queues: Chunk and PositionChanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.fetcher.damage import Damage
from zkconsumer.message import TopicPartition

#: Value of ``Chunk.until`` for no end: the largest offset.
NO_LIMIT = (1 << 63) - 1

#: Default of ``decompressed.batch.max.bytes``.
MAX_DECOMPRESSED_BYTES = 128 << 20


@dataclass(slots=True)
class Chunk:
    """Records of one partition as the broker sent them.

    Attributes:
        fetch_offset: the requested offset. The data may start below it, because brokers send whole batches.
        next_offset: the offset to fetch next.
        data: complete batches or messages of any format; the last one may be incomplete.
        aborted: ``(producer id, first offset)`` of aborted transactions, with ``isolation.level=read_committed``.
        until: records from this offset on are skipped.
        end_offset: end of the log when the data were fetched.
        max_decompressed_bytes: limit of the decompressed size of a batch.
        damage: the first invalid entry; None if no entry is known to be invalid.
    """

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    data: Any
    aborted: Sequence[tuple[int, int]] = ()
    until: int = NO_LIMIT
    end_offset: int = NO_LIMIT
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    damage: Damage | None = None

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class PositionChanged:
    """The next chunk of a partition starts at ``offset``, and no records precede it.

    A fetcher has looked up the start offset, or has reset an offset that is out of range. In a Spark task, records were
    deleted before they were read.
    """

    partition: TopicPartition
    offset: int

    @property
    def nbytes(self) -> int:
        """0, because the item takes no room in a queue."""
        return 0


#: An item of a queue.
QueueItem = Chunk | PositionChanged
