"""ZKRebalancerListener: the steps of a rebalance.

Source: Kafka 1.1 ZookeeperConsumerConnector.ZKRebalancerListener, ZKSessionExpireListener,
ZKTopicPartitionChangeListener. Deliberate differences: partitions that stay assigned are kept, partitions are claimed
before their offsets are read, a claim that fails waits until the owner's znode is deleted, and rebalances are retried
without a limit.
"""

from __future__ import annotations

import time
from collections.abc import Set

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.callbacks import CallbackRunner, ConsumerRebalanceListener
from zkconsumer.rebalance.claim_history import ClaimHistory
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.context import AssignmentContext
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.ownership import Conflict, Ownership
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch
from zkconsumer.zookeeper.registry import GroupPaths, Registration

#: Seconds for which a member that leaves the group retries to release its partitions.
_LEAVE_RETRY_TIMEOUT = 5.0


class PartitionOwnedError(RetriableError):
    """A znode of another session prevents the rebalance."""


class ZKRebalancerListener:
    """Registers the member, and changes the partitions that it owns to those that are assigned to it.

    Only the member's thread calls the methods and writes the fields.

    Args:
        registration: the topics to which the member subscribes.
        watch: waits for the release of partitions and for callbacks.
        user_listener: the application's callbacks.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        watch: SessionWatch,
        cluster: Cluster,
        committer: OffsetCommitter,
        handler: PartitionHandler,
        *,
        user_listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        self._config = config
        self._registration = registration
        self._watch = watch
        self._session = session = watch.session
        self._membership = membership = watch.membership
        self._committer = committer
        self._handler = handler
        self._paths = GroupPaths(membership.group)
        self._ownership = Ownership(session, self._paths, membership.consumer_id)
        self._context = AssignmentContext(config, membership.consumer_id, registration, session, cluster)
        self._callbacks: CallbackRunner | None = None
        if user_listener is not None:
            self._callbacks = CallbackRunner(
                user_listener,
                f"zkconsumer-{membership.group}-listener-{membership.consumer_id}",
                watch,
                timeout_s=config.rebalance_max_retries * config.rebalance_backoff_s,
            )
        #: The assignment that was last passed to the user's listener.
        self._reported_assignment: Assignment = {}
        self._history = ClaimHistory(config, cluster, membership, committer)
        self._log = get_logger("zkconsumer.rebalance", group=membership.group, consumer_id=membership.consumer_id)

    def lose(self, error: SessionLostError) -> None:
        """Discard the assignment, because the session has expired or may have expired."""
        membership = self._membership
        self._log.warning(error.event, owned=len(membership.assignment), session_id=f"{membership.session_id:#x}")
        self._handler.lose()
        self._committer.forget(membership.assignment)
        membership.lose()
        self._reported_assignment = {}

    # ---- a rebalance ----

    def rebalance(self) -> Conflict | None:
        """Release the partitions that are assigned to other members, and claim those that are assigned to this one.

        Returns:
            None, or the znode of another session that prevents the rebalance; a watch is set on it.

        Raises:
            SessionLostError: the session was lost; so are all partitions.

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
        self._drop_deleted()
        # One deadline for all releases of this rebalance, because JVM members do not retry their claims forever.
        deadline = time.monotonic() + self._handler.release_timeout
        while not self._watch.mailbox.is_stopping:
            for assignment in self._context.assignments():
                target = self._context.own_part(assignment)
                if revoked := self._find_revoked(target):
                    break
            owned = self._membership.assignment
            if revoked:
                self._release(revoked, deadline)
                continue  # the assignment may have changed meanwhile
            self._release_uncertain(target.keys())
            self._history.forget_unassigned(target.keys())
            added = {partition: thread for partition, thread in target.items() if partition not in owned}
            if added and (conflict := self._claim(added)) is not None:
                if not self._session.znodes.exists(conflict.path, watch=True):
                    continue
                return conflict
            self._call_before_starting_fetchers(assignment)
            self._membership.group_assignment = assignment
            if added:
                self._acquire(added)
            self._history.record_rebalance(assignment)
            return None
        return None

    def _find_revoked(self, target: Assignment) -> set[TopicPartition]:
        """Return the owned partitions to release, given the part of the assignment that belongs to this member."""
        owned = self._membership.assignment
        revoked = {partition for partition, thread in owned.items() if target.get(partition) != thread}
        return revoked | self._membership.releasing.keys() | self._history.find_recreated(owned)

    def conflict_error(self, conflict: Conflict) -> PartitionOwnedError:
        """Return the error for a rebalance that a znode of another session prevents."""
        try:
            mismatch = self._context.find_strategy_mismatch(conflict.path)
        except ZkConsumerError:
            mismatch = None  # the next attempt raises the same error
        if mismatch is not None:
            self._log.error("assignment_strategy_mismatch", path=conflict.path, error=mismatch)
            # Retriable, because the owners may look the same during a rebalance.
            return PartitionOwnedError(f"{conflict}: {mismatch}")
        return PartitionOwnedError(f"{conflict}; waiting for it to be released")

    def _register(self) -> Conflict | None:
        """Create the registration znode unless it exists; returns a znode of the same name of another session."""
        if self._membership.is_registered:
            try:
                self._watch.require()  # a lease that begins below must not cover what was owned before
            except SessionLostError as error:
                self.lose(error)
        session = self._session.session_id
        if self._membership.session_id == session and self._session.znodes.exists(self._ownership.registration_path):
            return None
        if (conflict := self._ownership.register(self._registration)) is not None:
            return conflict
        if self._config.offsets_commit_unchanged:
            for path in self._paths.subtrees:
                self._session.znodes.ensure(path)
        self._session.lease.acquire()  # before anything is claimed, so that the lease covers the claims
        self._membership.register(session)
        self._log.info("consumer_registered", session_id=f"{session:#x}")
        return None

    def _drop_deleted(self) -> None:
        """Discard owned partitions whose owner znodes were deleted externally."""
        deleted = self._ownership.missing(self._membership.assignment)
        if not deleted:
            return
        self._log.warning("owner_znodes_deleted", partitions=[str(p) for p in sorted(deleted)])
        self._handler.release(deleted, True)
        self._committer.forget(deleted)
        self._membership.drop(deleted)
        self._reported_assignment = {}

    # ---- claiming ----

    def _claim(self, added: Assignment) -> Conflict | None:
        """Create the owner znodes of partitions, or return one that another member owns."""
        self._watch.require()
        self._membership.claim(added)
        return self._ownership.claim(added)

    def _acquire(self, added: Assignment) -> None:
        """Start the delivery of claimed partitions."""
        starts = self._history.find_starts(added)
        self._watch.require()
        self._membership.confirm(added)
        self._log_change("partitions_assigned", added.keys())
        self._history.record_claims(starts)
        self._handler.acquire(starts.partitions)

    def _call_before_starting_fetchers(self, assignment: Assignment) -> None:
        """Call the user's listener if the group's assignment has changed; this member's part has been claimed."""
        if self._callbacks is None or assignment == self._reported_assignment:
            return
        by_topic: dict[str, dict[int, str]] = {}
        for (topic, number), thread in sorted(assignment.items()):
            by_topic.setdefault(topic, {})[number] = thread
        self._callbacks.before_starting_fetchers(self._membership.consumer_id, by_topic)
        self._reported_assignment = assignment

    # ---- releasing ----

    def _release(self, revoked: Set[TopicPartition], deadline: float) -> None:
        """Stop the delivery of revoked partitions, commit their offsets, and delete their owner znodes.

        Args:
            deadline: ``time.monotonic`` at which the handler must release the partitions.
        """
        self._stop_delivery(revoked, deadline)
        self._watch.require()
        recreated = self._history.find_recreated(revoked)
        # Do not commit for deleted topics: if the topic is re-created, the offset would be applied to the new topic.
        valid = revoked - recreated - self._history.find_deleted(revoked)
        offsets = self._membership.releasing
        self._committer.commit_released({p: offsets[p] for p in valid if offsets[p] >= 0})
        self._call_before_releasing(revoked)
        self._watch.require()
        self._ownership.release(revoked)
        self._committer.forget(revoked)
        self._history.record_release(recreated)
        self._membership.release(revoked)
        self._log_change("partitions_revoked", revoked)

    def _stop_delivery(self, revoked: Set[TopicPartition], deadline: float) -> None:
        """Wait until the handler releases the partitions."""
        while delivering := revoked - self._membership.releasing.keys():
            remaining = deadline - time.monotonic()
            offsets = self._handler.release(delivering, remaining <= 0)
            if offsets is not None:
                self._membership.stop({partition: offsets.get(partition, -1) for partition in delivering})
                return
            self._watch.wait(max(0.0, remaining))

    def _call_before_releasing(self, revoked: Set[TopicPartition]) -> None:
        """Call the user's listener."""
        if self._callbacks is None or self._watch.mailbox.is_stopping:  # Kafka 1.1 does not call it at shutdown either
            return
        by_topic: dict[str, set[int]] = {}
        for topic, number in revoked:
            by_topic.setdefault(topic, set()).add(number)
        self._callbacks.before_releasing_partitions(by_topic)

    def _release_uncertain(self, target: Set[TopicPartition]) -> None:
        """Delete owner znodes that may belong to this member and are not assigned to it."""
        if unassigned := self._membership.uncertain - target:
            self._ownership.release(unassigned)
            self._membership.release(unassigned)

    def _log_change(self, event: str, partitions: Set[TopicPartition]) -> None:
        owned = len(self._membership.assignment)
        self._log.info(event, partitions=[str(p) for p in sorted(partitions)], owned=owned)

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
            # ZooKeeper deletes the member's znodes when the session ends, at the latest after the end of the process.
            self._log.warning("leave_failed", error=str(error))
        finally:
            self._handler.lose()
            self._membership.lose()

    def _release_all(self) -> None:
        retry_until = time.monotonic() + self._handler.release_timeout + _LEAVE_RETRY_TIMEOUT
        while (owned := set(self._membership.assignment)) and self._session.is_connected:
            try:
                self._release(owned, time.monotonic() + self._handler.release_timeout)
            except SessionLostError:
                raise
            except RetriableError as error:
                if time.monotonic() > retry_until:
                    raise
                self._log.info("leave_retried", error=str(error))
                self._watch.wait(self._config.offsets_channel_backoff_s)
