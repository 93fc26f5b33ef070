"""Znodes: reads and writes of znodes over a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.zookeeper.connection import BadVersion, Connection, NodeExists, NodeMissing

#: Operations in one transaction: the request must fit into ZooKeeper's ``jute.maxbuffer`` of 1 MB.
TRANSACTION_LIMIT = 1000

#: What a JVM with a login gives the znodes that are its own: all for their creator, reading for everybody.
_OURS = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Node:
    """A znode's content with the parts of its stat that matter here."""

    data: bytes
    version: int
    owner_session: int
    created: int
    modified: float  #: seconds since the epoch, by the server's clock


class Znodes:
    """Operations on znodes; each waits for its result. May be used by any thread.

    Args:
        authenticates: whether ZooKeeper learns who we are, so that znodes can be kept from others.
        on_change: called with the path of a znode whose watch fired, in a thread of kazoo that must not wait.
    """

    def __init__(self, connection: Connection, *, authenticates: bool, on_change: Callable[[str], object]) -> None:
        self._connection = connection
        self._acl = _OURS if authenticates else OPEN_ACL_UNSAFE
        self._notify = on_change

    def _on_change(self, event: Any) -> None:  # in kazoo's callback thread
        self._notify(event.path or "")

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        """Return a znode, or None where it is missing; with ``watch`` its next change is an event."""
        return self.get_many([path], watch=watch)[0]

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[Node | None]:
        """Return many znodes, asked for at once."""
        client = self._connection.connected_client()
        results = [client.get_async(path, self._on_change if watch else None) for path in paths]
        nodes: list[Node | None] = []
        for path, result in zip(paths, results, strict=True):
            try:
                data, stat = self._connection.wait(result, path)
                nodes.append(Node(data or b"", stat.version, stat.ephemeralOwner, stat.czxid, stat.mtime / 1000))
            except NodeMissing:
                nodes.append(None)
        return nodes

    def children(self, path: str, *, watch: bool = False) -> list[str] | None:
        """Return the sorted names of a znode's children, or None where it is missing."""
        try:
            result = self._connection.connected_client().get_children_async(path, self._on_change if watch else None)
            return sorted(self._connection.wait(result, path))
        except NodeMissing:
            return None

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether there is such a znode; with ``watch`` its appearance, change or end is an event."""
        result = self._connection.connected_client().exists_async(path, self._on_change if watch else None)
        return self._connection.wait(result, path) is not None

    def ensure(self, path: str, *, open_to_all: bool = False) -> None:
        """Create a persistent znode, with its parents, unless it exists."""
        parent, _, _ = path.rpartition("/")
        # /consumers and a group's own znode are everybody's.
        acl = OPEN_ACL_UNSAFE if open_to_all or path.count("/") < 3 else self._acl
        try:
            self._create(path, b"", acl)
        except NodeExists:
            return
        except NodeMissing:
            self.ensure(parent, open_to_all=open_to_all)
            self.ensure(path, open_to_all=open_to_all)

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode, and its parents, open to all.

        Raises:
            NodeExists: it is there.
        """
        try:
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)
        except NodeMissing:
            self.ensure(path.rpartition("/")[0], open_to_all=True)
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)

    def create_all_ephemeral(self, nodes: Sequence[tuple[str, bytes]]) -> str | None:
        """Create all or none of up to ``TRANSACTION_LIMIT`` ephemeral znodes; their parents must exist.

        Returns:
            None, or the path that exists already and so prevented it.
        """
        transaction = self._connection.connected_client().transaction()
        for path, data in nodes:
            transaction.create(path, data, self._acl, ephemeral=True)
        results = self._connection.wait(transaction.commit_async())
        for (path, _), result in zip(nodes, results, strict=True):
            if isinstance(result, kazoo_errors.NodeExistsError):
                return path
            if isinstance(result, kazoo_errors.NoNodeError):
                raise NodeMissing(path)
            if isinstance(result, kazoo_errors.NoAuthError):
                raise self._connection.access_denied_error(path) from result
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise ZooKeeperUnavailableError(f"ZooKeeper refused to create {nodes[0][0]!r} and others: {errors[0]!r}")
        return None

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode if it is there.

        Raises:
            BadVersion: it has been written since it had ``version``.
        """
        try:
            self._connection.wait(self._connection.connected_client().delete_async(path, version), path)
        except NodeMissing:
            pass

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete znodes, in transactions; missing ones are fine."""
        for part in _parts(list(paths)):
            client = self._connection.connected_client()
            transaction = client.transaction()
            for path in part:
                transaction.delete(path)
            if self._commit(transaction) is None:  # then one by one, asked for at once
                for path, result in zip(part, [client.delete_async(path) for path in part], strict=True):
                    self._unless_missing(result, path)

    def delete_tree(self, path: str) -> None:
        """Delete a znode with all below it."""
        for child in self.children(path) or ():
            self.delete_tree(f"{path}/{child}")
        self.delete(path)

    def set_many(self, nodes: Sequence[tuple[str, bytes, int]]) -> list[int | None]:
        """Write ``(path, data, version)``, in transactions; version -1 writes whatever is there.

        Returns:
            the new version of each, or None where it had another one or was missing.
        """
        versions: list[int | None] = []
        for part in _parts(nodes):
            client = self._connection.connected_client()
            transaction = client.transaction()
            for path, data, version in part:
                transaction.set_data(path, data, version)
            written = self._commit(transaction)
            if written is None:  # then one by one, asked for at once
                results = [client.set_async(path, data, version) for path, data, version in part]
                written = [
                    self._unless_missing(result, path) for (path, _, _), result in zip(part, results, strict=True)
                ]
            versions += [None if stat is None else int(stat.version) for stat in written]
        return versions

    def _unless_missing(self, result: Any, path: str) -> Any:
        """Return a result, or None where the znode is missing or has another version."""
        try:
            return self._connection.wait(result, path)
        except (BadVersion, NodeMissing):
            return None

    def create_many(self, nodes: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Create persistent znodes, and their parents, in transactions; False for each that was there.

        They are open to all, unless we are known to ZooKeeper, as the JVM's are.
        """
        created: list[bool] = []
        for parent in {path.rpartition("/")[0] for path, _ in nodes}:
            if not self.exists(parent):
                self.ensure(parent)
        for part in _parts(nodes):
            transaction = self._connection.connected_client().transaction()
            for path, data in part:
                transaction.create(path, data, self._acl)
            if self._commit(transaction) is None:
                created += [self._create_missing(path, data) for path, data in part]
            else:
                created += [True] * len(part)
        return created

    def _create_missing(self, path: str, data: bytes) -> bool:
        """Create a persistent znode; False where it was there."""
        try:
            self._create(path, data, self._acl)
        except NodeExists:
            return False
        return True

    def _create(self, path: str, data: bytes, acl: Sequence[Any], *, ephemeral: bool = False) -> None:
        result = self._connection.connected_client().create_async(path, data, acl, ephemeral=ephemeral)
        self._connection.wait(result, path)

    def _commit(self, transaction: Any) -> list[Any] | None:
        """Return the results of a transaction, or None where it was refused and so did nothing."""
        results = self._connection.wait(transaction.commit_async())
        return None if any(isinstance(result, Exception) for result in results) else results


def _parts(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Divide what is to be done into pieces that one transaction can take."""
    for start in range(0, len(items), TRANSACTION_LIMIT):
        yield items[start : start + TRANSACTION_LIMIT]
