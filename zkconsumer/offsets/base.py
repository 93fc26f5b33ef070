"""The interface to a group's committed offsets, and a guard against commits of lower offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Protocol

from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition

#: Result of ``Offsets.fetch`` for a partition whose offset was committed for a deleted topic with the same name.
#: See docs/decisions/25-offsets-of-deleted-topics.rst.
OF_DELETED_TOPIC = -2


class Offsets(Protocol):
    """A group's committed offsets. Used by one thread.

    A commit that would lower a committed offset is skipped unless it is explicitly allowed; see ``LowerOffsetGuard``
    for the log events.
    """

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's committed offset, which is the next offset to consume.

        The offset is -1 if none is committed, and ``OF_DELETED_TOPIC`` if the topic was re-created after the commit.

        Raises:
            ZkConsumerError: a committed offset could not be read; -1 is never returned in this case.
        """

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        allow_lower: bool = False,
        before_write: Callable[[], object] = dict,
    ) -> dict[TopicPartition, int]:
        """Commit offsets. Each applies to the topic that existed when the partition's offset was last fetched.

        Args:
            offsets: next offset to consume, by partition.
            allow_lower: whether committed offsets may be lowered.
            before_write: function that is called before each write; if it raises an exception, the commit ends with it.

        Returns:
            The committed offset of each partition in ``offsets`` after the commit.

        Raises:
            ZkConsumerError: some offsets were not committed.
        """

    def lacks(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a storage contains no or a lower offset, as of the last ``fetch`` or ``commit``."""

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the cached offsets of released partitions, which other members may now commit."""

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit to lower the partition's offset, because its position was reset."""

    @property
    def lowerable(self) -> Set[TopicPartition]:
        """The partitions whose offsets the next commit may lower."""

    def close(self) -> None:
        """Close the connections opened by this object."""


class LowerOffsetGuard:
    """Decides whether a commit may lower a committed offset, and logs such commits.

    Commits that are skipped because of the same committed offset are logged once.

    Attributes:
        allowed: partitions whose offsets the next commit may lower.
    """

    def __init__(self, log: Logger) -> None:
        self.allowed: set[TopicPartition] = set()
        self._log = log
        #: Committed offsets for which a skipped commit was logged.
        self._logged: dict[TopicPartition, int] = {}

    def allow(self, partition: TopicPartition) -> None:
        """Allow the next commit to lower the partition's offset."""
        self.allowed.add(partition)

    def reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``allow`` for ``partitions``."""
        self.allowed.difference_update(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the state of released partitions."""
        released = list(partitions)
        self.reset(released)
        for partition in released:
            self._logged.pop(partition, None)

    def permits(self, partition: TopicPartition, offset: int, committed: int, allow_lower: bool) -> bool:
        """Return whether ``offset`` may replace ``committed``; log a warning if it is lower."""
        if offset >= committed:
            self._logged.pop(partition, None)
            return True
        is_allowed = allow_lower or partition in self.allowed
        if not is_allowed:
            if self._logged.get(partition) == committed:
                return False
            self._logged[partition] = committed
        self._log.warning(
            "committed_offset_lowered" if is_allowed else "offset_commit_skipped",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            committed_offset=committed,
        )
        return is_allowed
