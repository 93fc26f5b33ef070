"""PartitionTopicInfo: the fetch state of one partition.

Source: Kafka 1.1 kafka.consumer.PartitionTopicInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.chunk import NO_LIMIT
from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.health import Problem
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition

#: Value of ``auto.offset.reset`` -> timestamp for ListOffsets requests.
RESET_TIMESTAMPS = {"smallest": EARLIEST, "largest": LATEST}


#: Minimum fetch size in bytes.
MIN_FETCH_BYTES = 16 << 10


@dataclass(slots=True, eq=False)
class PartitionTopicInfo:
    """The fetch state of one partition while it is assigned.

    Only the thread that holds the partition, which is a fetcher or the leader finder, modifies the fields.

    Attributes:
        queue: queue for the fetched chunks.
        fetch_offset: next offset to fetch; -1 until it has been looked up.
        until: stop offset; records at or above it are not fetched.
        auto_offset_reset: offset to resume at if the log does not contain ``fetch_offset``: ``smallest`` or
            ``largest``; None to raise an error.
        high_watermark: high watermark in the last fetch response; -1 before the first response.
        start_offset: first offset that was fetched; -1 until it is known.
        starts_at_batch: whether ``fetch_offset`` is the end of a batch that was fetched from the current leader.
        reset_offset: offset looked up since the last chunk; -1 if there was no lookup.
        own_fetch_size: fetch size in bytes after a record did not fit or a fetch timed out; 0 for
            ``FetchSettings.fetch_message_max_bytes``.
        is_slow: whether ``own_fetch_size`` was reduced because a fetch timed out.
        problem: reason why the partition cannot be fetched; None if the last fetch succeeded.
    """

    partition: TopicPartition
    queue: PartitionQueue
    fetch_offset: int
    until: int = NO_LIMIT
    auto_offset_reset: str | None = None
    high_watermark: int = field(default=-1, init=False)
    start_offset: int = field(init=False)
    starts_at_batch: bool = field(default=False, init=False)
    reset_offset: int = field(default=-1, init=False)
    own_fetch_size: int = field(default=0, init=False)
    is_slow: bool = field(default=False, init=False)
    problem: Problem | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.start_offset = self.fetch_offset

    def fetch_size(self, default: int) -> int:
        """Return the fetch size in bytes."""
        return self.own_fetch_size or default

    def reduce_fetch_size(self, size: int) -> None:
        """Limit fetches to ``max(MIN_FETCH_BYTES, size)`` bytes, because a larger response did not arrive in time."""
        self.own_fetch_size, self.is_slow = max(MIN_FETCH_BYTES, size), True

    def restore_fetch_size(self, default: int, *, is_fast: bool) -> None:
        """Adjust the fetch size after a response: double a reduced size if ``is_fast``, reset an increased size."""
        if self.is_slow and not is_fast:
            return
        doubled = 2 * self.own_fetch_size
        self.is_slow = self.is_slow and doubled < default
        self.own_fetch_size = doubled if self.is_slow else 0

    def record_problem(self, code: str, error: ZkConsumerError) -> bool:
        """Record why the partition cannot be fetched; return whether the problem is new.

        Args:
            code: see ``Problem.again``.
        """
        previous = self.problem
        self.problem = Problem.again(previous, code, error)
        return previous is None or previous.code != self.problem.code

    @property
    def lag(self) -> int:
        """Number of records between the fetch offset and the high watermark; -1 before the first fetch response."""
        return -1 if self.high_watermark < 0 else max(0, self.high_watermark - self.fetch_offset)
