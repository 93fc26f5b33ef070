"""Ensemble: the leader's part of simulated ZooKeeper servers: transactions, sessions, elections and backups."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .kernel import Process, kernel
from .threads import EPOCH
from .znode_tree import Change, ChangeError, Error, Op, Transaction, ZnodeTree

#: Seconds of ZooKeeper's ``tickTime``.
TICK_S = 2.0

#: Session of the brokers and of the test; it never expires.
ADMIN = 1

#: Seconds after which a follower that cannot reach the leader closes its connections (``syncLimit``).
SYNC_LIMIT_S = 5 * TICK_S


@dataclass
class Session:
    """A session, as the leader knows it.

    Attributes:
        timeout_s: negotiated timeout.
        process: process of the client.
        server: server to which the client is connected.
        heard_at: time of the last sign of life that the leader knows of.
    """

    number: int
    password: bytes
    timeout_s: float
    process: Process
    server: Follower
    heard_at: float


class Follower(Protocol):
    """A server, as the leader uses it."""

    is_isolated: bool

    def follow(self, position: int) -> None:
        """Apply the transactions of the log up to a position, some time later."""

    def load(self, tree: ZnodeTree) -> None:
        """Replace all znodes."""

    def stop(self) -> None:
        """Close all connections, and accept none."""

    def start(self) -> None:
        """Accept connections."""


#: Called with the error and the position in the log after which the requesting server may respond.
Answer = Callable[[Error, int, int], object]


class Ensemble:
    """The leader.

    Attributes:
        tree: znodes after all transactions.
        log: all transactions since the last start from a backup.
        servers: the servers.
        sessions: sessions that have not expired.
        is_serving: whether there is a leader with a quorum.
        counts: number of requests by type.
        on_change: called with the session and the changes of each transaction.
    """

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.log: list[Transaction] = []
        self.servers: list[Follower] = []
        self.sessions: dict[int, Session] = {}
        self.is_serving = True
        self.generation = 0
        self.counts: Counter[str] = Counter()
        self.on_change: Callable[[Session | None, Sequence[Change]], object] = lambda *_: None
        self._numbers = itertools.count(0x1000)
        kernel().call_later(TICK_S / 4, self._tick)

    # ---- sessions ----

    def open_session(self, process: Process, server: Follower, timeout_ms: int) -> Session:
        """Create a session; the timeout is between 2 and 20 ticks."""
        timeout_s = min(max(timeout_ms / 1_000, 2 * TICK_S), 20 * TICK_S)
        number = next(self._numbers)
        password = kernel().random.randbytes(16)
        session = self.sessions[number] = Session(number, password, timeout_s, process, server, kernel().now)
        self._commit(number, [])
        return session

    def renew_session(self, number: int, password: bytes, server: Follower) -> Session | None:
        """Move a session to a server; return None if it has expired."""
        session = self.sessions.get(number)
        if session is None or session.password != password:
            return None
        session.server, session.heard_at = server, kernel().now
        return session

    def touch(self, number: int) -> None:
        """Note a sign of life."""
        if number in self.sessions:
            self.sessions[number].heard_at = kernel().now

    def close_session(self, number: int) -> None:
        """Delete a session and its ephemeral znodes."""
        if number in self.sessions:
            changes = [Change(Op.DELETE, path) for path in self.tree.ephemerals(number)]
            self._commit(number, changes)
            del self.sessions[number]

    def _tick(self) -> None:
        kernel().call_later(TICK_S / 4, self._tick)
        if self.is_serving:
            for session in list(self.sessions.values()):
                if kernel().now - session.heard_at > session.timeout_s:
                    self.close_session(session.number)

    # ---- transactions ----

    def request(self, server: Follower, number: int, op: Op, changes: Sequence[Change], answer: Answer) -> None:
        """Execute a request that a server has forwarded. Requests of an old generation are lost."""
        session = self.sessions.get(number)
        if session is None:
            answer(Error.SESSION_EXPIRED, len(self.log), 0)
        elif session.server is not server:
            answer(Error.SESSION_MOVED, len(self.log), 0)
        elif op is Op.CLOSE:
            self.close_session(number)
            answer(Error.OK, len(self.log), 0)
        else:
            session.heard_at = kernel().now
            try:
                if op is not Op.SYNC:
                    self._commit(number, changes)
            except ChangeError as failure:
                answer(failure.error, len(self.log), failure.number)
            else:
                answer(Error.OK, len(self.log), 0)

    def write(self, *changes: Change) -> None:
        """Execute changes in the name of the brokers or the test; parents are created."""
        for change in changes:
            parts = change.path.split("/")[1:-1]
            for end in range(1, len(parts) + 1):
                path = "/" + "/".join(parts[:end])
                if path not in self.tree.nodes:
                    self._commit(ADMIN, [Change(Op.CREATE, path)])
            self._commit(ADMIN, [change])

    def put(self, path: str, data: bytes) -> None:
        """Create or change a znode in the name of the brokers."""
        self.write(Change(Op.SET if path in self.tree.nodes else Op.CREATE, path, data))

    def _commit(self, number: int, changes: Sequence[Change]) -> None:
        transaction = Transaction(self.tree.zxid + 1, int((EPOCH + kernel().now) * 1_000), number, changes)
        self.tree.apply(transaction)
        self.on_change(self.sessions.get(number), changes)
        self.log.append(transaction)
        for server in self.servers:
            if not server.is_isolated:
                server.follow(len(self.log))

    # ---- faults ----

    def stop(self, duration_s: float) -> None:
        """Let the ensemble lose its quorum for some time."""
        self.is_serving = False
        self.generation += 1
        for server in self.servers:
            server.stop()
        kernel().call_later(duration_s, self._elect)

    def restore(self, tree: ZnodeTree, sessions: dict[int, Session], duration_s: float) -> None:
        """Stop the ensemble, and start it with the content of a backup."""
        self.stop(duration_s)
        self.tree, self.sessions, self.log = tree.copy(), dict(sessions), []
        for server in self.servers:
            server.load(self.tree.copy())

    def isolate(self, server: Follower) -> None:
        """Separate a server from the leader until ``connect`` is called."""
        server.is_isolated = True
        generation = self.generation
        kernel().call_later(SYNC_LIMIT_S, lambda: self._give_up(server, generation))

    def connect(self, server: Follower) -> None:
        """Let a server reach the leader again."""
        if server.is_isolated:
            server.is_isolated = False
            server.stop()
            server.start()
            server.follow(len(self.log))

    def _give_up(self, server: Follower, generation: int) -> None:
        if server.is_isolated and generation == self.generation:
            server.stop()

    def _elect(self) -> None:
        if self.is_serving:
            return
        self.is_serving = True
        for session in self.sessions.values():
            session.heard_at = kernel().now
        for server in self.servers:
            server.is_isolated = False
            server.start()
            server.follow(len(self.log))


__all__ = ["ADMIN", "TICK_S", "Ensemble", "Session"]
