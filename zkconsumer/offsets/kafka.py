"""A group's committed offsets in Kafka.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from zkconsumer.broker.protocol import CommittedOffset
from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.topic_id import is_same_topic
from zkconsumer.offsets.base import OF_DELETED_TOPIC, LowerOffsetGuard
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.offsets.metadata import format_topic_id, parse_topic_id


class KafkaOffsets:
    """Committed offsets in Kafka. Commits include unchanged offsets (KAFKA-1510).

    The topic id is stored in the metadata of each committed offset.

    Args:
        coordinator: client for the group coordinator.
        on_commit: function that is called with the number of offsets in each commit request.
        topic_ids: function that returns the ids of existing topics, to detect re-created topics; see ``topic_id``.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        on_commit: Callable[[int], object] = int,
        topic_ids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._coordinator = coordinator
        self._on_commit = on_commit
        self._existing_topic_ids = topic_ids
        self._topic_ids: dict[TopicPartition, str] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._guard = LowerOffsetGuard(get_logger("zkconsumer.offsets", group=coordinator.group))

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        requested = list(partitions)
        ids = self._existing_topic_ids()
        self._topic_ids.update({partition: ids.get(partition.topic, "") for partition in requested})
        found = self._coordinator.fetch_offsets_and_metadata(requested) if requested else {}
        committed = {partition: self._read_offset(partition, stored) for partition, stored in found.items()}
        self._committed.update(committed)
        return committed

    def _read_offset(self, partition: TopicPartition, stored: CommittedOffset) -> int:
        is_same = is_same_topic(parse_topic_id(stored.metadata), self._topic_ids[partition])
        return stored.offset if is_same or stored.offset < 0 else OF_DELETED_TOPIC

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        allow_lower: bool = False,
        before_write: Callable[[], object] = dict,
    ) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        committed, errors = self.try_commit(offsets, allow_lower=allow_lower, before_write=before_write)
        for error in errors.values():
            raise error
        return committed

    def try_commit(
        self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool, before_write: Callable[[], object]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Commit offsets; return the committed offsets and the errors, by partition."""
        if unknown := [partition for partition in offsets if partition not in self._committed]:
            self.fetch(unknown)
        writes = {
            partition: offset
            for partition, offset in offsets.items()
            if self._guard.permits(partition, offset, self._committed[partition], allow_lower)
        }
        before_write()
        self._on_commit(len(writes))
        metadata = {partition: format_topic_id(known) for partition, known in self._topic_ids.items() if known}
        errors = self._coordinator.commit_offsets(writes, metadata) if writes else {}
        self._committed.update({p: offset for p, offset in writes.items() if p not in errors})
        self._guard.reset(offsets.keys() - errors.keys())
        return {p: self._committed[p] for p in offsets if p not in errors}, errors

    def lacks(self, partition: TopicPartition, offset: int) -> bool:
        """See ``Offsets``."""
        return self._committed[partition] < offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        released = list(partitions)
        self._guard.forget(released)
        for partition in released:
            self._committed.pop(partition, None)
            self._topic_ids.pop(partition, None)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._guard.allow(partition)

    @property
    def lowerable(self) -> Set[TopicPartition]:
        """See ``Offsets``."""
        return self._guard.allowed

    def close(self) -> None:
        """Close the connection to the coordinator."""
        self._coordinator.close()
