"""PartitionTopicInfo: the fetch state of one partition.

Source: Kafka 1.1 kafka.consumer.PartitionTopicInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.broker import protocol
from zkconsumer.fetcher.chunk import NO_LIMIT
from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.message import TopicPartition

RESET = {"smallest": protocol.EARLIEST, "largest": protocol.LATEST}


@dataclass(slots=True, eq=False)
class PartitionTopicInfo:
    """One partition while it is owned: where its records go and how far they were fetched.

    ``fetch_offset`` is the next to fetch, -1 until ``reset`` has resolved it; it is written by the one
    fetcher thread that has the partition. ``until`` ends the fetching. ``reset`` is ``smallest`` or
    ``largest`` for offsets that the log does not have, or None where that is an error. ``start`` is where
    fetching began, -1 before.
    """

    partition: TopicPartition
    queue: PartitionQueue
    fetch_offset: int
    until: int = NO_LIMIT
    reset: str | None = None
    high_watermark: int = field(default=-1, init=False)
    start: int = field(init=False)
    #: Bytes to ask for where a record did not fit; 0 for the usual size.
    max_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.start = self.fetch_offset

    @property
    def lag(self) -> int:
        """Records between what was fetched and the end of the log; -1 before the first answer."""
        return -1 if self.high_watermark < 0 else max(0, self.high_watermark - self.fetch_offset)
