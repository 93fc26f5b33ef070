"""Start and end offsets of the partitions whose leaders respond, so that the others do not stop a query."""

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
#: Minimum seconds before the next request to a silent leader, for each second that it takes: planning waits meanwhile.
_RETRY_FACTOR = 10.0


class AvailableOffsets:
    """Looks up offsets, and leaves out partitions without a responding leader. Used by Spark's thread.

    Args:
        clock: returns the seconds of a monotonic clock.
    """

    def __init__(self, logs: LogOffsets, log: Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logs = logs
        self._log = log
        #: By unavailable partition: the error, and the time of the clock for the next look-up.
        self._unavailable: dict[TopicPartition, tuple[ZkConsumerError, float]] = {}
        self._since: dict[TopicPartition, float] = {}  # seconds since the epoch

    @property
    def unavailable(self) -> list[TopicPartition]:
        """The partitions without a responding leader; ``find`` does not return offsets of them."""
        return sorted(self._unavailable)

    def health_reasons(self) -> list[HealthReason]:
        """Return why the query is not healthy: partitions are unavailable."""
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
        """Forget unavailable partitions that are not among these, because they are no longer read."""
        for partition in self._unavailable.keys() - set(partitions):
            del self._unavailable[partition]

    def find(self, partitions: Iterable[TopicPartition], timestamp: int, *, all_: bool) -> dict[TopicPartition, int]:
        """Return an offset of each available partition; see ``LogOffsets.offsets``.

        Args:
            all_: fail if a partition is unavailable.

        Raises:
            RetriableError: no partition is available, or not all of them are and ``all_`` is set.
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
