"""The interface of a group's committed offsets, and the check of commits that would lower one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from zkconsumer.message import TopicPartition


class Offsets(Protocol):
    """Where the offsets of a group are; used by one thread.

    A commit that would lower an offset is left out and logged, unless it is allowed.
    """

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 where none is stored.

        Raises:
            ZkConsumerError: it is not known; never -1 for that.
        """

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """Store offsets and return what is stored of these partitions now.

        Raises:
            ZkConsumerError: not all were stored.
        """

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is remembered of partitions that others may write from now on."""

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of a partition lower its offset: its position was reset."""

    def close(self) -> None:
        """Close what was opened."""


class LowerOffsetGuard:
    """Decides whether an offset may be written: by itself it never moves back."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._allowed: set[TopicPartition] = set()

    def allow(self, partition: TopicPartition) -> None:
        """Let the partition's offset move back."""
        self._allowed.add(partition)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Allow no more what was allowed for these."""
        self._allowed.difference_update(partitions)

    def admits(self, partition: TopicPartition, offset: int, stored: int, may_go_back: bool) -> bool:
        """Whether ``offset`` may replace ``stored``."""
        if offset >= stored:
            return True
        allowed = may_go_back or partition in self._allowed
        self._log.warning(
            "offset_goes_back" if allowed else "offset_not_moved_back",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            stored=stored,
        )
        return allowed
