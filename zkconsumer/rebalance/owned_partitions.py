"""OwnedPartitions: claims and releases a member's partitions, and starts and stops the delivery of their records."""

from __future__ import annotations

import time
from collections.abc import Set

from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.callbacks import CallbackRunner
from zkconsumer.rebalance.claim_history import ClaimHistory
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.ownership import Conflict, Ownership
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch


class OwnedPartitions:
    """Claims, releases and discards partitions, controls record delivery, and updates the ``Membership`` at each step.

    Used by the member thread.

    Args:
        watch: session watch, which waits for releases and holds the membership.
        ownership: manager of the owner znodes.
        history: history of earlier claims.
        committer: offset committer.
        handler: handler that delivers the records.
        callbacks: runner of the application's rebalance callbacks.
    """

    def __init__(
        self,
        watch: SessionWatch,
        ownership: Ownership,
        history: ClaimHistory,
        committer: OffsetCommitter,
        handler: PartitionHandler,
        callbacks: CallbackRunner,
    ) -> None:
        self._watch = watch
        self._membership = watch.membership
        self._ownership = ownership
        self._history = history
        self._committer = committer
        self._handler = handler
        self._callbacks = callbacks
        group, consumer_id = watch.membership.group, watch.membership.consumer_id
        self._log = get_logger("zkconsumer.rebalance", group=group, consumer_id=consumer_id)

    @property
    def release_timeout_s(self) -> float:
        """Maximum seconds that the handler may take to release revoked partitions."""
        return self._handler.release_timeout_s

    # ---- claiming ----

    def claim(self, added: Assignment) -> Conflict | None:
        """Create the owner znodes of the partitions in ``added``, or return a conflict with another member.

        Raises:
            SessionLostError: the session was lost.
        """
        self._watch.require()
        self._membership.claim(added)
        return self._ownership.claim(added)

    def start_delivery(self, added: Assignment, assignment: Assignment) -> None:
        """Call ``before_starting_fetchers``, and then start delivering records of the claimed partitions.

        Args:
            added: claimed partitions; may be empty.
            assignment: the group's assignment.

        Raises:
            SessionLostError: the session was lost.
        """
        self._callbacks.before_starting_fetchers(assignment)
        self._membership.group_assignment = assignment
        if not added:
            return
        starts = self._history.find_starts(added)
        self._watch.require()
        self._membership.confirm(added)
        self._log_change("partitions_assigned", added.keys())
        self._history.record_claims(starts)
        self._handler.on_partitions_assigned(starts.partitions)

    # ---- releasing ----

    def release(self, revoked: Set[TopicPartition], deadline: float) -> None:
        """Stop delivering records of revoked partitions, commit their offsets, and delete their owner znodes.

        Args:
            revoked: owned partitions to release.
            deadline: ``time.monotonic()`` by which the handler must release the partitions.

        Raises:
            SessionLostError: the session was lost.
        """
        self._stop_delivery(revoked, deadline)
        self._watch.require()
        recreated = self._history.find_recreated(revoked)
        # Do not commit offsets of deleted topics: they would apply to a new topic with the same name.
        valid = revoked - recreated - self._history.find_deleted(revoked)
        offsets = self._membership.releasing
        self._committer.commit_released({p: offsets[p] for p in valid if offsets[p] >= 0})
        self._callbacks.before_releasing_partitions(revoked)
        self._watch.require()
        self._membership.delete(revoked)
        self._committer.forget(revoked)
        self._history.record_release(recreated)
        try:
            self._delete_owner_znodes(revoked)
        finally:
            self._log_change("partitions_revoked", revoked)

    def _delete_owner_znodes(self, partitions: Set[TopicPartition]) -> None:
        """Wait until all earlier commits have ended, and delete the owner znodes.

        The next owner may commit as soon as the znode is deleted; a commit still in progress would overwrite its
        offset.
        """
        self._committer.wait_for_commits()
        self._watch.require()
        self._ownership.release(partitions)
        self._membership.release(partitions)

    def _stop_delivery(self, revoked: Set[TopicPartition], deadline: float) -> None:
        """Wait until the handler has released the partitions."""
        while delivering := revoked - self._membership.releasing.keys():
            remaining = deadline - time.monotonic()
            offsets = self._handler.on_partitions_revoked(delivering, remaining <= 0)
            if offsets is not None:
                self._membership.stop({partition: offsets.get(partition, -1) for partition in delivering})
                return
            self._watch.wait(max(0.0, remaining))

    def release_uncertain(self, target: Set[TopicPartition]) -> None:
        """Delete the owner znodes that may belong to this member, except those of the partitions in ``target``."""
        if unassigned := self._membership.uncertain - target:
            self._delete_owner_znodes(unassigned)

    # ---- losing ----

    def drop_deleted(self) -> None:
        """Discard owned partitions whose owner znodes were deleted externally."""
        deleted = self._ownership.find_missing(self._membership.assignment)
        if not deleted:
            return
        self._log.warning("owner_znodes_deleted", partitions=[str(p) for p in sorted(deleted)])
        self._handler.on_partitions_revoked(deleted, True)
        self._committer.forget(deleted)
        self._membership.drop(deleted)
        self._callbacks.forget_assignment()

    def lose(self, error: SessionLostError) -> None:
        """Discard all partitions; called when the session expired or may have expired."""
        membership = self._membership
        self._log.warning(error.event, owned_count=len(membership.assignment), session_id=f"{membership.session_id:#x}")
        lost = membership.assignment
        self.discard()
        self._committer.forget(lost)

    def discard(self) -> None:
        """Immediately stop delivering records of all partitions."""
        self._handler.on_partitions_lost()
        self._membership.lose()
        self._callbacks.forget_assignment()

    def _log_change(self, event: str, partitions: Set[TopicPartition]) -> None:
        owned = len(self._membership.assignment)
        self._log.info(event, partitions=[str(p) for p in sorted(partitions)], owned_count=owned)
