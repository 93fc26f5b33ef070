"""Read the transaction log of ZooKeeper from the files of the server.

Polling znodes misses changes between two reads. The log contains all writes in order with their sessions, so
``group_history`` can check for each commit whether its session owned the partition at that time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CREATE, _DELETE, _SET, _MULTI = 1, 2, 5, 14
_CREATES = (_CREATE, 15, 19, 21)  # create, create2, createContainer, createTTL
_DELETES = (_DELETE, 20)
_ERROR, _CLOSE_SESSION = -1, -11


@dataclass(frozen=True, slots=True)
class Write:
    """A change of a znode, or, with the ``kind`` ``close``, the end of a session and of its ephemeral znodes."""

    zxid: int
    session: int
    kind: str
    path: str = ""
    data: bytes = b""
    ephemeral: bool = False


class _Buffer:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def unpack(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def bytes(self) -> bytes:
        size = max(0, self.unpack("i"))
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.bytes().decode()


def read(folder: Path) -> list[Write]:
    """Return all writes so far in order, from the files in the ``folder`` of a cluster."""
    files = (folder / "zookeeper-data" / "version-2").glob("log.*")
    return [write for file in sorted(files, key=lambda f: int(f.suffix[1:], 16)) for write in _entries(file)]


def _entries(file: Path) -> Iterator[Write]:
    with file.open("rb") as log:
        log.seek(16)  # skips magic, version and database id
        while len(head := log.read(12)) == 12:
            (size,) = struct.unpack(">i", head[8:])
            if not size:
                return  # the rest of the file is preallocated
            entry = log.read(size + 1)
            if len(entry) <= size or entry[size] != 0x42:
                return  # the entry is being written
            yield from _entry(_Buffer(entry))


def _entry(buffer: _Buffer) -> Iterator[Write]:
    session, _cxid, zxid, _time, kind = (buffer.unpack(form) for form in "qiqqi")
    if kind == _CLOSE_SESSION:
        yield Write(zxid, session, "close")
    elif kind == _MULTI:
        operations = [(buffer.unpack("i"), buffer.bytes()) for _ in range(buffer.unpack("i"))]
        if all(operation != _ERROR for operation, _ in operations):
            for operation, content in operations:
                yield from _change(zxid, session, operation, _Buffer(content))
    else:
        yield from _change(zxid, session, kind, buffer)


def _change(zxid: int, session: int, kind: int, buffer: _Buffer) -> Iterator[Write]:
    if kind in _CREATES:
        path, data = buffer.text(), buffer.bytes()
        for _ in range(max(0, buffer.unpack("i"))):  # skips the ACL
            buffer.unpack("i"), buffer.text(), buffer.text()
        ephemeral = kind in (_CREATE, 15) and bool(buffer.unpack("b"))
        yield Write(zxid, session, "create", path, data, ephemeral)
    elif kind in _DELETES:
        yield Write(zxid, session, "delete", buffer.text())
    elif kind == _SET:
        yield Write(zxid, session, "set", buffer.text(), buffer.bytes())


@dataclass(slots=True)
class GroupHistory:
    """The history of one group: ``commits`` and ``owners`` list all contents of each partition's znode."""

    commits: dict[str, list[int]]
    owners: dict[str, list[str]]
    violations: list[str]


def group_history(folder: Path, group: str) -> GroupHistory:
    """Return the history of a group's owner and offset znodes.

    Violations are a commit by a session that does not own the partition at that time, an offset that is lowered, and
    the deletion of an owner znode by a session that does not own it. Only commits of sessions that have owned a
    partition are checked, so tests may write offsets.
    """
    root = f"/consumers/{group}/"
    writes = [w for w in read(folder) if w.kind == "close" or root in f"{w.path}/"]
    members = {w.session for w in writes if w.kind == "create" and w.ephemeral and "/owners/" in w.path}
    history = GroupHistory({}, {}, [])
    owner: dict[str, int] = {}
    offset: dict[str, int] = {}
    for w in writes:
        kind, _, partition = w.path.partition(root)[2].partition("/")
        if w.kind == "close":
            owner = {p: session for p, session in owner.items() if session != w.session}
        elif kind == "owners" and w.ephemeral:
            owner[partition] = w.session
            history.owners.setdefault(partition, []).append(w.data.decode())
        elif kind == "owners" and w.kind == "delete":
            if owner.pop(partition, w.session) != w.session:
                history.violations.append(f"{w.zxid:#x}: {w.session:#x} deleted the owner znode of {partition}")
        elif kind == "offsets" and w.data.strip().isdigit():
            stored = int(w.data)
            if w.session in members:
                history.commits.setdefault(partition, []).append(stored)
                if owner.get(partition) != w.session:
                    holder = f"{owner[partition]:#x}" if partition in owner else "no session"
                    history.violations.append(
                        f"{w.zxid:#x}: {w.session:#x} committed {stored} for {partition}, which {holder} owned"
                    )
                if stored < offset.get(partition, 0):
                    history.violations.append(
                        f"{w.zxid:#x}: {partition} was lowered from {offset[partition]} to {stored}"
                    )
            offset[partition] = stored
    return history
