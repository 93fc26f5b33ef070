"""PartitionHandler: the interface between a group member and the code that delivers its partitions' records."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from zkconsumer.errors import ZkConsumerError
from zkconsumer.message import TopicPartition


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """A claimed partition.

    Attributes:
        thread_id: the thread id that owns it.
        offset: the group's committed offset; -1 if there is none.
        is_new: whether the partition is read from its beginning, regardless of ``auto.offset.reset``: its topic was
            re-created, or it is new and ``auto.offset.reset.new.partitions`` is ``smallest``.
    """

    thread_id: str
    offset: int
    is_new: bool = False


class PartitionHandler(Protocol):
    """Delivers the records of a member's partitions. The member's thread calls the methods."""

    #: Maximum seconds for which ``on_partitions_revoked`` may return None.
    release_timeout_s: float

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Start delivering the records of partitions that the member owns now."""

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        """Stop delivering the records of revoked partitions, and return the offsets to commit.

        Returns None while the partitions cannot be released yet. It is called again after each event, and a last time
        with ``final=True`` when ``release_timeout_s`` expires. That call must return offsets.
        """

    def on_partitions_lost(self) -> None:
        """Stop delivering records immediately: the session that owns the partitions has expired, or may have."""

    def on_lease_expired(self) -> None:
        """Deliver no more records until ``on_partitions_assigned``.

        Called in another thread, and must not block. The member's thread, which may be blocked, calls
        ``on_partitions_lost`` later.
        """

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets for the periodic commit; called in another thread."""

    def fail(self, error: ZkConsumerError) -> None:
        """Report a fatal error: the member leaves the group, and its thread terminates."""


def failure_of(error: BaseException) -> ZkConsumerError:
    """Return the argument of ``PartitionHandler.fail`` for an error that has ended the member's thread."""
    if isinstance(error, ZkConsumerError):
        return error
    failure = ZkConsumerError(f"the group member failed: {error!r}; create a new consumer")
    failure.__cause__ = error
    return failure
