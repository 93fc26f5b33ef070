"""RebalanceAttempts: runs the rebalances of one group member, and retries those that fail.

Source: Kafka 1.1 ZKRebalancerListener.syncedRebalance. Deliberate difference: rebalances are retried without a limit;
only the first one, for which the application waits, fails after a limited time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    AssignmentError,
    AuthorizationError,
    BrokerUnavailableError,
    RegistrationError,
    ZkConsumerError,
)
from zkconsumer.health import GRACE_S, HealthReason, HealthState, health_code
from zkconsumer.log import get_logger
from zkconsumer.rebalance.broker_requests import ClusterProxy
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.rebalancer import PartitionOwnedError, ZKRebalancerListener
from zkconsumer.rebalance.session_watch import SessionWatch

#: Minimum of the random factor of ``rebalance.backoff.ms``.
_MIN_BACKOFF_FACTOR = 0.5


class RebalanceAttempts:
    """The schedule of rebalances.

    Used by the member's thread, which writes all fields; any thread may read the attributes.

    Attributes:
        completed: number of successful rebalances.
        unbalanced_since: ``time.monotonic`` of the first failed attempt, or of the member's failure; None if the last
            attempt succeeded.
        failure: the last error while attempts fail; None if the last one succeeded.
        running_since: seconds since the epoch at which the current attempt has begun; None if none is running.

    Args:
        config: properties of the consumer.
        watch: reports events that require a rebalance.
        listener: runs the rebalances.
        cluster: has the interval after which a rebalance is repeated, if brokers must be asked for changes.
        first_rebalance: receives the result of the first rebalance.
        on_rebalance: called after each attempt with its duration in seconds.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        watch: SessionWatch,
        listener: ZKRebalancerListener,
        cluster: ClusterProxy,
        first_rebalance: FirstRebalance,
        on_rebalance: Callable[[float], object],
    ) -> None:
        self.completed = 0
        self.unbalanced_since: float | None = None
        self.failure: ZkConsumerError | None = None
        self.running_since: float | None = None
        self._max_retries = config.rebalance_max_retries
        self._backoff_s = config.rebalance_backoff_s
        self._watch = watch
        self._listener = listener
        self._cluster = cluster
        self._first_rebalance = first_rebalance
        self._on_rebalance = on_rebalance
        self._failures = 0  # consecutive failed attempts; those in quick succession count as one
        self._failed_at = 0.0  # time.monotonic of the last one that was counted
        self._due_at: float | None = 0.0
        self._poll_at: float | None = None
        group, consumer_id = watch.membership.group, watch.membership.consumer_id
        self._log = get_logger("zkconsumer.rebalance", group=group, consumer_id=consumer_id)

    @property
    def next_attempt_at(self) -> float | None:
        """``time.monotonic`` at which the next attempt is due; None if there is none."""
        if self._watch.needs_rebalance:
            return 0.0
        return min((at for at in (self._due_at, self._poll_at) if at is not None), default=None)

    def run_if_due(self) -> bool:
        """Run one attempt if it is due, and schedule a retry if it fails; returns whether it succeeded."""
        now = time.monotonic()
        is_due = self._watch.needs_rebalance or (self._due_at is not None and now >= self._due_at)
        if self._poll_at is not None and now >= self._poll_at:
            self._poll_at, is_due = None, True
            self._cluster.mark_next_lookup_as_poll()
        if not is_due:
            return False
        self._due_at, self._watch.needs_rebalance = None, False
        return self._run()

    def health_reason(self) -> HealthReason | None:
        """Return why the consumer is not balanced, None if it is or if it has been for a moment only.

        A rebalance that fails may succeed soon, when another member releases its partitions. It counts as stalled after
        ``rebalance.max.retries`` attempts, and at once after an error that another member's registration causes, and
        while the partitions cannot be looked up.
        """
        failure, since = self.failure, self.unbalanced_since
        if failure is not None and since is not None:
            started = time.time() - (time.monotonic() - since)
            if isinstance(failure, (RegistrationError, AssignmentError)):
                return HealthReason(HealthState.STALLED, "registration_invalid", started, str(failure))
            if isinstance(failure, (AuthorizationError, BrokerUnavailableError)):
                code = health_code(failure, "rebalance_failed")
                return HealthReason(HealthState.STALLED, code, started, str(failure))
            if self._failures >= self._max_retries:
                code = "partition_not_released" if isinstance(failure, PartitionOwnedError) else "rebalance_failed"
                return HealthReason(HealthState.STALLED, code, started, str(failure))
        else:
            running_since = self.running_since
            if running_since is None:
                return None
            started = running_since
        if time.time() - started < GRACE_S:
            return None
        message = "the group is rebalancing" if failure is None else str(failure)
        return HealthReason(HealthState.REBALANCING, "rebalancing", started, message)

    def terminate(self, error: BaseException) -> None:
        """Record that the partitions stay unassigned, because the member runs no further attempt."""
        self.unbalanced_since = self.unbalanced_since or time.monotonic()
        self._first_rebalance.fail(error)

    def _run(self) -> bool:
        started_at = time.monotonic()
        self.running_since = time.time()
        try:
            conflict = self._listener.rebalance()
        except ZkConsumerError as error:
            self._handle_failure(error)
            return False
        except Exception as error:  # an unexpected error must not end the member's thread
            self._log.error("rebalance_failed_unexpectedly", exc_info=True)
            failure = ZkConsumerError(f"unexpected error during a rebalance: {error!r}")
            failure.__cause__ = error
            self._handle_failure(failure)
            return False
        finally:
            self.running_since = None
            self._on_rebalance(time.monotonic() - started_at)
        if self._watch.mailbox.is_stopping:
            return False
        if conflict is not None:
            self._handle_failure(self._listener.conflict_error(conflict))
            return False
        self._failures = 0
        self.completed += 1
        self.unbalanced_since = self.failure = None
        interval_s = self._cluster.poll_interval_s
        self._poll_at = started_at + interval_s if interval_s else None
        self._first_rebalance.succeed()
        return True

    def _handle_failure(self, error: ZkConsumerError) -> None:
        now = time.monotonic()
        # A member that releases its partitions one by one causes an event, and thus an attempt, for each of them.
        is_counted = not self._failures or now - self._failed_at >= _MIN_BACKOFF_FACTOR * self._backoff_s
        if is_counted:
            self._failures += 1
            self._failed_at = now
        self.failure = error
        # An error is logged only after each rebalance.max.retries attempts, because retries can continue for minutes.
        is_limit_reached = is_counted and self._failures % self._max_retries == 0
        log = self._log.error if is_limit_reached else self._log.info
        log("rebalance_failed", attempt=self._failures, error=str(error))
        self.unbalanced_since = self.unbalanced_since or now  # set after the log event, which contains the reason
        self._first_rebalance.handle_failure(error, self._failures)
        # An event during the attempt does not shorten the back-off. The random factor keeps members that block each
        # other from retrying at the same time.
        self._watch.needs_rebalance = False
        self._due_at = now + self._backoff_s * random.uniform(_MIN_BACKOFF_FACTOR, 1.0)
