"""OffsetCommitter: commits the offsets of a group member's partitions.

Source: Kafka 1.1 ZookeeperConsumerConnector.autoCommit, commitOffsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    ClosedError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.health import Problem
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import Offsets
from zkconsumer.rebalance.broker_requests import BrokerRequestThread
from zkconsumer.rebalance.commit_requests import CommitRequest, CommitRequests
from zkconsumer.rebalance.futures import complete_future
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.offset_storage import OffsetStorage
from zkconsumer.rebalance.session_watch import SessionLostError


class OffsetCommitter:
    """Commits offsets on request, periodically, and before partitions are released.

    Used by the member thread; another thread may call ``close`` after the member thread has stopped. The broker request
    thread runs all storage operations in order, so it owns ``_storage``.

    Commits are executed in the order in which their offsets are read. Otherwise, an older offset could replace a newer
    one after a reset.

    Args:
        config: consumer configuration.
        membership: owned partitions, and the session in which they are owned.
        open_offsets: function that opens an offset storage, given ``offsets.storage`` and ``dual.commit.enabled``.
        handler: handler that provides the consumed offsets.
        requests: broker request thread.
        interval_s: interval in seconds at which ``handler.consumed_offsets()`` is committed; None disables this.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        membership: Membership,
        open_offsets: Callable[[str, bool], Offsets],
        handler: PartitionHandler,
        requests: BrokerRequestThread,
        *,
        interval_s: float | None,
    ) -> None:
        self._membership = membership
        self._storage = OffsetStorage(open_offsets, config.offsets_storage, config.dual_commit_enabled)
        self._handler = handler
        self._requests = requests
        self._merged = CommitRequests(self._commit)
        self._interval_s = interval_s
        #: Maximum seconds that the release of partitions waits for their offsets to be committed.
        self._release_timeout_s = config.offsets_channel_socket_timeout_s
        self._backoff_s = config.offsets_channel_backoff_s
        self.problem: Problem | None = None  # error of the last periodic commit; set by the broker request thread
        self._periodic_commit: Future[dict[TopicPartition, int]] | None = None
        self._next_commit_at = time.monotonic() + interval_s if interval_s else None
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def start(self) -> None:
        """Start the broker request thread."""
        self._requests.start()

    # ---- periodic commits ----

    @property
    def next_commit_at(self) -> float | None:
        """``time.monotonic()`` at which the next periodic commit is due; None if none is scheduled."""
        return self._next_commit_at

    def commit_if_due(self) -> None:
        """Request the periodic commit if it is due."""
        now = time.monotonic()
        if self._next_commit_at is not None and now >= self._next_commit_at:
            assert self._interval_s is not None
            self._next_commit_at = now + self._interval_s
            self._commit_consumed()

    def commit_after_rebalance(self) -> None:
        """Request the periodic commit if it is enabled; Kafka 1.1 also commits during each rebalance.

        This reduces the number of records that are consumed again if a member is killed after a rebalance.
        """
        if self._interval_s is not None:
            self._commit_consumed()

    def _commit_consumed(self) -> None:
        if self._periodic_commit is not None and not self._periodic_commit.done():
            return  # the next periodic commit includes these offsets
        consumed: Future[Mapping[TopicPartition, int]] = Future()
        complete_future(consumed, lambda: self._read_offsets(self._handler.consumed_offsets))
        self._merged.separate()
        self._periodic_commit = self._requests.submit(lambda: self._commit(self._select_owned(consumed.result())))
        self._periodic_commit.add_done_callback(self._log_failure)

    def _read_offsets(self, read: Callable[[], Mapping[TopicPartition, int]]) -> Mapping[TopicPartition, int]:
        """Read the offsets of the next commit, and allow it to lower the offsets of reset partitions."""
        offsets = read()
        while self._allow_resets():  # some of the offsets may have been read before the reset
            offsets = read()
        return offsets

    def _allow_resets(self) -> bool:
        """Allow the next commit to lower the offsets of reset partitions; return whether there are any."""
        partitions = self._handler.take_resets()
        for partition in partitions:
            self.allow_lower_once(partition)
        return bool(partitions)

    def _select_owned(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        owned = self._membership.assignment
        return {partition: offset for partition, offset in offsets.items() if partition in owned}

    def _log_failure(self, commit: Future[dict[TopicPartition, int]]) -> None:  # in the broker request thread
        error = commit.exception()
        if error is None or isinstance(error, ClosedError):
            self.problem = None
            return
        self.problem = Problem.again(self.problem, "commit_failed", error)
        if isinstance(error, ZkConsumerError):
            self._log.warning("auto_commit_failed", error=str(error))
        else:
            self._log.error("auto_commit_failed", error=repr(error), exc_info=error)

    # ---- application requests ----

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        result: Future[dict[TopicPartition, int]],
        *,
        allow_lower: bool = False,
        on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
    ) -> None:
        """Commit offsets of owned partitions.

        Args:
            offsets: next offset to consume, by partition; or a function that returns this mapping. It may be called
                several times.
            result: future to complete with the committed offsets. It must be running, so that it can no longer be
                cancelled.
            allow_lower: whether committed offsets may be lowered.
            on_committed: function that is called with the committed offsets, before any later commit of these
                partitions.

        Raises:
            OwnershipLostError: the member does not own one of the partitions.
        """
        wanted = self._read_offsets(offsets if callable(offsets) else lambda: offsets)
        self._check_owned(wanted)
        request = CommitRequest(dict(wanted), result, allow_lower, on_committed)
        self._merged.add(request)
        self._requests.post(lambda: self._merged.commit_until(request), result)

    def _check_owned(self, offsets: Mapping[TopicPartition, int]) -> None:
        not_owned = sorted(offsets.keys() - self._membership.assignment.keys())
        if not_owned:
            raise OwnershipLostError(
                f"partition {not_owned[0]} is not owned by consumer {self._membership.consumer_id}; its offset "
                f"{offsets[not_owned[0]]} was not committed, and its next owner starts at the committed offset"
            )

    def _commit(  # in the broker request thread
        self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False
    ) -> dict[TopicPartition, int]:
        # The session may have expired, and partitions may have been released, while this call was queued.
        self._check_committable(offsets)
        return self._storage.offsets.commit(
            offsets, allow_lower=allow_lower, before_write=lambda: self._check_committable(offsets)
        )

    def _check_committable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Check that this member still owns the partitions; otherwise, another member may have committed offsets."""
        self._membership.check_session()
        self._check_owned(offsets)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit to lower the partition's offset, because its position was reset."""
        self._merged.separate()
        self._requests.submit(lambda: self._allow_lower_once(partition))

    def _allow_lower_once(self, partition: TopicPartition) -> None:  # in the broker request thread
        if partition in self._membership.assignment:  # otherwise, it was released while this call was queued
            self._storage.offsets.allow_lower_once(partition)

    def switch(self, storage: str, dual_commit: bool, result: Future[dict[TopicPartition, int]]) -> None:
        """Copy the offsets of owned partitions to another storage, and switch to it.

        If the offsets cannot be copied, the old storage remains in use.

        Args:
            storage: new value of ``offsets.storage``.
            dual_commit: new value of ``dual.commit.enabled``.
            result: future to complete with the committed offsets in the new storage.
        """
        self._merged.separate()
        self._requests.post(lambda: result.set_result(self._switch(storage, dual_commit)), result)

    def _switch(self, storage: str, dual_commit: bool) -> dict[TopicPartition, int]:
        self._membership.check_session()
        owned = self._membership.assignment
        source = self._storage.offsets

        def copy(target: Offsets) -> dict[TopicPartition, int]:
            known = {p: offset for p, offset in source.fetch(owned).items() if offset >= 0}
            target.fetch(owned)
            offsets = self._select_owned(known)  # partitions may have been released during the requests
            committed = target.commit(offsets, allow_lower=True, before_write=lambda: self._check_committable(offsets))
            for partition in source.lowerable & owned.keys():
                target.allow_lower_once(partition)
            return committed

        return self._storage.switch(storage, dual_commit, copy)

    def close(self) -> None:
        """Reject all further operations, abort the running one, and close the offset storage."""
        self._requests.close(abort=self._storage.close)

    def join(self) -> None:
        """Wait a limited time for the broker request thread to terminate after ``close``."""
        self._requests.join()

    # ---- rebalances ----

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's committed offset; see ``Offsets.fetch``."""
        requested = list(partitions)
        return self._requests.call(lambda: self._storage.offsets.fetch(requested))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the cached offsets of released partitions, because other members may now commit newer offsets."""
        released = list(partitions)
        self._requests.submit(lambda: self._storage.offsets.forget(released))

    def commit_released(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of partitions that are about to be released, after all earlier commits.

        A commit that fails with a retriable error is retried for up to ``offsets.channel.socket.timeout.ms``. After
        that, and after any other error, the offsets are logged and discarded, so that the group does not wait for the
        partitions indefinitely.

        Raises:
            ZooKeeperUnavailableError: ZooKeeper is unavailable, so the owner znodes cannot be deleted either.
            OwnershipLostError: the session expired.
            SessionLostError: the session was lost, or its lease ended, in the meantime.
        """
        deadline = time.monotonic() + self._release_timeout_s
        self._allow_resets()
        while True:
            self._merged.separate()
            try:
                self._requests.call(lambda: self._commit(offsets) if offsets else {}, deadline)
                return
            except (ZooKeeperUnavailableError, OwnershipLostError, SessionLostError):
                raise
            except TimeoutError:
                reason = f"the commit did not complete within {self._release_timeout_s:g} s"
            except ZkConsumerError as error:
                if isinstance(error, RetriableError) and time.monotonic() + self._backoff_s < deadline:
                    self._requests.process_events_for(self._backoff_s)
                    continue
                reason = str(error)
            if offsets:
                discarded = {str(partition): offset for partition, offset in sorted(offsets.items())}
                self._log.error("offsets_discarded", offsets=discarded, error=reason)
            return

    def wait_for_commits(self) -> None:
        """Wait until all previously requested commits have ended.

        Raises:
            BrokerUnavailableError: a commit did not end despite its own deadline.
            SessionLostError: the session was lost, or its lease ended, in the meantime.
        """
        self._requests.call(lambda: None)
