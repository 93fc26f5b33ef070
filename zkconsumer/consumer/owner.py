"""StreamOwner: what a stream needs of the consumer that created it."""

from __future__ import annotations

from typing import Protocol

from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.message import TopicPartition


class StreamOwner(Protocol):
    """The consumer of a stream. The application's thread calls the methods; any thread may read ``holds_lease``."""

    @property
    def holds_lease(self) -> bool:
        """Whether ZooKeeper cannot have expired the member's session yet, so that records may be delivered."""

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        """Close the queue of a partition and fetch the partition again from ``offset``, into a new queue."""

    def on_position_changed(self, partition: TopicPartition) -> None:
        """Handle an offset that was looked up or reset, and may be lower than the committed one."""

    def on_consumed(self, partition: TopicPartition, rows: int) -> None:
        """Count consumed records."""

    def on_skipped(self, partition: TopicPartition, offsets: int) -> None:
        """Count offsets of corrupt batches that were skipped."""
