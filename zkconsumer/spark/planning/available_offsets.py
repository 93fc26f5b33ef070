"""Looks up the offsets of available partitions, so that unavailable partitions do not block a query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from zkconsumer.broker.log_offsets import SILENT_TIMEOUT_S, LogOffsets
from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError
from zkconsumer.health import HealthReason, HealthState, health_code, merge_reasons
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition

#: Minimum seconds before an unavailable partition is looked up again.
_RETRY_INTERVAL_S = 1.0
#: Minimum wait before the next request to an unresponsive leader, as a multiple of the time that the last request
#: blocked planning.
_RETRY_FACTOR = 10.0


class AvailableOffsets:
    """Looks up offsets, and omits partitions without a responding leader. Used by Spark's thread.

    Args:
        clock: monotonic clock, in seconds.
    """

    def __init__(self, logs: LogOffsets, log: Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logs = logs
        self._log = log
        #: By unavailable partition: the error, and the ``clock`` time of the next lookup.
        self._unavailable: dict[TopicPartition, tuple[ZkConsumerError, float]] = {}
        #: When each partition became unavailable, in seconds since the epoch.
        self._since: dict[TopicPartition, float] = {}

    @property
    def unavailable(self) -> list[TopicPartition]:
        """The partitions that had no responding leader at their last lookup."""
        return sorted(self._unavailable)

    def health_reasons(self) -> list[HealthReason]:
        """Return the reasons why partitions are unavailable; empty if all are available."""
        return merge_reasons(
            HealthReason(
                HealthState.STALLED,
                health_code(error, "leader_not_found"),
                self._since.get(partition, time.time()),
                str(error),
                frozenset([partition]),
            )
            for partition, (error, _) in sorted(self._unavailable.copy().items())
        )

    def retain(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget unavailable partitions that are not in ``partitions``, because they are no longer read."""
        for partition in self._unavailable.keys() - set(partitions):
            del self._unavailable[partition]

    def find(self, partitions: Iterable[TopicPartition], timestamp: int, *, all_: bool) -> dict[TopicPartition, int]:
        """Return the offset of each available partition at ``timestamp``; see ``LogOffsets.offsets``.

        Args:
            all_: whether to fail if any partition is unavailable.

        Raises:
            RetriableError: no partition is available, or ``all_`` is set and a partition is unavailable.
        """
        now = self._clock()
        wanted = set(partitions)
        waiting = {p: error for p, (error, at) in self._unavailable.items() if p in wanted and now < at and not all_}
        found, errors = self._logs.look_up(wanted - waiting.keys(), timestamp)
        failed = errors | waiting
        if failed and (all_ or not found):
            raise failed[min(failed)]
        elapsed = self._clock() - now
        done_at = now + elapsed
        delay_s = max(_RETRY_INTERVAL_S, _RETRY_FACTOR * min(elapsed, SILENT_TIMEOUT_S))
        if new := sorted(errors.keys() - self._unavailable.keys()):
            self._log.warning("partitions_unavailable", partitions=list(map(str, new)), error=str(errors[new[0]]))
        if again := sorted(found.keys() & self._unavailable.keys()):
            self._log.info("partitions_available", partitions=list(map(str, again)))
        for partition in again:
            del self._unavailable[partition]
        for partition, error in errors.items():
            is_silent = isinstance(error, BrokerUnavailableError)
            self._unavailable[partition] = error, done_at + (delay_s if is_silent else _RETRY_INTERVAL_S)
        self._since = {partition: self._since.get(partition, time.time()) for partition in self._unavailable}
        return found
