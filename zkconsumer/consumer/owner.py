"""StreamOwner: the interface that a consumer provides to its streams."""

from __future__ import annotations

from typing import Protocol

from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.message import TopicPartition


class StreamOwner(Protocol):
    """The consumer that owns a stream. The application thread calls the methods; any thread reads ``holds_lease``.

    ``on_position_changed`` and ``holds_lease`` must not block, because the stream holds a lock while it calls them.
    """

    @property
    def holds_lease(self) -> bool:
        """Whether records may be delivered, because the member's ZooKeeper session cannot have expired yet."""

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        """Close a partition's queue and refetch the partition from ``offset``, into a new queue."""

    def on_position_changed(self, partition: TopicPartition) -> None:
        """Handle a position that was looked up or reset, and may be lower than the committed offset."""

    def on_consumed(self, partition: TopicPartition, rows: int) -> None:
        """Count consumed records."""

    def on_skipped(self, partition: TopicPartition, offsets: int) -> None:
        """Count the offsets in skipped corrupt batches."""
