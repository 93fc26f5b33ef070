"""ZKRebalancerListener: the steps of a rebalance.

Source: Kafka 1.1 ZookeeperConsumerConnector.ZKRebalancerListener, ZKSessionExpireListener,
ZKTopicPartitionChangeListener. Deliberate differences: partitions that remain assigned are kept, partitions are claimed
before their offsets are fetched, a failed claim waits until the owner znode is deleted, and rebalances are retried
indefinitely.

See docs/decisions/02-claim-before-fetching-offsets.rst.
"""

from __future__ import annotations

import time

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.claim_history import ClaimHistory
from zkconsumer.rebalance.context import AssignmentContext
from zkconsumer.rebalance.owned_partitions import OwnedPartitions
from zkconsumer.rebalance.ownership import Conflict, Ownership
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch

#: Maximum seconds, in addition to the release timeout, during which a leaving member retries releasing its partitions.
_LEAVE_RETRY_TIMEOUT_S = 5.0


class PartitionOwnedError(RetriableError):
    """Raised when a znode of another session blocks the rebalance."""


class ZKRebalancerListener:
    """Registers the member, and releases and claims partitions until it owns exactly its assigned partitions.

    Used only by the member thread.

    Args:
        config: consumer configuration.
        watch: session watch, which holds the session and the membership.
        context: assignment context, which computes the assignment.
        ownership: manager of the member's znodes.
        history: history of earlier claims.
        partitions: partitions owned by the member.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        watch: SessionWatch,
        context: AssignmentContext,
        ownership: Ownership,
        history: ClaimHistory,
        partitions: OwnedPartitions,
    ) -> None:
        self._leave_backoff_s = config.offsets_channel_backoff_s
        self._watch = watch
        self._session = watch.session
        self._membership = membership = watch.membership
        self._context = context
        self._ownership = ownership
        self._history = history
        self._partitions = partitions
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def lose(self, error: SessionLostError) -> None:
        """Discard all partitions; called when the session expired or may have expired."""
        self._partitions.lose(error)

    # ---- rebalancing ----

    def rebalance(self) -> Conflict | None:
        """Release partitions assigned to other members, and claim partitions assigned to this member.

        Returns:
            None, or a conflict if a znode of another session blocks the rebalance; a watch is set on the znode.

        Raises:
            SessionLostError: the session was lost, and all partitions with it.

        Source: Kafka 1.1 ZKRebalancerListener.rebalance.
        """
        try:
            return self._rebalance()
        except SessionLostError as error:
            self.lose(error)
            raise

    def _rebalance(self) -> Conflict | None:
        if not self._session.is_connected:
            raise self._session.not_connected_error()
        if (conflict := self._register()) is not None:
            return conflict
        self._partitions.drop_deleted()
        # One deadline for all releases of this rebalance, because JVM members do not retry their claims forever.
        deadline = time.monotonic() + self._partitions.release_timeout_s
        while not self._watch.mailbox.is_stopping:
            for assignment in self._context.compute_assignments():
                target = self._context.select_own(assignment)
                if revoked := self._find_revoked(target):
                    break
            owned = self._membership.assignment
            if revoked:
                self._partitions.release(revoked, deadline)
                continue  # the assignment may have changed in the meantime
            self._partitions.release_uncertain(target.keys())
            self._history.forget_unassigned(target.keys())
            added = {partition: thread for partition, thread in target.items() if partition not in owned}
            if added and (conflict := self._partitions.claim(added)) is not None:
                if not self._session.znodes.exists(conflict.path, watch=True):
                    continue
                return conflict
            self._partitions.start_delivery(added, assignment)
            self._history.record_rebalance(assignment)
            return None
        return None

    def _find_revoked(self, target: Assignment) -> set[TopicPartition]:
        """Return the owned partitions to release, given this member's part of the assignment."""
        owned = self._membership.assignment
        revoked = {partition for partition, thread in owned.items() if target.get(partition) != thread}
        return revoked | self._membership.releasing.keys() | self._history.find_recreated(owned)

    def conflict_error(self, conflict: Conflict) -> PartitionOwnedError:
        """Return the exception for a rebalance that is blocked by a znode of another session."""
        try:
            mismatch = self._context.find_strategy_mismatch(conflict.path)
        except ZkConsumerError:
            mismatch = None  # the next attempt raises the same error
        if mismatch is not None:
            self._log.error("assignment_strategy_mismatch", path=conflict.path, error=mismatch)
            # Retriable, because a rebalance in progress may look like a mismatch.
            return PartitionOwnedError(f"{conflict}: {mismatch}")
        return PartitionOwnedError(f"{conflict}; waiting for it to be released")

    def _register(self) -> Conflict | None:
        """Create the registration znode unless it exists; return a conflict if another session created it."""
        if self._membership.is_registered:
            try:
                self._watch.require()  # a new lease must not cover partitions that were claimed before it was acquired
            except SessionLostError as error:
                self.lose(error)
        session = self._session.session_id
        if self._membership.session_id == session and self._session.znodes.exists(self._ownership.registration_path):
            return None
        if (conflict := self._ownership.register()) is not None:
            return conflict
        self._session.lease.acquire()  # before partitions are claimed, so that the lease covers them
        self._membership.register(session)
        self._log.info("consumer_registered", session_id=f"{session:#x}")
        return None

    # ---- leaving ----

    def leave(self) -> None:
        """Release all partitions and delete the registration."""
        try:
            try:
                self._release_all()
            except SessionLostError as error:
                self.lose(error)
            if self._session.is_connected:
                self._ownership.unregister()
        except ZkConsumerError as error:
            # ZooKeeper deletes the member's znodes when the session ends. At the latest, the session expires after the
            # process exits.
            self._log.warning("leave_failed", error=str(error))
        finally:
            self._partitions.discard()

    def _release_all(self) -> None:
        release_timeout_s = self._partitions.release_timeout_s
        retry_until = time.monotonic() + release_timeout_s + _LEAVE_RETRY_TIMEOUT_S
        membership = self._membership
        while membership.is_registered and self._session.is_connected:
            try:
                if owned := set(membership.assignment):
                    self._partitions.release(owned, time.monotonic() + release_timeout_s)
                self._partitions.release_uncertain(frozenset())
                return
            except SessionLostError:
                raise
            except RetriableError as error:
                if time.monotonic() > retry_until:
                    raise
                self._log.info("leave_retried", error=str(error))
                self._watch.wait(self._leave_backoff_s)
