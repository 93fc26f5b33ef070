"""Records: what was produced, delivered, committed and claimed, and the invariants between these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import GroupPaths

from .brokers import Brokers
from .ensemble import Ensemble, Session
from .kernel import Process, kernel
from .znode_tree import Change, Op

#: Seconds after which the lease thread of a resumed process has discarded decoded messages: the lease is checked for
#: each block of messages; see docs/decisions/10-session-lease.rst.
_RESUME_S = 0.05


class InvariantError(AssertionError):
    """An invariant does not hold."""


class Claim(NamedTuple):
    """The owner znode of a partition.

    Attributes:
        owner: process that created it; None after it was deleted.
        time: when.
    """

    owner: Process | None
    time: float


class Records:
    """Checks each delivery and each commit of a group.

    Args:
        ensemble: ensemble of the group.
        brokers: the brokers.
        paths: paths of the group.

    Attributes:
        missing: identities of the records that were not delivered yet.
        delivered: number of deliveries, repeated ones included.
        excused_until: time until which offsets may move back, because requests were delayed or data was lost.
        unleased_until: time until which leases may overlap, because the ensemble has forgotten sessions.
        resumed: time at which each suspended process was resumed.
        is_settling: whether all faults are repaired, and applications must catch up.
        trace: what happened, for people.
    """

    def __init__(self, ensemble: Ensemble, brokers: Brokers, paths: GroupPaths) -> None:
        self.missing: dict[str, TopicPartition] = {}
        self.delivered = 0
        self.excused_until = self.unleased_until = -math.inf
        self.resumed: dict[Process, float] = {}
        self.is_settling = False
        self.trace: list[str] = []
        self.claims: dict[TopicPartition, Claim] = {}
        self._ensemble, self._brokers, self._paths = ensemble, brokers, paths
        self._committed: dict[TopicPartition, int] = {}
        self._jvm: set[Process] = set()
        self._clients: dict[str, Process] = {}
        ensemble.on_change, brokers.on_commit = self._on_change, self._on_commit

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{kernel().now:9.3f} {text}")

    def add_jvm(self, process: Process) -> None:
        """Name a process without a lease, whose deliveries and commits are not checked."""
        self._jvm.add(process)

    def excuse(self, seconds: float) -> None:
        """Allow offsets to move back for some time."""
        self.excused_until = max(self.excused_until, kernel().now + seconds)

    # ---- called by producers and applications ----

    def produce(self, partition: TopicPartition, count: int) -> None:
        """Append records to a partition."""
        for name in self._brokers.append(partition, count):
            self.missing[name] = partition

    def lose(self, names: Sequence[str]) -> None:
        """Expect some records no longer."""
        for name in names:
            self.missing.pop(name, None)

    def forget(self, topic: str) -> None:
        """Expect the records of a deleted topic no longer, and let its offsets start again."""
        self.missing = {name: at for name, at in self.missing.items() if at.topic != topic}
        self._committed = {at: offset for at, offset in self._committed.items() if at.topic != topic}

    def deliver(self, process: Process, partition: TopicPartition, offset: int, name: str) -> None:
        """Check a delivery."""
        self.delivered += 1
        self.missing.pop(name, None)
        claim = self.claims.get(partition)
        self.note(f"{process} reads {partition} {offset}")
        if process in self._jvm or claim is None or claim.owner in (None, process):
            return
        if kernel().now <= self.resumed.get(process, -math.inf) + _RESUME_S:
            return
        if kernel().now > self.unleased_until:
            self._fail(
                f"{process} received {partition} offset {offset}, which {claim.owner} owns since {claim.time:.3f}"
            )

    # ---- called by the servers ----

    def _on_change(self, session: Session | None, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.path.startswith(f"{self._paths.root}/owners/") and change.path.count("/") == 5:
                *_, topic, number = change.path.split("/")
                partition = TopicPartition(topic, int(number))
                owner = session.process if change.op is Op.CREATE and session else None
                self.claims[partition] = Claim(owner, kernel().now)
                self.note(f"{session.process if session else 'expiry'} {change.op.name.lower()}s owner of {partition}")
            elif change.path.startswith(f"{self._paths.root}/offsets/") and change.path.count("/") == 5:
                *_, topic, number = change.path.split("/")
                if session is not None and change.op in (Op.CREATE, Op.SET):
                    self._check_commit(session.process, TopicPartition(topic, int(number)), int(change.data or b"-1"))

    def name_client(self, client_id: str, process: Process) -> None:
        """Name the process whose requests to brokers have a client id."""
        self._clients[client_id] = process

    def _on_commit(self, client_id: str, partition: TopicPartition, offset: int) -> None:
        self._check_commit(self._clients.get(client_id), partition, offset)

    def _check_commit(self, process: Process | None, partition: TopicPartition, offset: int) -> None:
        before = self._committed.get(partition, 0)
        self._committed[partition] = offset
        self.note(f"{process} commits {partition} {offset}")
        log = self._brokers.find(partition)
        if process in self._jvm or log is None:
            return
        is_excused = kernel().now <= self.excused_until
        if offset < before and not is_excused:
            self._fail(f"{process} committed {partition} offset {offset}, but {before} was committed before")
        unread = [at for at in range(before, offset) if log.identity.get(at) in self.missing]
        if unread and not is_excused:
            self._fail(f"{process} committed {partition} offset {offset}, but offset {unread[0]} was never delivered")

    def _fail(self, text: str) -> None:
        self.note(text)
        kernel().fail(InvariantError(text))


__all__ = ["Claim", "InvariantError", "Records"]
