"""ZooKeeperServer: a simulated ZooKeeper server with the wire protocol of ZooKeeper 3.9.

Reads are answered from the server's own znodes, which may lag behind the leader's. Writes and ``sync`` are forwarded to
the leader, and answered when the server has applied them. The requests of a connection are processed one by one, so a
read follows the writes that were sent before it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from .ensemble import TICK_S, Ensemble, Session
from .kernel import kernel
from .network import Connection, Network, take_frames
from .znode_tree import Change, Error, Event, Op, ZnodeTree

#: Transaction ids of events and pings. Source: ZooKeeper 3.9 ClientCnxn.
_EVENT_XID, _PING_XID = -1, -2

_CONNECTED = 3
_READS = frozenset({Op.EXISTS, Op.GET, Op.GET_CHILDREN, Op.GET_CHILDREN2})


class _Request(NamedTuple):
    xid: int
    op: Op
    body: bytes


class _Client:
    """What the server knows about a connection."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.session = 0
        self.requests: deque[_Request] = deque()
        self.is_busy = False


class Reader:
    """Reads the fields of a request."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Read numbers; the layout is that of ``struct``."""
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def buffer(self) -> bytes:
        """Read bytes with their length."""
        [size] = self.numbers(">i")
        start, self._at = self._at, self._at + max(0, size)
        return self._data[start : self._at]

    def text(self) -> str:
        """Read a string."""
        return self.buffer().decode()

    def change(self, op: Op) -> Change:
        """Read a change."""
        path = self.text()
        if op in (Op.CREATE, Op.CREATE2):
            data = self.buffer()
            [count] = self.numbers(">i")
            for _ in range(count):
                self.numbers(">i"), self.text(), self.text()
            [flags] = self.numbers(">i")
            return Change(Op.CREATE, path, data, is_ephemeral=bool(flags & 1))
        data = self.buffer() if op is Op.SET else b""
        [version] = self.numbers(">i")
        return Change(op, path, data, version)

    def changes(self) -> list[Change]:
        """Read the changes of a multi request."""
        found: list[Change] = []
        while True:
            number, is_done, _ = self.numbers(">i?i")
            if is_done:
                return found
            found.append(self.change(Op(number)))


def _pack(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class ZooKeeperServer:
    """A server of an ensemble.

    Attributes:
        is_isolated: whether it cannot reach the leader.
        lag_s: additional seconds after which it applies a transaction.
    """

    def __init__(self, ensemble: Ensemble, network: Network, address: tuple[str, int]) -> None:
        self.address = address
        self.is_isolated = False
        self.lag_s = 0.0
        self._is_up = True
        self._ensemble = ensemble
        self._tree = ZnodeTree()
        self._applied = 0
        self._known = 0.0  # time at which the last transaction of the leader arrives
        self._connections: dict[Connection, None] = {}
        self._waiting: list[tuple[int, Connection, _Request, bytes, Error]] = []
        self._touched: dict[int, None] = {}
        self._watches: tuple[dict[str, dict[Connection, None]], dict[str, dict[Connection, None]]] = {}, {}
        ensemble.servers.append(self)
        network.listen(address, self)
        kernel().call_later(TICK_S / 2, self._report_sessions)

    # ---- connections ----

    def accept(self, connection: Connection) -> None:
        connection.state = _Client()
        if self._is_up:
            self._connections[connection] = None
        else:
            connection.close()

    def lose(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        for watches in self._watches:
            for connections in watches.values():
                connections.pop(connection, None)

    def receive(self, connection: Connection, data: bytes) -> None:
        client: _Client = connection.state
        client.buffer += data
        for frame in take_frames(client.buffer):
            if not client.session:
                self._open(connection, Reader(frame))
            else:
                xid, op = struct.unpack_from(">ii", frame)
                self._touched[client.session] = None
                client.requests.append(_Request(xid, Op(op), frame[8:]))
        self._process(connection)

    def _open(self, connection: Connection, request: Reader) -> None:
        try:
            _, seen_zxid, timeout_ms, number = request.numbers(">iqiq")
            password = request.buffer()
        except struct.error:  # not a ZooKeeper client
            self._close(connection)
            return
        ensemble, client = self._ensemble, connection.state
        if seen_zxid > self._tree.zxid or self.is_isolated or not ensemble.is_serving:
            self._close(connection)
            return
        if number:
            session: Session | None = ensemble.renew_session(number, password, self)
        else:
            session = ensemble.open_session(connection.client, self, timeout_ms)
        ensemble.counts["connect"] += 1
        timeout_ms, number, password = (
            (int(session.timeout_s * 1_000), session.number, session.password) if session else (0, 0, bytes(16))
        )
        connection.send(_pack(struct.pack(">iiq", 0, timeout_ms, number) + _pack(password) + b"\0"))
        client.session = number
        if session is None:
            self._close(connection)
            return
        for other in list(self._connections):
            if other is not connection and other.state.session == number:
                self._close(other)

    def _close(self, connection: Connection) -> None:
        connection.close()
        self.lose(connection)

    def _report_sessions(self) -> None:
        kernel().call_later(TICK_S / 2, self._report_sessions)
        if not self.is_isolated and self._ensemble.is_serving:
            touched, self._touched = self._touched, {}
            for number in touched:
                self._ensemble.touch(number)

    # ---- requests ----

    def _process(self, connection: Connection) -> None:
        client: _Client = connection.state
        while client.requests and not client.is_busy and connection.is_open:
            request = client.requests.popleft()
            if request.xid == _PING_XID:
                self._respond(connection, request, Error.OK, b"")
                continue
            self._ensemble.counts[request.op.name.lower()] += 1
            if request.op in _READS:
                self._respond(connection, request, *self._read(connection, request))
            else:
                client.is_busy = True
                self._forward(connection, request)

    def _read(self, connection: Connection, request: _Request) -> tuple[Error, bytes]:
        reader = Reader(request.body)
        path = reader.text()
        [has_watch] = reader.numbers(">?")
        node = self._tree.nodes.get(path)
        is_children = request.op in (Op.GET_CHILDREN, Op.GET_CHILDREN2)
        if has_watch and (node is not None or request.op is Op.EXISTS):
            self._watches[is_children].setdefault(path, {})[connection] = None
        if node is None:
            return Error.NO_NODE, b""
        if request.op is Op.EXISTS:
            return Error.OK, node.encode_stat()
        if request.op is Op.GET:
            return Error.OK, _pack(node.data) + node.encode_stat()
        names = sorted(node.children)
        body = struct.pack(">i", len(names)) + b"".join(_pack(name.encode()) for name in names)
        return Error.OK, body + (node.encode_stat() if request.op is Op.GET_CHILDREN2 else b"")

    def _forward(self, connection: Connection, request: _Request) -> None:
        if self.is_isolated or not self._ensemble.is_serving:
            return  # the connection is closed when the server gives up
        reader, op = Reader(request.body), request.op
        changes: list[Change] = []
        if op is Op.MULTI:
            changes = reader.changes()
        elif op not in (Op.SYNC, Op.CLOSE):
            changes = [reader.change(op)]
        generation, number = self._ensemble.generation, connection.state.session

        def answer(error: Error, position: int, failed: int) -> None:
            body = self._encode(op, changes, error, failed)
            code = Error.OK if op is Op.MULTI and error not in _SESSION_ERRORS else error
            self._waiting.append((position, connection, request, body, code))
            self._answer_waiting()

        def execute() -> None:
            if generation == self._ensemble.generation and not self.is_isolated:
                self._ensemble.request(self, number, op, changes, answer)

        kernel().call_later(kernel().random.uniform(0.0002, 0.002), execute)

    def _encode(self, op: Op, changes: Sequence[Change], error: Error, failed: int) -> bytes:
        """Return the body of a response; znodes are encoded as the leader has just written them."""
        tree = self._ensemble.tree
        if op is Op.MULTI:
            parts = []
            for number, change in enumerate(changes):
                if error is not Error.OK:
                    code = error if number == failed else Error.OK if number < failed else Error.INCONSISTENT
                    parts.append(struct.pack(">i?ii", -1, False, code, code))
                    continue
                parts.append(struct.pack(">i?i", change.op, False, 0))
                parts.append(self._encode_change(change.op, change))
            return b"".join(parts) + struct.pack(">i?i", -1, True, -1)
        if error is not Error.OK or op is Op.CLOSE:
            return b""
        if op is Op.SYNC:
            return _pack(b"/")
        body = self._encode_change(changes[0].op, changes[0])
        return body + tree.nodes[changes[0].path].encode_stat() if op is Op.CREATE2 else body

    def _encode_change(self, op: Op, change: Change) -> bytes:
        if op is Op.CREATE:
            return _pack(change.path.encode())
        node = self._ensemble.tree.nodes.get(change.path)
        return node.encode_stat() if op is Op.SET and node is not None else b""

    def _respond(self, connection: Connection, request: _Request, error: Error, body: bytes) -> None:
        header = struct.pack(">iqi", request.xid, self._tree.zxid, error)
        connection.send(_pack(header + (body if error is Error.OK else b"")))
        if request.op is Op.CLOSE:
            self._close(connection)

    # ---- the leader's log ----

    def follow(self, position: int) -> None:
        generation = self._ensemble.generation
        self._known = max(self._known, kernel().now + kernel().random.uniform(0.0001, 0.001) + self.lag_s)
        kernel().call_at(self._known, lambda: self._apply(position, generation))

    def load(self, tree: ZnodeTree) -> None:
        self._tree, self._applied = tree, 0

    def stop(self) -> None:
        self._is_up = False
        for connection in list(self._connections):
            self._close(connection)
        self._waiting.clear()
        self._touched.clear()

    def start(self) -> None:
        self._is_up = True

    def _apply(self, position: int, generation: int) -> None:
        if generation != self._ensemble.generation or self.is_isolated:
            return
        while self._applied < position:
            transaction = self._ensemble.log[self._applied]
            self._applied += 1
            for event, path in self._tree.apply(transaction):
                self._fire(event, path)
        self._answer_waiting()
        for connection in list(self._connections):
            if connection.state.session and connection.state.session not in self._ensemble.sessions:
                self._close(connection)

    def _answer_waiting(self) -> None:
        ready = [one for one in self._waiting if one[0] <= self._applied]
        self._waiting = [one for one in self._waiting if one[0] > self._applied]
        for _, connection, request, body, error in ready:
            if connection.is_open:
                self._respond(connection, request, error, body)
                connection.state.is_busy = False
                self._process(connection)

    def _fire(self, event: Event, path: str) -> None:
        data, children = self._watches
        kinds = {Event.CHILD: (children,), Event.DELETED: (data, children)}.get(event, (data,))
        notified: dict[Connection, None] = {}
        for watches in kinds:
            notified |= watches.pop(path, {})
        body = struct.pack(">ii", event, _CONNECTED) + _pack(path.encode())
        for connection in notified:
            self._ensemble.counts["event"] += 1
            connection.send(_pack(struct.pack(">iqi", _EVENT_XID, -1, 0) + body))


_SESSION_ERRORS = (Error.SESSION_EXPIRED, Error.SESSION_MOVED)

__all__ = ["ZooKeeperServer"]
