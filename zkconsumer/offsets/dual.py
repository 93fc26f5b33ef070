"""A group's committed offsets in both Kafka and ZooKeeper, for migrations between them.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets


class DualOffsets:
    """Committed offsets in both Kafka and ZooKeeper; the higher offset of a partition applies.

    A commit writes to Kafka first, and then writes the offsets that Kafka accepted to ZooKeeper. Members with either
    storage can therefore resume from each other's offsets. Source: Kafka 1.1, ``dual.commit.enabled``.
    """

    def __init__(self, kafka: KafkaOffsets, zookeeper: ZooKeeperOffsets) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        requested = list(partitions)
        in_zookeeper = self._zookeeper.fetch(requested)
        in_kafka = self._kafka.fetch(requested)
        return {p: _choose_offset(in_kafka[p], in_zookeeper[p]) for p in requested}

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        allow_lower: bool = False,
        before_write: Callable[[], object] = dict,
    ) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        in_kafka, errors = self._kafka.try_commit(offsets, allow_lower=allow_lower, before_write=before_write)
        in_zookeeper = self._zookeeper.commit(in_kafka, allow_lower=allow_lower, before_write=before_write)
        for error in errors.values():
            raise error
        return {partition: max(offset, in_zookeeper[partition]) for partition, offset in in_kafka.items()}

    def lacks(self, partition: TopicPartition, offset: int) -> bool:
        """See ``Offsets``."""
        return self._kafka.lacks(partition, offset) or self._zookeeper.lacks(partition, offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        released = list(partitions)
        self._kafka.forget(released)
        self._zookeeper.forget(released)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._kafka.allow_lower_once(partition)
        self._zookeeper.allow_lower_once(partition)

    @property
    def lowerable(self) -> Set[TopicPartition]:
        """See ``Offsets``."""
        return self._kafka.lowerable | self._zookeeper.lowerable

    def close(self) -> None:
        """Close the connection to the coordinator."""
        self._kafka.close()


def _choose_offset(in_kafka: int, in_zookeeper: int) -> int:
    """Return the higher offset, or ``OF_DELETED_TOPIC`` if either storage returned it.

    In that case, the other storage's offset may also be outdated.
    """
    offsets = in_kafka, in_zookeeper
    return OF_DELETED_TOPIC if OF_DELETED_TOPIC in offsets else max(offsets)
