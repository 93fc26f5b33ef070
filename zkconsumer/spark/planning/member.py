"""Interface of a query's group member, as used by planning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from zkconsumer.health import HealthReason
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster


class Member(Protocol):
    """Interface of ``GroupMember``, and of ``StandaloneMember`` with ``membership=none``. Any thread may use it."""

    @property
    def consumer_id(self) -> str:
        """Consumer id of the member; unique for each planning process."""

    @property
    def cluster(self) -> Cluster:
        """Brokers, topics and partitions."""

    @property
    def assignment(self) -> Mapping[TopicPartition, str]:
        """The partitions that the member owns, and their thread ids."""

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """The partitions of all group members, and their thread ids."""

    @property
    def holds_lease(self) -> bool:
        """Whether the lease is held, so that no other member can own the partitions in ``assignment``."""

    @property
    def rebalances(self) -> int:
        """Number of successful rebalances."""

    @property
    def discoveries(self) -> int:
        """Number of times that topics and partitions were listed."""

    @property
    def unbalanced_since(self) -> float | None:
        """Time (``time.monotonic``) at which rebalances started to fail; None if the last one succeeded."""

    def start(self, connect_timeout_s: float = 0.0) -> None:
        """Connect, and wait for the first assignment; see ``GroupMember.start``."""

    def close(self) -> None:
        """Release all partitions, and close the connections."""

    def health_reasons(self) -> list[HealthReason]:
        """Return the reasons why the member does not own its partitions or cannot commit; empty if it is healthy."""

    def wake(self) -> None:
        """Wake up the member, so that it retries the release of revoked partitions."""

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        *,
        allow_lower: bool = False,
        timeout_s: float | None = None,
        on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit offsets, and return the committed ones; see ``GroupMember.commit``."""
