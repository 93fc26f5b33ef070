"""Health: whether a consumer makes progress, and if not, why.

The state is derived from what the parts of a consumer report about themselves, each time it is read. A thread watches
it for changes, so that a part that is blocked cannot hide them.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from zkconsumer.errors import GroupAuthorizationError, TopicAuthorizationError
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition
from zkconsumer.threads import OwnedThread

#: Seconds between two looks at the state.
_INTERVAL_S = 0.5

#: Maximum seconds to wait for a listener when the monitor is closed.
_JOIN_TIMEOUT_S = 2.0

#: Seconds for which a rebalance, or a partition without a leader, is not reported.
GRACE_S = 1.0


#: Codes of ``HealthReason`` for missing rights, whichever request they are missing for.
TOPIC_AUTHORIZATION_FAILED = "topic_authorization_failed"
GROUP_AUTHORIZATION_FAILED = "group_authorization_failed"


class HealthState(enum.IntEnum):
    """What a consumer does. A higher value is worse; the value is that of the metric ``Health``."""

    #: All owned partitions are read, and offsets are committed.
    HEALTHY = 0
    #: The group is rebalancing, for longer than a second.
    REBALANCING = 1
    #: Partitions are not read, are not assigned, or their offsets are not committed, until a cause is removed.
    STALLED = 2
    #: The lease of the ZooKeeper session has ended, so nothing is delivered until ZooKeeper responds.
    DISCONNECTED = 3
    #: The member has failed for good; a new consumer must be created.
    FAILED = 4


@dataclass(frozen=True, slots=True)
class HealthReason:
    """Why a consumer is not healthy.

    Attributes:
        code: what is wrong: ``member_failed``, ``zookeeper_disconnected``, ``rebalancing``, ``rebalance_failed``,
            ``registration_invalid``, ``partition_not_released``, ``leader_not_found``, ``topic_authorization_failed``,
            ``group_authorization_failed``, ``fetch_failed``, ``commit_failed``, ``partitions_not_found`` or
            ``planning_failed``; of a ``StreamsApp``, ``query_failed``; in the tool ``doctor`` also ``no_members``.
        since: seconds since the epoch.
        message: details and remedy.
        partitions: the partitions concerned; empty if all are, or none.
    """

    state: HealthState
    code: str
    since: float
    message: str
    partitions: frozenset[TopicPartition] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a consumer.

    Attributes:
        reasons: what is wrong, the worst first; empty if the consumer is healthy.
    """

    reasons: tuple[HealthReason, ...] = ()

    @classmethod
    def of(cls, reasons: Iterable[HealthReason]) -> Health:
        """Return the health with these reasons, in any order."""
        return cls(tuple(sorted(reasons, key=lambda reason: (-reason.state, reason.since))))

    @property
    def state(self) -> HealthState:
        """The worst state."""
        return self.reasons[0].state if self.reasons else HealthState.HEALTHY

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons

    def is_like(self, other: Health) -> bool:
        """Whether the other has the same reasons for the same partitions; messages and times may differ."""
        return _signature(self) == _signature(other)


def _signature(health: Health) -> set[tuple[str, frozenset[TopicPartition]]]:
    return {(reason.code, reason.partitions) for reason in health.reasons}


#: Called with the health of a consumer when it has changed.
HealthListener = Callable[[Health], object]


@dataclass(frozen=True, slots=True)
class Problem:
    """What prevents a consumer from making progress; recorded by the thread that fetches, commits or plans.

    Attributes:
        code: see ``HealthReason``.
        since: seconds since the epoch.
    """

    code: str
    message: str
    since: float

    @classmethod
    def again(cls, previous: Problem | None, code: str, error: BaseException) -> Problem:
        """Return a problem that begins now, or continues the previous one if that has the same code.

        Args:
            code: the code unless the client lacks rights; see ``health_code``.
        """
        code = health_code(error, code)
        since = previous.since if previous is not None and previous.code == code else time.time()
        return cls(code, str(error) or repr(error), since)

    def reason(self, partitions: Iterable[TopicPartition] = ()) -> HealthReason:
        """Return the reason why a consumer with this problem is stalled."""
        return HealthReason(HealthState.STALLED, self.code, self.since, self.message, frozenset(partitions))


def health_code(error: BaseException, default: str) -> str:
    """Return the code of ``HealthReason`` for an error: ``default`` unless the client lacks rights."""
    if isinstance(error, TopicAuthorizationError):
        return TOPIC_AUTHORIZATION_FAILED
    return GROUP_AUTHORIZATION_FAILED if isinstance(error, GroupAuthorizationError) else default


class HealthMonitor:
    """Watches the health of a consumer, logs its changes, and calls a listener.

    Args:
        read: returns the current health.
        listener: called in the thread of the monitor; None for no listener.
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
        """Stop the thread, which may be the one that calls. A listener that does not return is not waited for."""
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        last = Health()
        error = ""
        while not self._stop.wait(_INTERVAL_S):
            try:
                current = self._read()
            except Exception as failure:  # without this thread, no later problem would be reported
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
            except Exception:  # of the application; the monitor must go on
                self._log.error("health_listener_failed", exc_info=True)


def stalled_partitions(problems: Iterable[tuple[TopicPartition, Problem]]) -> list[HealthReason]:
    """Return a reason for each code among the problems that have lasted for longer than the grace period."""
    earliest = time.time() - GRACE_S
    return merge_reasons(problem.reason([partition]) for partition, problem in problems if problem.since <= earliest)


def merge_reasons(reasons: Iterable[HealthReason]) -> list[HealthReason]:
    """Return one reason for each code, with all partitions, the first message and the earliest time.

    If a reason has no partitions, it concerns all of them; the merged one has none, either.
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
