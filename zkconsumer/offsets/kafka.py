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
    """Reads and writes offsets in Kafka, where each commit names every partition (KAFKA-1510).

    Args:
        on_commit: told how many offsets were sent.
    """

    def __init__(self, coordinator: GroupCoordinator, on_commit: Callable[[int], object] = int) -> None:
        self._coordinator = coordinator
        self._on_commit = on_commit
        self._stored: dict[TopicPartition, int] = {}
        self._guard = LowerOffsetGuard(get_logger("zkconsumer.offsets", group=coordinator.group))

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        wanted = list(partitions)
        found = self._coordinator.fetch_offsets(wanted) if wanted else {}
        self._stored.update(found)
        return found

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        stored, refused = self.store(offsets, may_go_back=may_go_back)
        for error in refused.values():
            raise error
        return stored

    def store(
        self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Commit, and return what is stored now, and what was refused."""
        if unknown := [partition for partition in offsets if partition not in self._stored]:
            self.fetch(unknown)
        writes = {
            partition: offset
            for partition, offset in offsets.items()
            if self._guard.admits(partition, offset, self._stored[partition], may_go_back)
        }
        self._on_commit(len(writes))
        refused = self._coordinator.commit_offsets(writes) if writes else {}
        self._stored.update({p: offset for p, offset in writes.items() if p not in refused})
        self._guard.settle(offsets.keys() - refused.keys())
        return {p: self._stored[p] for p in offsets if p not in refused}, refused

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        gone = list(partitions)
        self._guard.settle(gone)
        for partition in gone:
            self._stored.pop(partition, None)

    def allow_back(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._guard.allow(partition)

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()
