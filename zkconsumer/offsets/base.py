"""The interface of a group's committed offsets, and the check of commits that would lower one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition

#: The result of ``Offsets.fetch`` for a partition whose offset was committed for a deleted topic of the same name.
OF_DELETED_TOPIC = -2


class Offsets(Protocol):
    """The committed offsets of a group. Used by one thread.

    A commit that would lower a committed offset is skipped and logged, unless it is allowed.
    """

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition, which is the next one to consume.

        It is -1 if there is none, and ``OF_DELETED_TOPIC`` if the topic was deleted and created again after the commit.

        Raises:
            ZkConsumerError: a committed offset could not be read. -1 is not returned in this case.
        """

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False) -> dict[TopicPartition, int]:
        """Commit offsets, for the topics that existed when they were fetched.

        Args:
            offsets: next offset to consume of each partition.
            allow_lower: write offsets that are lower than the committed ones, too.

        Returns:
            The committed offset of each of these partitions, after the commit.

        Raises:
            ZkConsumerError: not all offsets were committed.
        """

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop cached offsets of partitions that other members may commit from now on."""

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit of a partition to lower its offset, because its position was reset."""

    def close(self) -> None:
        """Close connections that this object has opened."""


class LowerOffsetGuard:
    """Decides whether a commit may lower a committed offset, and logs each such commit."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._allowed: set[TopicPartition] = set()

    def allow(self, partition: TopicPartition) -> None:
        """Allow the next commit of the partition to lower its offset."""
        self._allowed.add(partition)

    def reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``allow`` for these partitions."""
        self._allowed.difference_update(partitions)

    def permits(self, partition: TopicPartition, offset: int, committed: int, allow_lower: bool) -> bool:
        """Return whether ``offset`` may replace ``committed``."""
        if offset >= committed:
            return True
        is_allowed = allow_lower or partition in self._allowed
        self._log.warning(
            "committed_offset_lowered" if is_allowed else "offset_commit_skipped",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            committed_offset=committed,
        )
        return is_allowed
