"""PartitionHandler: the interface between a group member and the code that delivers its records."""

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
        thread_id: id of the thread that owns the partition.
        offset: the group's committed offset; -1 if there is none.
        is_new: whether to read the partition from the beginning, regardless of ``auto.offset.reset``, because its topic
            was re-created, or because it is new and ``auto.offset.reset.new.partitions`` is ``smallest``.
    """

    thread_id: str
    offset: int
    is_new: bool = False


class PartitionHandler(Protocol):
    """Delivers the records of a member's partitions. The member thread calls the methods unless noted otherwise."""

    #: Maximum seconds during which ``on_partitions_revoked`` may return None.
    release_timeout_s: float

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Start delivering the records of newly claimed partitions."""

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        """Stop delivering the records of revoked partitions, and return the offsets to commit.

        The method returns None while the partitions cannot be released yet. It is called again after each event, and a
        last time with ``final=True`` when ``release_timeout_s`` expires. The last call must return offsets.
        """

    def on_partitions_lost(self) -> None:
        """Stop delivering records immediately, because the ZooKeeper session expired or may have expired."""

    def on_lease_expired(self) -> None:
        """Deliver no more records until ``on_partitions_assigned`` is called.

        Called in another thread, and must not block. The member thread, which may be blocked, calls
        ``on_partitions_lost`` later.
        """

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets for the periodic commit."""

    def take_resets(self) -> Set[TopicPartition]:
        """Return the partitions whose position was reset since the last call; the next commit may lower their offsets.

        No position is reset between ``on_partitions_revoked`` and the next ``on_partitions_assigned`` of a partition.
        """

    def fail(self, error: ZkConsumerError) -> None:
        """Report a fatal error: the member leaves the group, and its thread terminates."""


def failure_of(error: BaseException) -> ZkConsumerError:
    """Convert an exception that terminated the member thread to an argument for ``PartitionHandler.fail``."""
    if isinstance(error, ZkConsumerError):
        return error
    failure = ZkConsumerError(f"the group member failed: {error!r}; create a new consumer")
    failure.__cause__ = error
    return failure
