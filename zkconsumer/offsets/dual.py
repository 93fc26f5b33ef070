"""A group's committed offsets in Kafka and in ZooKeeper, during a migration from one to the other.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.message import TopicPartition
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets


class DualOffsets:
    """Both: what Kafka has taken is written to ZooKeeper too, and of two offsets the later one counts.

    So members of either storage can follow each other. Source: Kafka 1.1, ``dual.commit.enabled``.
    """

    def __init__(self, kafka: KafkaOffsets, zookeeper: ZooKeeperOffsets) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        wanted = list(partitions)
        in_zookeeper = self._zookeeper.fetch(wanted)
        return {p: max(offset, in_zookeeper[p]) for p, offset in self._kafka.fetch(wanted).items()}

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        stored, refused = self._kafka.store(offsets, may_go_back=may_go_back)
        in_zookeeper = self._zookeeper.commit(stored, may_go_back=may_go_back)
        for error in refused.values():
            raise error
        return {partition: max(offset, in_zookeeper[partition]) for partition, offset in stored.items()}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        gone = list(partitions)
        self._kafka.forget(gone)
        self._zookeeper.forget(gone)

    def allow_back(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._kafka.allow_back(partition)
        self._zookeeper.allow_back(partition)

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._kafka.close()
