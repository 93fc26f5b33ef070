"""ZnodeTree: the znodes of a ZooKeeper server, and the requests that change them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple


class Error(IntEnum):
    """Error codes. Source: ZooKeeper 3.9 KeeperException.Code."""

    OK = 0
    INCONSISTENT = -2
    UNIMPLEMENTED = -6
    NO_NODE = -101
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    SESSION_MOVED = -118


class Event(IntEnum):
    """Watch events. Source: ZooKeeper 3.9 Watcher.Event.EventType."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class Op(IntEnum):
    """Request types. Source: ZooKeeper 3.9 ZooDefs.OpCode."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET = 4
    SET = 5
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CLOSE = -11


class Change(NamedTuple):
    """A request that changes one znode.

    Attributes:
        op: CREATE, DELETE, SET or CHECK.
        path: path of the znode.
        data: new content.
        version: expected version; -1 for any.
        is_ephemeral: whether the znode is deleted with the session.
    """

    op: Op
    path: str
    data: bytes = b""
    version: int = -1
    is_ephemeral: bool = False


class ChangeError(Exception):
    """A change is not possible.

    Args:
        error: error code.
        number: number of the change in its transaction.
    """

    def __init__(self, error: Error, number: int) -> None:
        super().__init__(error.name)
        self.error, self.number = error, number


class Transaction(NamedTuple):
    """Changes that are applied together, with a transaction number and a time."""

    zxid: int
    time_ms: int
    session: int
    changes: Sequence[Change]


@dataclass
class Znode:
    """A znode, with the fields of its Stat."""

    data: bytes
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    version: int = 0
    cversion: int = 0
    pzxid: int = 0
    children: set[str] = field(default_factory=set)

    def encode_stat(self) -> bytes:
        """Return the Stat as in a response."""
        return struct.pack(
            ">qqqqiiiqiiq",
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


class ZnodeTree:
    """The znodes.

    Attributes:
        zxid: number of the last applied transaction.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0)}

    def copy(self) -> ZnodeTree:
        """Return an independent copy."""
        other = ZnodeTree()
        other.zxid = self.zxid
        other.nodes = {path: replace(node, children=set(node.children)) for path, node in self.nodes.items()}
        return other

    def find(self, path: str) -> bytes | None:
        """Return the content of a znode; None if it does not exist."""
        node = self.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        """Return the names of the children of a znode; empty if it does not exist."""
        node = self.nodes.get(path)
        return [] if node is None else sorted(node.children)

    def ephemerals(self, session: int) -> list[str]:
        """Return the paths of the znodes that are deleted with a session."""
        return [path for path, node in self.nodes.items() if node.owner == session]

    def apply(self, transaction: Transaction) -> list[tuple[Event, str]]:
        """Apply all changes, or none.

        Returns:
            the events, for watches.

        Raises:
            ChangeError: a change is not possible.
        """
        events: list[tuple[Event, str]] = []
        undo: list[Callable[[], object]] = []
        for number, change in enumerate(transaction.changes):
            try:
                events += self._apply(transaction, change, undo)
            except ChangeError as error:
                for function in reversed(undo):
                    function()
                raise ChangeError(error.error, number) from None
        self.zxid = transaction.zxid
        return events

    def _apply(
        self, transaction: Transaction, change: Change, undo: list[Callable[[], object]]
    ) -> list[tuple[Event, str]]:
        path, node = change.path, self.nodes.get(change.path)
        if change.op is Op.CREATE:
            return self._create(transaction, change, undo)
        if node is None:
            raise ChangeError(Error.NO_NODE, 0)
        if change.version not in (-1, node.version):
            raise ChangeError(Error.BAD_VERSION, 0)
        if change.op is Op.CHECK:
            return []
        before = replace(node, children=set(node.children))
        undo.append(lambda: self.nodes.__setitem__(path, before))
        if change.op is Op.SET:
            node.data, node.version = change.data, node.version + 1
            node.mzxid, node.mtime = transaction.zxid, transaction.time_ms
            return [(Event.CHANGED, path)]
        if node.children:
            raise ChangeError(Error.NOT_EMPTY, 0)
        del self.nodes[path]
        return [(Event.DELETED, path), self._change_parent(transaction, path, undo, is_created=False)]

    def _create(
        self, transaction: Transaction, change: Change, undo: list[Callable[[], object]]
    ) -> list[tuple[Event, str]]:
        path = change.path
        parent = self.nodes.get(parent_of(path))
        if path in self.nodes:
            raise ChangeError(Error.NODE_EXISTS, 0)
        if parent is None:
            raise ChangeError(Error.NO_NODE, 0)
        if parent.owner:
            raise ChangeError(Error.NO_CHILDREN_FOR_EPHEMERALS, 0)
        owner = transaction.session if change.is_ephemeral else 0
        zxid, time_ms = transaction.zxid, transaction.time_ms
        self.nodes[path] = Znode(change.data, zxid, zxid, time_ms, time_ms, owner, pzxid=zxid)
        undo.append(lambda: self.nodes.__delitem__(path))
        return [(Event.CREATED, path), self._change_parent(transaction, path, undo, is_created=True)]

    def _change_parent(
        self, transaction: Transaction, path: str, undo: list[Callable[[], object]], *, is_created: bool
    ) -> tuple[Event, str]:
        above, name = parent_of(path), path.rpartition("/")[2]
        parent = self.nodes[above]
        before = replace(parent, children=set(parent.children))
        undo.append(lambda: self.nodes.__setitem__(above, before))
        (parent.children.add if is_created else parent.children.discard)(name)
        parent.cversion, parent.pzxid = parent.cversion + 1, transaction.zxid
        return Event.CHILD, above


def parent_of(path: str) -> str:
    """Return the path of the parent of a znode."""
    return path.rpartition("/")[0] or "/"


__all__ = ["Change", "ChangeError", "Error", "Event", "Op", "Transaction", "Znode", "ZnodeTree", "parent_of"]
