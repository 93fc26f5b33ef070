"""Selects the next record of a task from its queues.

Source: Kafka 3.9 PartitionGroup.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from zkconsumer.javahash import java_hash
from zkconsumer.message import TopicPartition
from zkconsumer.topology.config import IDLE_DISABLED
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.java_order import PriorityQueue, hash_order, topic_partition_hash
from zkconsumer.topology.task.queues import UNKNOWN, QueueState, RecordQueue, Stamped


class PartitionGroup:
    """The queues of a task. The head with the lowest timestamp is the next record.

    Args:
        queues: queues of the task.
        max_idle_ms: maximum time to wait for empty partitions without lag, in milliseconds; ``IDLE_DISABLED`` disables
            waiting.
        lag_of: function that returns a partition's lag in records, or None if the lag is unknown.
        max_waiting: see ``TaskRuntime.max_waiting``.
        max_waiting_bytes: see ``TaskRuntime.max_waiting_bytes``.

    Attributes:
        queues: queues by partition.
        deadlines: time until which the task waits for an empty partition without lag, in milliseconds, by partition.
        is_enforced: whether the next record is processed even though a partition is empty.
        allowed: maximum number of records to take before ``is_ready`` is called again.
    """

    def __init__(
        self,
        queues: Iterable[RecordQueue],
        max_idle_ms: int,
        lag_of: Callable[[TopicPartition], int | None],
        max_waiting: int | None = None,
        max_waiting_bytes: int | None = None,
    ) -> None:
        self.queues: Mapping[TopicPartition, RecordQueue] = {queue.partition: queue for queue in _wait_order(queues)}
        self.deadlines: dict[TopicPartition, int] = {}
        self.is_enforced = False
        self.allowed = sys.maxsize
        self._max_waiting = sys.maxsize if max_waiting is None else max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._max_idle_ms = max_idle_ms
        self._lag_of = lag_of
        self._lags: dict[TopicPartition, int] = {}
        self._nonempty: PriorityQueue[RecordQueue] = PriorityQueue(lambda queue: queue.head_timestamp)

    def __len__(self) -> int:
        return sum(map(len, self.queues.values())) if self._nonempty else 0

    def add(self, partition: TopicPartition, columns: SourceColumns) -> None:
        """Append records of a partition.

        Raises:
            KeyError: the task does not read the partition.
        """
        queue = self.queues[partition]
        was_empty = queue.is_empty
        queue.add(columns)
        if was_empty and not queue.is_empty:
            self._nonempty.add(queue)

    def poll(self) -> tuple[TopicPartition, Stamped] | None:
        """Remove and return the next record with its partition, or None if all queues are empty."""
        queue = self._nonempty.poll()
        if queue is None:
            return None
        stamped = queue.poll()
        if not queue.is_empty:
            self._nonempty.add(queue)
        return queue.partition, stamped

    def first(self) -> tuple[RecordQueue, int | None] | None:
        """Return the queue of the next record, and the timestamp at which another queue takes precedence.

        Returns None if all queues are empty. The timestamp is None if no other queue has records. If several other
        queues have records, it is ``UNKNOWN``, so that only one record is processed: each removal can change the order
        of records with equal timestamps.
        """
        queue = self._nonempty.peek()
        if queue is None:
            return None
        others = self._nonempty.items[1:]
        if not others:
            return queue, None
        return queue, others[0].head_timestamp if len(others) == 1 else UNKNOWN

    def skip(self, count: int) -> None:
        """Remove the next record and the ``count - 1`` records that follow it in its batch."""
        queue = self._nonempty.poll()
        assert queue is not None
        queue.skip(count)
        if not queue.is_empty:
            self._nonempty.add(queue)

    def update_lags(self) -> None:
        """Update the lags of all partitions."""
        if self._max_idle_ms != IDLE_DISABLED and len(self.queues) > 1:
            lags = {partition: self._lag_of(partition) for partition in self.queues}
            self._lags = {partition: lag for partition, lag in lags.items() if lag is not None}

    def is_ready(self, now_ms: int) -> bool:
        """Return whether the next record can be processed without waiting for data on empty partitions."""
        self.allowed = sys.maxsize
        if self._max_idle_ms == IDLE_DISABLED:
            return True
        if len(self._nonempty) == len(self.queues):
            self.deadlines.clear()
            self.is_enforced = False
            return True
        has_records = False
        for partition, queue in self.queues.items():
            if len(queue):
                self.deadlines.pop(partition, None)
                has_records = True
            elif self._lags.get(partition, -1) != 0:
                self.deadlines.pop(partition, None)
                return self._is_too_full()
            elif now_ms < self.deadlines.setdefault(partition, now_ms + self._max_idle_ms):
                return self._is_too_full()
        self.is_enforced = has_records  # a partition is empty here, because otherwise the method returned above
        return has_records

    def _is_too_full(self) -> bool:
        """Return whether too many records are queued. If so, the excess records must be processed."""
        excess = max(len(self) - self._max_waiting, self._count_excess_of_bytes())
        if excess <= 0:
            return False
        self.is_enforced, self.allowed = True, excess
        return True

    def _count_excess_of_bytes(self) -> int:
        """Return how many records of average size exceed ``max_waiting_bytes``; 0 if they are not exceeded."""
        if self._max_waiting_bytes is None:
            return 0
        size = sum(queue.size_bytes for queue in self.queues.values())
        excess = size - self._max_waiting_bytes
        return max(1, excess * len(self) // size) if excess > 0 else 0

    def skip_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets of empty queues; see ``StreamTask.skip_to``."""
        for partition, offset in offsets.items():
            self.queues[partition].skip_to(offset)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition that has one; see ``RecordQueue.next_offset``."""
        offsets = ((partition, queue.next_offset) for partition, queue in self.queues.items())
        return {partition: offset for partition, offset in offsets if offset is not None}

    def restore(self, states: Mapping[TopicPartition, QueueState], order: Iterable[TopicPartition]) -> None:
        """Resume from the state of another task.

        Args:
            states: results of ``RecordQueue.state``, by partition.
            order: result of ``heap_order``.
        """
        for partition, state in states.items():
            self.queues[partition].restore(state)
        self._nonempty.items[:] = [self.queues[partition] for partition in order]

    def heap_order(self) -> list[TopicPartition]:
        """Return the non-empty partitions in heap order, which determines the order of equal timestamps."""
        return [queue.partition for queue in self._nonempty.items]


def _wait_order(queues: Iterable[RecordQueue]) -> list[RecordQueue]:
    """Return the queues in the order in which Kafka Streams waits for empty ones.

    It waits for one partition after another, so the order determines how long a task waits.

    Source: Kafka 3.9 TopologyTestDriver.partitionsByInputTopic and StreamTask.createPartitionQueues, which copy the
    partitions to three hash tables.
    """

    def hash_of(queue: RecordQueue) -> int:
        return topic_partition_hash(*queue.partition)

    by_topic = hash_order(queues, lambda queue: java_hash(queue.partition.topic))
    return hash_order(hash_order(by_topic, hash_of, copied=True), hash_of)
