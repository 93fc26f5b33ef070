"""FirstRebalance: the rebalance that the application waits for when it starts a consumer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    AuthorizationError,
    ConfigurationError,
    ConsumerRebalanceFailedError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.rebalance.futures import wait_until_done
from zkconsumer.rebalance.session_watch import SessionLostError
from zkconsumer.threads import WAKE_INTERVAL_S

#: Maximum seconds to wait for an attempt that is running when the retry timeout expires. Each step of an attempt has a
#: shorter timeout.
_LAST_ATTEMPT_TIMEOUT_S = 600.0


class FirstRebalance:
    """Result and retry timeout of the first rebalance.

    The rebalance is retried for at least the session timeout, because ZooKeeper deletes the znodes of crashed members
    only after that time, and for at least as long as a JVM member would retry it. The member thread sets the result;
    any thread may wait for it.

    Args:
        config: consumer configuration.
        consumer_id: consumer id of the member.
        timeout_s: maximum seconds to retry; the session timeout or the JVM members' time limit applies if it is longer.
        last_attempt_timeout_s: maximum seconds to wait for an attempt that is running when the retry timeout expires.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        timeout_s: float,
        *,
        last_attempt_timeout_s: float = _LAST_ATTEMPT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer_id = consumer_id
        self._last_attempt_timeout_s = last_attempt_timeout_s
        self._clock = clock
        self._max_retries = config.rebalance_max_retries
        self._least_timeout_s = max(
            config.zookeeper_session_timeout_s, config.rebalance_max_retries * config.rebalance_backoff_s
        )
        self._timeout_s = max(self._least_timeout_s, timeout_s)
        self._started_at = 0.0
        self._result: Future[None] = Future()
        self._last_failure: ZkConsumerError | None = None

    def start(self) -> None:
        """Start the retry timeout."""
        self._started_at = self._clock()

    def wait(self) -> None:
        """Wait until the first rebalance succeeds.

        Raises:
            ConfigurationError: the configuration makes a rebalance impossible.
            ConsumerRebalanceFailedError: the rebalance did not succeed before the retry timeout expired.
            ZkConsumerError: the member failed or was closed.
        """
        limit_s = self._timeout_s + self._last_attempt_timeout_s
        deadline = time.monotonic() + limit_s
        if not wait_until_done(self._result, self._sleep, deadline):
            raise ConsumerRebalanceFailedError(
                f"the first rebalance of consumer {self._consumer_id} did not complete within {limit_s:g} s"
            )
        self._result.result()

    def _sleep(self, timeout_s: float) -> None:
        wait([self._result], min(timeout_s, WAKE_INTERVAL_S))

    def succeed(self) -> None:
        """Report that the rebalance succeeded, unless a result is already set."""
        if not self._result.done():
            self._result.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Report that the rebalance failed permanently with ``error``, unless a result is already set."""
        if not self._result.done():
            self._result.set_exception(error)

    def handle_failure(self, error: ZkConsumerError, failures: int) -> None:
        """Handle a failed attempt; fail the first rebalance if it cannot succeed, or if the retry timeout has expired.

        Args:
            error: error of the attempt.
            failures: number of consecutive failed attempts.
        """
        if isinstance(error, ConfigurationError):  # retrying cannot help, for example if a topic filter is too slow
            self.fail(error)
        if not isinstance(error, SessionLostError):  # a lost session does not explain why earlier attempts failed
            self._last_failure = error
        elapsed_s = self._clock() - self._started_at
        is_retriable = isinstance(error, (RetriableError, OwnershipLostError))
        if failures < self._max_retries or elapsed_s < (self._timeout_s if is_retriable else self._least_timeout_s):
            return
        reason = str(error)
        if self._last_failure not in (None, error):
            reason += f". An earlier attempt failed with: {self._last_failure}"
        if is_retriable and not isinstance(error, AuthorizationError):  # whose message contains the remedy
            reason += ". To retry longer, increase rebalance.max.retries (in a Spark query, clusterUnavailableTimeout)"
        failure = ConsumerRebalanceFailedError(
            f"consumer {self._consumer_id} failed to rebalance after {failures} attempts in {elapsed_s:.0f} s: {reason}"
        )
        failure.__cause__ = error
        self.fail(failure)
