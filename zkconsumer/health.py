"""Health: whether a consumer is making progress, and if not, why.

The health is derived from the state of the consumer's components each time it is read. A separate thread monitors it,
so that changes are reported even if a component is blocked.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from zkconsumer.errors import GroupAuthorizationError, TopicAuthorizationError
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.threads import OwnedThread

#: Seconds between health checks.
_INTERVAL_S = 0.5

#: Maximum seconds to wait for a running listener when the monitor is closed.
_JOIN_TIMEOUT_S = 2.0

#: Grace period in seconds before a rebalance or a problem with a partition is reported.
GRACE_S = 1.0


#: Minimum number of seconds without progress before a ``ProgressWatch`` reports it.
_STALL_S = 60.0
#: Number of intervals without progress before a ``ProgressWatch`` reports it.
_STALL_INTERVALS = 3


#: ``HealthReason`` codes for authorization failures. They replace the code of the failed operation.
TOPIC_AUTHORIZATION_FAILED = "topic_authorization_failed"
GROUP_AUTHORIZATION_FAILED = "group_authorization_failed"


class HealthState(enum.IntEnum):
    """Health state of a consumer, as reported by the metric ``Health``. Higher values are worse."""

    #: All owned partitions are being read, and offset commits succeed.
    HEALTHY = 0
    #: The group has been rebalancing for more than a second.
    REBALANCING = 1
    #: Partitions cannot be assigned or read, or offsets cannot be committed, until the cause is fixed.
    STALLED = 2
    #: The lease of the ZooKeeper session ended, so no records are delivered until the consumer has rejoined the group.
    DISCONNECTED = 3
    #: The member failed permanently; a new consumer must be created.
    FAILED = 4


@dataclass(frozen=True, slots=True)
class HealthReason:
    """Reason why a consumer is not healthy.

    Attributes:
        state: health state that results from the reason.
        code: problem code: ``member_failed``, ``zookeeper_disconnected``, ``rebalancing``, ``rebalance_failed``,
            ``registration_invalid``, ``partition_not_released``, ``leader_not_found``, ``topic_authorization_failed``,
            ``group_authorization_failed``, ``fetch_failed``, ``fetch_stalled``, ``commit_failed``,
            ``partitions_not_found`` or ``planning_failed``; ``batch_running``, ``no_batch`` or ``query_failed`` for a
            query; ``clock_went_back`` for a ``StreamsApp``; ``no_members`` in the ``doctor`` tool only.
        since: start of the problem, in seconds since the epoch.
        message: details and remedy.
        partitions: affected partitions; empty if all partitions or none are affected.
    """

    state: HealthState
    code: str
    since: float
    message: str
    partitions: frozenset[TopicPartition] = field(default=frozenset())

    @property
    def since_utc(self) -> str:
        """``since`` as an ISO 8601 time in UTC, such as ``2026-11-23T09:30:25Z``."""
        return datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def as_json(self) -> dict[str, object]:
        """Return the reason as a JSON object."""
        return {
            "code": self.code,
            "state": self.state.name.lower(),
            "since": self.since_utc,
            "message": self.message,
            "partitions": list(map(str, sorted(self.partitions))),
        }


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a consumer.

    Attributes:
        reasons: reasons why the consumer is not healthy, worst first; empty if it is healthy.
    """

    reasons: tuple[HealthReason, ...] = ()

    @classmethod
    def of(cls, reasons: Iterable[HealthReason]) -> Health:
        """Create an instance from ``reasons``, which may be in any order."""
        return cls(tuple(sorted(reasons, key=lambda reason: (-reason.state, reason.since))))

    @property
    def state(self) -> HealthState:
        """The worst state among the reasons; ``HEALTHY`` if there are no reasons."""
        return self.reasons[0].state if self.reasons else HealthState.HEALTHY

    @property
    def is_healthy(self) -> bool:
        """Whether the consumer is healthy."""
        return not self.reasons

    def as_json(self) -> dict[str, object]:
        """Return the state and the reasons as a JSON object."""
        return {"state": self.state.name.lower(), "reasons": [reason.as_json() for reason in self.reasons]}

    def is_like(self, other: Health) -> bool:
        """Return whether ``other`` has the same reason codes for the same partitions; messages and times may differ."""
        return _signature(self) == _signature(other)


def _signature(health: Health) -> set[tuple[str, frozenset[TopicPartition]]]:
    return {(reason.code, reason.partitions) for reason in health.reasons}


#: Function that is called with a consumer's health when it changes.
HealthListener = Callable[[Health], object]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that prevents progress, found while fetching records, committing offsets or planning batches.

    Attributes:
        code: problem code, see ``HealthReason``.
        message: error message.
        since: start of the problem, in seconds since the epoch.
    """

    code: str
    message: str
    since: float

    @classmethod
    def again(cls, previous: Problem | None, code: str, error: BaseException) -> Problem:
        """Create a problem that starts now, or that has the start time of ``previous`` if both have the same code.

        Args:
            previous: previous problem, if any.
            code: problem code, unless ``error`` is an authorization error; see ``health_code``.
            error: exception whose message is recorded.
        """
        code = health_code(error, code)
        since = previous.since if previous is not None and previous.code == code else time.time()
        return cls(code, str(error) or repr(error), since)

    def reason(self, partitions: Iterable[TopicPartition] = ()) -> HealthReason:
        """Return the problem as a health reason with the state ``STALLED``."""
        return HealthReason(HealthState.STALLED, self.code, self.since, self.message, frozenset(partitions))


def health_code(error: BaseException, default: str) -> str:
    """Return the ``HealthReason`` code for an error: ``default``, unless it is an authorization error."""
    if isinstance(error, TopicAuthorizationError):
        return TOPIC_AUTHORIZATION_FAILED
    return GROUP_AUTHORIZATION_FAILED if isinstance(error, GroupAuthorizationError) else default


class ProgressWatch:
    """Detects that there is work, but no progress. One thread updates it; any thread may read it.

    Args:
        interval_s: expected number of seconds between two steps of progress, for example the trigger interval of a
            query. A lack of progress is reported after three intervals, but not before a minute.
    """

    def __init__(self, interval_s: float) -> None:
        self._timeout_s = max(_STALL_S, _STALL_INTERVALS * interval_s)
        self._position: object = None
        #: Time of the last progress (``time.monotonic``); None if there is no work.
        self._moved_at: float | None = None

    def update(self, position: object, *, has_work: bool) -> None:
        """Record the current state.

        Args:
            position: a value that changes with each step of progress, for example the number of the last batch.
            has_work: whether there is work, for example unread records or a running batch.
        """
        if not has_work:
            self._moved_at = None
        elif self._moved_at is None or position != self._position:
            self._moved_at = time.monotonic()
        self._position = position

    def find_stall(self) -> float | None:
        """Return the number of seconds since the last progress if it must be reported; otherwise, return None."""
        moved_at = self._moved_at
        if moved_at is None or (waited_s := time.monotonic() - moved_at) < self._timeout_s:
            return None
        return waited_s


class HealthMonitor:
    """Monitors a consumer's health, logs changes, and calls a listener.

    Args:
        name: thread name.
        read: function that returns the current health.
        listener: function that is called with the new health in the monitor thread, or None.
        log: logger for changes and errors.
    """

    def __init__(self, name: str, read: Callable[[], Health], listener: HealthListener | None, log: Logger) -> None:
        self._read = read
        self._listener = listener
        self._log = log
        self._stop = threading.Event()
        self._thread = OwnedThread(
            self._run, name, lambda error: log.error("health_check_failed", error=repr(error), exc_info=error)
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, waiting a limited time for a running listener. May be called from the listener."""
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        last = Health()
        error = ""
        while not self._stop.wait(_INTERVAL_S):
            try:
                current = self._read()
            except Exception as failure:  # keep the thread running, so that later problems are reported
                if error != (error := repr(failure)):
                    self._log.error("health_check_failed", error=error, exc_info=True)
                continue
            error = ""
            if current.is_like(last):
                continue
            last = current
            self._report(current)

    def _report(self, health: Health) -> None:
        log = self._log.info if health.state <= HealthState.REBALANCING else self._log.warning
        log(
            "health_changed",
            state=health.state.name.lower(),
            reasons={reason.code: reason.message for reason in health.reasons},
        )
        if self._listener is not None:
            try:
                self._listener(health)
            except Exception:  # an exception raised by the listener must not stop the monitor
                self._log.error("health_listener_failed", exc_info=True)


def stalled_partitions(problems: Iterable[tuple[TopicPartition, Problem]]) -> list[HealthReason]:
    """Return one reason per problem code, for problems that have lasted longer than the grace period."""
    earliest = time.time() - GRACE_S
    return merge_reasons(problem.reason([partition]) for partition, problem in problems if problem.since <= earliest)


def merge_reasons(reasons: Iterable[HealthReason]) -> list[HealthReason]:
    """Merge reasons with the same code into one, with all partitions, the first message and the earliest start.

    A reason without partitions is not limited to particular partitions, so a reason merged from it has none, either.
    """
    by_code: dict[str, list[HealthReason]] = {}
    for reason in reasons:
        by_code.setdefault(reason.code, []).append(reason)
    return list(map(_merge, by_code.values()))


def _merge(reasons: Sequence[HealthReason]) -> HealthReason:
    partitions = [reason.partitions for reason in reasons]
    return dataclasses.replace(
        reasons[0],
        since=min(reason.since for reason in reasons),
        partitions=frozenset().union(*partitions) if all(partitions) else frozenset(),
    )
