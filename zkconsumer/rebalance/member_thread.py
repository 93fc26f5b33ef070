"""MemberThread: the event loop of a group member."""

from __future__ import annotations

import time

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.handler import PartitionHandler, failure_of
from zkconsumer.rebalance.rebalancer import ZKRebalancerListener
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch
from zkconsumer.threads import OwnedThread


class MemberThread:
    """The thread that registers a member and runs its rebalances.

    It processes calls and events, runs rebalances, and starts periodic commits when they are due. It modifies the state
    in ``Membership``, ``ZKRebalancerListener``, ``RebalanceAttempts`` and ``OffsetCommitter``.

    See docs/decisions/01-one-thread-per-member.rst.

    Args:
        watch: session watch, used to wait for calls and events.
        listener: rebalancer, used to leave the group.
        attempts: schedule of rebalance attempts.
        first_rebalance: result of the first rebalance.
        committer: offset committer, which schedules the periodic commits.
        handler: handler that is notified of a fatal error.

    Attributes:
        attempts: schedule of rebalance attempts.
        failure: error that terminated the thread; None unless it failed.
        failed_at: time of the failure, in seconds since the epoch; only valid if ``failure`` is set.
    """

    def __init__(
        self,
        watch: SessionWatch,
        listener: ZKRebalancerListener,
        attempts: RebalanceAttempts,
        first_rebalance: FirstRebalance,
        committer: OffsetCommitter,
        handler: PartitionHandler,
    ) -> None:
        self._watch = watch
        self._session = watch.session
        self._mailbox = watch.mailbox
        self._membership = membership = watch.membership
        self._listener = listener
        self.attempts = attempts
        self._first_rebalance = first_rebalance
        self._committer = committer
        self._handler = handler
        self.failure: ZkConsumerError | None = None
        self.failed_at = 0.0
        group, consumer_id = membership.group, membership.consumer_id
        self._log = get_logger("zkconsumer.rebalance", group=group, consumer_id=consumer_id)
        self._thread = OwnedThread(self._run, f"zkconsumer-{group}-rebalance-{consumer_id}", self._log_failure)

    # ---- called by any thread ----

    def start(self) -> None:
        """Start the thread, and wait until the first rebalance completes.

        Raises:
            ClosedError: ``stop`` was called.
            ZkConsumerError: see ``FirstRebalance.wait``.
        """
        self._first_rebalance.start()
        if self._mailbox.is_stopping:
            raise ClosedError("the consumer was shut down")
        self._mailbox.open()
        self._thread.start()
        self._first_rebalance.wait()

    def stop(self, timeout_s: float) -> None:
        """Make the thread release all partitions, unregister and terminate; wait at most ``timeout_s`` seconds."""
        self._mailbox.stop()
        if not self._thread.join(timeout_s) and not self._thread.is_current:
            self._log.warning("leave_timed_out", timeout_s=timeout_s, owned_count=len(self._membership.assignment))

    # ---- called by the member thread ----

    def _run(self) -> None:
        try:
            while not self._mailbox.is_stopping:
                try:
                    self._watch.wait(self._time_to_next_task())
                except SessionLostError as error:
                    self._listener.lose(error)
                if not self._mailbox.is_stopping:
                    self._run_due_tasks()
            self._listener.leave()
        except BaseException as error:
            self._log_failure(error)
            self._fail(failure_of(error))
        finally:
            self._first_rebalance.fail(ClosedError("the consumer was shut down during its first rebalance"))
            self._mailbox.close(self.failure)

    def _log_failure(self, error: BaseException) -> None:
        self._log.error("member_thread_failed", exc_info=error)

    def _fail(self, failure: ZkConsumerError) -> None:
        """Leave the group, and make all subsequent calls by the application raise ``failure``."""
        self.failure, self.failed_at = failure, time.time()
        try:
            self._handler.fail(failure)
            self.attempts.terminate(failure)
            self._mailbox.close(failure)
            self._handler.on_partitions_lost()
            self._membership.lose()
            self._committer.close()  # no commit may still be running when other members claim the partitions
            self._committer.join()
        finally:
            self._session.close()  # so that ZooKeeper deletes the znodes, and other members can claim the partitions

    def _time_to_next_task(self) -> float | None:
        """Return the seconds until a task is due; None if none is scheduled."""
        times = [at for at in (self.attempts.next_attempt_at, self._committer.next_commit_at) if at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _run_due_tasks(self) -> None:
        if (failure := self._session.failure) is not None:
            raise failure
        if self.attempts.run_if_due():
            self._committer.commit_after_rebalance()
        self._committer.commit_if_due()
