"""A group's committed offsets in Kafka.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import LowerOffsetGuard
from zkconsumer.offsets.coordinator import GroupCoordinator


class KafkaOffsets:
    """Committed offsets in Kafka. Each commit contains unchanged offsets, too (KAFKA-1510).

    Args:
        on_commit: called with the number of offsets that are sent.
    """

    def __init__(self, coordinator: GroupCoordinator, on_commit: Callable[[int], object] = int) -> None:
        self._coordinator = coordinator
        self._on_commit = on_commit
        self._committed: dict[TopicPartition, int] = {}
        self._guard = LowerOffsetGuard(get_logger("zkconsumer.offsets", group=coordinator.group))

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        requested = list(partitions)
        committed = self._coordinator.fetch_offsets(requested) if requested else {}
        self._committed.update(committed)
        return committed

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        committed, errors = self.try_commit(offsets, allow_lower=allow_lower)
        for error in errors.values():
            raise error
        return committed

    def try_commit(
        self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Commit offsets; returns the committed offset or the error of each partition."""
        if unknown := [partition for partition in offsets if partition not in self._committed]:
            self.fetch(unknown)
        writes = {
            partition: offset
            for partition, offset in offsets.items()
            if self._guard.permits(partition, offset, self._committed[partition], allow_lower)
        }
        self._on_commit(len(writes))
        errors = self._coordinator.commit_offsets(writes) if writes else {}
        self._committed.update({p: offset for p, offset in writes.items() if p not in errors})
        self._guard.reset(offsets.keys() - errors.keys())
        return {p: self._committed[p] for p in offsets if p not in errors}, errors

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        released = list(partitions)
        self._guard.reset(released)
        for partition in released:
            self._committed.pop(partition, None)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._guard.allow(partition)

    def close(self) -> None:
        """Close the connection to the coordinator."""
        self._coordinator.close()
