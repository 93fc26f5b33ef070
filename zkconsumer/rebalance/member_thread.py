"""MemberThread: the event loop of one group member."""

from __future__ import annotations

import threading
import time

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.event_queue import EventQueue
from zkconsumer.rebalance.handler import PartitionHandler, failure_of
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.rebalancer import ZKRebalancerListener
from zkconsumer.zookeeper.session import Event, EventKind, ZooKeeperSession


class MemberThread:
    """The only thread of a member that registers and rebalances.

    It processes the events of the queue, runs rebalances, and starts periodic commits when they are due. The thread has
    no state of its own: it writes that of ``Membership``, ``ZKRebalancerListener``, ``RebalanceAttempts`` and
    ``OffsetCommitter``.

    Attributes:
        failure: the error that has ended the thread; None unless it has failed.
        failed_at: seconds since the epoch; valid if there is a failure.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        events: EventQueue,
        membership: Membership,
        listener: ZKRebalancerListener,
        attempts: RebalanceAttempts,
        committer: OffsetCommitter,
        handler: PartitionHandler,
    ) -> None:
        self._session = session
        self._events = events
        self._membership = membership
        self._listener = listener
        self._attempts = attempts
        self._committer = committer
        self._handler = handler
        self.failure: ZkConsumerError | None = None
        self.failed_at = 0.0
        group, consumer_id = membership.group, membership.consumer_id
        self._log = get_logger("zkconsumer.rebalance", group=group, consumer_id=consumer_id)
        self._thread = threading.Thread(
            target=self._run, name=f"zkconsumer-{group}-rebalance-{consumer_id}", daemon=True
        )
        events.on_zookeeper_event = self._handle_zookeeper_event

    # ---- any thread ----

    def start(self) -> None:
        """Start the thread, and wait until the first rebalance is completed.

        Raises:
            ConfigurationError: the settings make a rebalance impossible.
            ConsumerRebalanceFailedError: ``rebalance.max.retries`` attempts have failed, and the time limits of
                ``RebalanceAttempts`` have passed.
            ClosedError: ``stop`` was called.
        """
        self._attempts.start()
        if self._events.is_stopping:
            raise ClosedError("the consumer was shut down")
        self._events.open()
        self._thread.start()
        self._attempts.first_rebalance.result()

    def stop(self, timeout_s: float) -> None:
        """Release and commit all partitions, unregister, and terminate the thread; waits for at most ``timeout_s``."""
        self._events.stop()
        if not self._thread.is_alive():
            self._events.is_stopping = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                self._log.warning("leave_timed_out", timeout_s=timeout_s, owned=len(self._membership.assignment))

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._events.is_stopping:
                self._events.process(self._time_to_next_task())
                if not self._events.is_stopping:
                    self._run_due_tasks()
            self._listener.leave()
        except BaseException as error:
            self._log.error("member_thread_failed", exc_info=True)
            self._fail(failure_of(error))
        finally:
            self._attempts.fail_first(ClosedError("the consumer was shut down during its first rebalance"))
            self._events.close(self.failure)

    def _fail(self, failure: ZkConsumerError) -> None:
        """Leave the group, and make everything that the application does next raise the error."""
        self.failure, self.failed_at = failure, time.time()
        try:
            self._handler.fail(failure)
            self._attempts.end(failure)
            self._events.close(failure)
            self._handler.lose()
            self._membership.assignment = {}
        finally:
            self._session.close()  # so that ZooKeeper deletes the znodes and other members take over the partitions

    def _time_to_next_task(self) -> float | None:
        """Return the seconds until a task is due or the lease expires; None if neither will happen."""
        now = time.monotonic()
        times = [at for at in (self._attempts.next_attempt_at, self._committer.next_commit_at) if at is not None]
        if self._membership.is_registered:
            times.append(now + self._session.lease.remaining_s)
        return max(0.0, min(times) - now) if times else None

    def _run_due_tasks(self) -> None:
        if self._session.has_failed_authentication:
            raise self._session.authentication_error()  # kazoo does not retry after a failed authentication
        if self._session.has_ended:
            raise self._session.ended_error()
        if self._listener.check_lease():
            self._attempts.request()
        self._attempts.run_if_due()
        self._committer.commit_if_due()

    def _handle_zookeeper_event(self, event: Event) -> None:
        self._log.debug("zookeeper_event_received", kind=event.kind.value, path=event.path)
        if event.kind is EventKind.LOST:
            self._listener.lose("session_expired")
        if event.kind is not EventKind.SUSPENDED:
            self._attempts.request()
