"""StreamPositions: the delivered items of a stream, and the next offset to consume from each partition."""

from __future__ import annotations

import threading
from collections.abc import Set
from enum import Enum, auto

from zkconsumer.consumer.decoded_items import DecodedItems, OpenChunk
from zkconsumer.consumer.owner import StreamOwner
from zkconsumer.fetcher.chunk import PositionChanged
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.message import TopicPartition


class Delivery(Enum):
    """Whether items may be delivered."""

    ALLOWED = auto()
    #: The partition was released, the lease has ended, or the stream was closed.
    RELEASED = auto()
    #: An exception, such as KeyboardInterrupt, discarded the items before them.
    ITEMS_MISSING = auto()


class StreamPositions:
    """The positions of a stream's partitions, and the items that the stream is delivering.

    The member thread adds and releases partitions, reads the offsets, and marks delivered items as consumed; the
    application thread advances the positions as it reads. One lock guards all fields. It is held briefly, and never
    while blocking. Delivering a message does not acquire the lock: the application thread takes items from the front of
    ``DecodedItems.remaining``, and a release removes them from the end.

    Args:
        queue: the stream's queue.
        owner: consumer that owns the stream and decides whether records may be delivered.
    """

    def __init__(self, queue: StreamQueue, owner: StreamOwner) -> None:
        self._queue = queue
        self._owner = owner
        self._lock = threading.Lock()
        self._positions: dict[TopicPartition, int] = {}
        #: Records below these offsets count as consumed, even if the position is lower.
        self._consumed: dict[TopicPartition, int] = {}
        self._current: DecodedItems | None = None

    # ---- called by the member thread ----

    def acquire(self, partition: TopicPartition, offset: int) -> None:
        """Add an assigned partition at the position ``offset``; -1 if it is not known yet."""
        with self._lock:
            self._positions[partition] = offset

    def release(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop delivering the partitions' records, and return the next offset to consume from each partition.

        The partitions' queues must already be closed.
        """
        with self._lock:
            if self._current is not None and self._current.partition in partitions:
                self._discard_current(self._current)
            released = {p: self._positions.pop(p) for p in partitions if p in self._positions}
            return {p: max(offset, self._consumed.pop(p, -1)) for p, offset in released.items()}

    def release_all(self) -> None:
        """Stop delivering the records of all partitions."""
        with self._lock:
            partitions = set(self._positions)
        self.release(partitions)

    def offsets(self, *, include_current: bool) -> dict[TopicPartition, int]:
        """Return the next offset to consume from each partition; -1 if it is not known yet.

        See docs/decisions/09-consumed-when-next-is-requested.rst.

        Args:
            include_current: whether to treat the last delivered item as consumed.
        """
        with self._lock:
            positions = dict(self._positions)
            current = self._current
            if current is not None:
                count = current.size - len(current.remaining)
                if count:
                    positions[current.partition] = current.offset_after(count if include_current else count - 1)
            return {p: max(offset, self._consumed.get(p, -1)) for p, offset in positions.items()}

    def consume_delivered(self) -> dict[TopicPartition, int]:
        """Mark all delivered items as consumed, and return the next offset to consume from each partition.

        Both are done in one step. Offsets that are read later are therefore lower only after an offset reset.
        """
        with self._lock:
            current = self._current
            if current is not None:
                self._mark_consumed(current, current.size - len(current.remaining))
            return {p: max(offset, self._consumed.get(p, -1)) for p, offset in self._positions.items()}

    def _mark_consumed(self, current: DecodedItems, count: int) -> None:  # the caller must hold the lock
        if count:
            after, partition = current.offset_after(count), current.partition
            self._consumed[partition] = max(after, self._consumed.get(partition, -1))

    def end_lease(self) -> None:
        """Stop delivering the current items, unless the member has re-registered in the meantime.

        Called by the lease thread.
        """
        with self._lock:
            current = self._current
            if current is not None and not self._owner.holds_lease:
                self._discard_current(current)
                current.queue.close()

    def _discard_current(self, current: DecodedItems) -> None:  # the caller must hold the lock
        discarded = 0
        try:
            while True:  # from the end, because the application thread concurrently takes items from the front
                current.remaining.pop()
                discarded += 1
        except IndexError:
            pass
        delivered = current.size - discarded
        if delivered:
            self._positions[current.partition] = current.offset_of(delivered - 1)
        self._current = None

    # ---- called by the application thread ----

    def deliver(self, items: DecodedItems) -> Delivery:
        """Make ``items`` the current items if they may be delivered."""
        with self._lock:
            if not self._owner.holds_lease:
                items.queue.close()  # the member will re-claim the partition with a new queue
            if items.queue.is_closed or self._queue.is_closed:
                return Delivery.RELEASED
            if self._positions.get(items.partition) != items.start:
                return Delivery.ITEMS_MISSING
            self._current = items
            return Delivery.ALLOWED

    def finish(self, chunk: OpenChunk) -> bool:
        """Move the position to the end of a chunk, unless its partition was released.

        The last offsets of a chunk may have no records to deliver, because they belong to control batches or aborted
        transactions, or because log compaction removed the records.

        Returns:
            False if an exception, such as KeyboardInterrupt, discarded items of the chunk.
        """
        with self._lock:
            if chunk.queue.is_closed or chunk.partition not in self._positions:
                return True
            if not chunk.is_decoded or self._positions[chunk.partition] != chunk.position:
                return False
            self._positions[chunk.partition] = chunk.position = chunk.end
            return True

    def consume_current(self) -> DecodedItems | None:
        """Mark the delivered items as consumed and discard the others; return the current items, or None."""
        with self._lock:
            items = self._current
            if items is not None:
                self._positions[items.partition] = items.offset_after(items.size - len(items.remaining))
                self._current = None  # last, because a KeyboardInterrupt may be raised before
                items.remaining.clear()
            return items

    def consume_last(self, partition: TopicPartition, offset: int) -> None:
        """Mark the last delivered item as consumed, if it has the given partition and offset."""
        with self._lock:
            current = self._current
            if current is None or current.partition != partition:
                return  # the item already counts as consumed, or the partition was released
            count = current.size - len(current.remaining)
            if count and current.offset_of(count - 1) == offset:
                self._mark_consumed(current, count)

    def drop_current_after_fork(self) -> None:
        """Discard the current items in a forked process, without the lock: a thread of the parent may have held it."""
        self._current = None

    def position(self, partition: TopicPartition) -> int | None:
        """Return a partition's position: -1 if it is not known yet, None if the partition was released."""
        with self._lock:
            return self._positions.get(partition)

    def apply(self, queue: PartitionQueue, change: PositionChanged) -> None:
        """Set the position to the offset where fetching resumes, unless ``queue`` is closed."""
        with self._lock:
            if queue.is_closed or change.partition not in self._positions:
                return
            self._owner.on_position_changed(change.partition)  # before another thread can read the new position
            self._positions[change.partition] = change.offset
            self._consumed.pop(change.partition, None)

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Treat all records below ``offset`` as consumed, unless the partition was released."""
        with self._lock:
            if partition in self._positions:
                self._positions[partition] = offset
