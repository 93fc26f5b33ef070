"""OffsetCommitter: commits the offsets of a group member's partitions.

Source: Kafka 1.1 ZookeeperConsumerConnector.autoCommit, commitOffsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import OwnershipLostError, RetriableError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import Offsets
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.membership import Membership


class OffsetCommitter:
    """Commits offsets on request, periodically, and before partitions are released.

    Used by the member's thread. Another thread may call ``close`` after that thread was stopped.

    Args:
        offsets: storage of the committed offsets.
        interval_s: seconds between periodic commits of ``handler.consumed()``; None disables them.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        membership: Membership,
        offsets: Offsets,
        handler: PartitionHandler,
        *,
        interval_s: float | None,
    ) -> None:
        self._membership = membership
        self._offsets = offsets
        self._handler = handler
        self._interval_s = interval_s
        #: Seconds for which commits of released partitions are retried; a JVM member retries a claim for as long.
        self._retry_timeout_s = config.rebalance_max_retries * config.rebalance_backoff
        self._rejected_since: float | None = None  # ``time.monotonic`` of the first failed commit
        self._next_commit_at = time.monotonic() + interval_s if interval_s else None
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    # ---- the periodic commit ----

    @property
    def next_commit_at(self) -> float | None:
        """``time.monotonic`` at which the next periodic commit is due; None if there is none."""
        return self._next_commit_at

    def commit_if_due(self) -> None:
        """Run the periodic commit if it is due."""
        now = time.monotonic()
        if self._next_commit_at is not None and now >= self._next_commit_at:
            assert self._interval_s is not None
            self._next_commit_at = now + self._interval_s
            self._commit_consumed()

    def commit_after_rebalance(self) -> None:
        """Run the periodic commit, if it is enabled; Kafka 1.1 commits in each rebalance, too.

        If a member is killed after a rebalance, fewer records are consumed again.
        """
        if self._interval_s is not None:
            self._commit_consumed()

    def _commit_consumed(self) -> None:
        owned = self._membership.assignment
        consumed = {p: offset for p, offset in self._handler.consumed().items() if p in owned}
        try:
            self._membership.check_session()
            self._offsets.commit(consumed)
        except ZkConsumerError as error:
            self._log.warning("auto_commit_failed", error=str(error))  # the next commit includes these offsets

    # ---- for requests ----

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False) -> dict[TopicPartition, int]:
        """Commit offsets of owned partitions, and return the committed offsets.

        Raises:
            OwnershipLostError: one of the partitions is not owned.
        """
        not_owned = sorted(offsets.keys() - self._membership.assignment.keys())
        if not_owned:
            raise OwnershipLostError(
                f"partition {not_owned[0]} is not owned by consumer {self._membership.consumer_id}; its offset "
                f"{offsets[not_owned[0]]} was not committed, and its next owner starts at the committed offset"
            )
        self._membership.check_session()
        return self._offsets.commit(offsets, allow_lower=allow_lower)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit to decrease the partition's offset, because its position was reset."""
        self._offsets.allow_lower_once(partition)

    def switch(self, open_offsets: Callable[[], Offsets]) -> dict[TopicPartition, int]:
        """Copy the offsets of owned partitions to another storage, and use that from now on.

        Args:
            open_offsets: returns the other storage.

        Returns:
            the committed offsets in the other storage.

        Raises:
            ZkConsumerError: the offsets could not be copied; the current storage remains in use.
        """
        self._membership.check_session()
        owned = self._membership.assignment
        target = open_offsets()
        try:
            known = {p: offset for p, offset in self._offsets.fetch(owned).items() if offset >= 0}
            target.fetch(owned)
            stored = target.commit(known, allow_lower=True)
        except BaseException:
            target.close()
            raise
        previous, self._offsets = self._offsets, target
        previous.close()
        return stored

    def close(self) -> None:
        """Close the storage of offsets."""
        self._offsets.close()

    # ---- for rebalances ----

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition, -1 if there is none."""
        return self._offsets.fetch(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the cached offsets of partitions that other members may commit from now on."""
        self._offsets.forget(partitions)

    def commit_released(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of partitions that are about to be released.

        A retriable error is raised until ``rebalance.max.retries`` times ``rebalance.backoff.ms`` have passed. After
        that, and after any other error, offsets that are rejected are logged and discarded, so that the other members
        do not wait for the partitions forever.

        Raises:
            ZooKeeperUnavailableError: ZooKeeper is unavailable, so the owner znodes cannot be deleted, either.
            RetriableError: the commit can be retried.
        """
        try:
            self._offsets.commit(offsets)
        except ZooKeeperUnavailableError:
            raise
        except ZkConsumerError as error:
            now = time.monotonic()
            if self._rejected_since is None:
                self._rejected_since = now
            if isinstance(error, RetriableError) and now < self._rejected_since + self._retry_timeout_s:
                raise
            for partition, offset in offsets.items():
                self._commit_or_discard(partition, offset)
        self._rejected_since = None

    def _commit_or_discard(self, partition: TopicPartition, offset: int) -> None:
        try:
            self._offsets.commit({partition: offset})
        except ZooKeeperUnavailableError:
            raise
        except ZkConsumerError as error:
            self._log.error(
                "offset_commit_rejected",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                error=str(error),
            )
