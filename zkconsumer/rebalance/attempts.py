"""RebalanceAttempts: runs a group member's rebalances, and retries failed rebalances.

Source: Kafka 1.1 ZKRebalancerListener.syncedRebalance. Deliberate difference: rebalances are retried indefinitely. Only
the retries of the first rebalance are limited, because the application waits for it.
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

#: Minimum of the random factor that is applied to ``rebalance.backoff.ms``.
_MIN_BACKOFF_FACTOR = 0.5


class RebalanceAttempts:
    """Schedules and runs rebalance attempts.

    Used by the member thread, which writes all fields; any thread may read the attributes.

    Attributes:
        completed: number of successful rebalances.
        unbalanced_since: ``time.monotonic()`` of the first failed attempt since the last successful one, or of the
            member's failure; None if there is none.
        failure: error of the last completed attempt; None if it succeeded, or if there is none.
        running_since: start of the current attempt, in seconds since the epoch; None if no attempt is running.

    Args:
        config: consumer configuration.
        watch: session watch, which reports events that require a rebalance.
        listener: rebalancer that executes each attempt.
        cluster: cluster metadata. If it has a polling interval, rebalances are repeated at this interval.
        first_rebalance: receiver of the first rebalance's result.
        on_rebalance: function that is called after each attempt with its duration in seconds.
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
        self._failures = 0  # consecutive failed attempts; attempts in quick succession count as one
        self._failed_at = 0.0  # time.monotonic() of the last counted failure
        self._due_at: float | None = 0.0
        self._poll_at: float | None = None
        group, consumer_id = watch.membership.group, watch.membership.consumer_id
        self._log = get_logger("zkconsumer.rebalance", group=group, consumer_id=consumer_id)

    @property
    def next_attempt_at(self) -> float | None:
        """``time.monotonic()`` at which the next attempt is due; None if none is scheduled."""
        if self._watch.needs_rebalance:
            return 0.0
        return min((at for at in (self._due_at, self._poll_at) if at is not None), default=None)

    def run_if_due(self) -> bool:
        """Run an attempt if one is due, and schedule a retry if it fails; return whether an attempt succeeded."""
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
        """Return why the member is not balanced; None if it is balanced, or has been unbalanced only briefly.

        A failed rebalance may soon succeed on retry, when another member releases its partitions. The member is
        therefore considered stalled only after ``rebalance.max.retries`` attempts, or immediately if another member's
        registration causes the failure, if authorization fails, or if no broker is available.
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
        """Record that the member remains unbalanced, and report ``error`` if the first rebalance is not complete."""
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
        except Exception as error:  # an unexpected error must not terminate the member thread
            self._log.error("rebalance_failed_unexpectedly", exc_info=True)
            failure = ZkConsumerError(f"unexpected error during rebalance: {error!r}")
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
        # A member that releases its partitions one by one triggers an event, and thus an attempt, per partition.
        is_counted = not self._failures or now - self._failed_at >= _MIN_BACKOFF_FACTOR * self._backoff_s
        if is_counted:
            self._failures += 1
            self._failed_at = now
        self.failure = error
        # Log only one in rebalance.max.retries failures at level ERROR, because retries can continue for minutes.
        is_limit_reached = is_counted and self._failures % self._max_retries == 0
        log = self._log.error if is_limit_reached else self._log.info
        log("rebalance_failed", attempt=self._failures, error=str(error))
        self.unbalanced_since = self.unbalanced_since or now  # set after logging, because other threads poll it
        self._first_rebalance.handle_failure(error, self._failures)
        # Events during the attempt do not shorten the back-off. The random factor prevents members that block each
        # other from retrying at the same time.
        self._watch.needs_rebalance = False
        self._due_at = now + self._backoff_s * random.uniform(_MIN_BACKOFF_FACTOR, 1.0)
