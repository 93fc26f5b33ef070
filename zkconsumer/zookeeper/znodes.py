"""Znodes: operations on znodes, each with a deadline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.zookeeper.connection import BadVersion, Connection, NodeExists, NodeMissing

#: Maximum number of operations in one transaction: the request must not exceed ZooKeeper's ``jute.maxbuffer`` of 1 MB.
TRANSACTION_LIMIT = 1000

#: The ACL that an authenticated JVM member sets: full access for the creator, read access for everyone.
_CREATOR_ACL = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

#: A znode has another version, does not exist, or exists already.
_NOT_AS_EXPECTED = (kazoo_errors.BadVersionError, kazoo_errors.NoNodeError, kazoo_errors.NodeExistsError)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Node:
    """The data of a znode and a part of its stat.

    Attributes:
        owner_session: the id of the session that owns an ephemeral znode, else 0.
        created_zxid: the id of the transaction that created the znode.
        modified_zxid: the id of the transaction that wrote the data.
        modified: time of the last write in seconds since the epoch, by the server's clock.
    """

    data: bytes
    version: int
    owner_session: int
    created_zxid: int
    modified_zxid: int
    modified: float


@dataclass(frozen=True, slots=True)
class Write:
    """Data to write to a persistent znode.

    Attributes:
        version: the version that the znode must have, -1 for any; None creates it.
        open_to_all: let every client write to a created znode, also if this client authenticates.
    """

    path: str
    data: bytes
    version: int | None
    open_to_all: bool = False


class Znodes:
    """Operations on znodes. Each blocks until its result has arrived; any thread may call them.

    All raise ``ZooKeeperUnavailableError`` without a connection or a response in time, ``OwnershipLostError`` if the
    session has expired, and ``AuthorizationError`` if an ACL denies access.

    Args:
        authenticates: whether the client authenticates; znodes are then writable by their creator only.
        on_change: called with the path of a znode whose watch has fired, in a kazoo thread that must not block.
    """

    def __init__(self, connection: Connection, *, authenticates: bool, on_change: Callable[[str], object]) -> None:
        self._connection = connection
        self._acl = _CREATOR_ACL if authenticates else OPEN_ACL_UNSAFE
        self._notify = on_change

    def _on_change(self, event: Any) -> None:  # in kazoo's callback thread
        self._notify(event.path or "")

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        """Return a znode, or None if it does not exist. With ``watch``, its next change is reported."""
        return self.get_many([path], watch=watch)[0]

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[Node | None]:
        """Return znodes as ``get`` does. All requests are sent before the first response is awaited."""
        client = self._connection.connected_client()
        results = [client.get_async(path, self._on_change if watch else None) for path in paths]
        nodes: list[Node | None] = []
        for path, result in zip(paths, results, strict=True):
            try:
                data, stat = self._connection.wait(result, path)
                zxids = stat.czxid, stat.mzxid
                nodes.append(Node(data or b"", stat.version, stat.ephemeralOwner, *zxids, stat.mtime / 1000))
            except NodeMissing:
                nodes.append(None)
        return nodes

    def children(self, path: str, *, watch: bool = False) -> list[str] | None:
        """Return the sorted names of a znode's children, or None if the znode does not exist."""
        try:
            result = self._connection.connected_client().get_children_async(path, self._on_change if watch else None)
            return sorted(self._connection.wait(result, path))
        except NodeMissing:
            return None

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Return whether a znode exists. With ``watch``, its creation, change or deletion is reported."""
        result = self._connection.connected_client().exists_async(path, self._on_change if watch else None)
        return self._connection.wait(result, path) is not None

    def ensure(self, path: str, *, open_to_all: bool = False) -> None:
        """Create a persistent znode and its parents, unless they exist.

        Args:
            open_to_all: let every client write to the znodes, also if this client authenticates.
        """
        parent, _, _ = path.rpartition("/")
        # All clients may write to /consumers and to the znode of a group.
        acl = OPEN_ACL_UNSAFE if open_to_all or path.count("/") < 3 else self._acl
        try:
            self._create(path, b"", acl)
        except NodeExists:
            return
        except NodeMissing:
            self.ensure(parent, open_to_all=open_to_all)
            self.ensure(path, open_to_all=open_to_all)

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode, and its parents, which every client may write to.

        Raises:
            NodeExists: the znode already exists.
        """
        try:
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)
        except NodeMissing:
            self.ensure(path.rpartition("/")[0], open_to_all=True)
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)

    def touch_parent(self, path: str, data: bytes) -> None:
        """Fire the watches on the children of a znode, by creating and deleting a child in one transaction.

        Args:
            path: path of the child.
            data: data of the child, in case a read of the children is processed between both operations.
        """
        transaction = self._connection.connected_client().transaction()
        transaction.create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)
        transaction.delete(path)
        self._commit(transaction)

    def create_all_ephemeral(self, nodes: Sequence[tuple[str, bytes]]) -> str | None:
        """Create ephemeral znodes in one transaction: all or none.

        Args:
            nodes: ``(path, data)`` of up to ``TRANSACTION_LIMIT`` znodes, whose parents must exist.

        Returns:
            None if the znodes were created, else the path of the first one that already exists.

        Raises:
            NodeMissing: a parent does not exist.
        """
        transaction = self._connection.connected_client().transaction()
        for path, data in nodes:
            transaction.create(path, data, self._acl, ephemeral=True)
        results = self._connection.wait(transaction.commit_async())
        for (path, _), result in zip(nodes, results, strict=True):
            if isinstance(result, kazoo_errors.NodeExistsError):
                return path
            if isinstance(result, kazoo_errors.NoNodeError):
                raise NodeMissing(f"the parent of znode {path} does not exist")
            if isinstance(result, kazoo_errors.NoAuthError):
                raise self._connection.access_denied_error(path) from result
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise ZooKeeperUnavailableError(
                f"could not create {len(nodes)} znodes, of which {nodes[0][0]} is the first: {errors[0]!r}"
            )
        return None

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode, if it exists.

        Args:
            version: the version that the znode must have; -1 for any.

        Raises:
            BadVersion: the znode has another version.
        """
        try:
            self._connection.wait(self._connection.connected_client().delete_async(path, version), path)
        except NodeMissing:
            pass

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete znodes in transactions. Znodes that do not exist are ignored."""
        for chunk in _chunks(list(paths)):
            client = self._connection.connected_client()
            transaction = client.transaction()
            for path in chunk:
                transaction.delete(path)
            if self._commit(transaction) is None:  # delete the znodes that exist, one request each
                for path, result in zip(chunk, [client.delete_async(path) for path in chunk], strict=True):
                    self._wait_unless_stale(result, path)

    def delete_tree(self, path: str) -> None:
        """Delete a znode and its descendants."""
        for child in self.children(path) or ():
            self.delete_tree(f"{path}/{child}")
        self.delete(path)

    def write_many(self, groups: Sequence[Sequence[Write]]) -> list[int | None]:
        """Create persistent znodes, and write the data of existing ones, in transactions.

        Parents of created znodes are created, too.

        Args:
            groups: the znodes of a group are always written in the same transaction.

        Returns:
            The new version of the first znode of each group. None if the group could not be written, because a znode
            has another version, does not exist, or exists already.
        """
        writes = [write for group in groups for write in group if write.version is None]
        for parent, open_to_all in {(write.path.rpartition("/")[0], write.open_to_all) for write in writes}:
            if not self.exists(parent):
                self.ensure(parent, open_to_all=open_to_all)
        largest = max((len(group) for group in groups), default=1)
        versions: list[int | None] = []
        for chunk in _chunks(groups, TRANSACTION_LIMIT // largest):
            written = self._commit(self._transaction(chunk))
            if written is None:  # a transaction is written as a whole or not at all: one for each group
                pending = [self._transaction([group]).commit_async() for group in chunk]
                results = [self._connection.wait(one) for one in pending]
            else:
                remaining = iter(written)
                results = [list(itertools.islice(remaining, len(group))) for group in chunk]
            versions += [self._new_version(group, result) for group, result in zip(chunk, results, strict=True)]
        return versions

    def _new_version(self, group: Sequence[Write], results: Sequence[Any]) -> int | None:
        """Return the new version of the first znode of a group, or None if the znodes are not as expected."""
        for write, result in zip(group, results, strict=True):
            if isinstance(result, kazoo_errors.NoAuthError):
                raise self._connection.access_denied_error(write.path) from result
        if any(isinstance(result, _NOT_AS_EXPECTED) for result in results):
            return None
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise ZooKeeperUnavailableError(f"could not write znode {group[0].path}: {errors[0]!r}")
        return 0 if group[0].version is None else int(results[0].version)

    def _transaction(self, groups: Sequence[Sequence[Write]]) -> Any:
        transaction = self._connection.connected_client().transaction()
        for write in (write for group in groups for write in group):
            if write.version is None:
                acl = OPEN_ACL_UNSAFE if write.open_to_all else self._acl
                transaction.create(write.path, write.data, acl)
            else:
                transaction.set_data(write.path, write.data, write.version)
        return transaction

    def _wait_unless_stale(self, result: Any, path: str) -> Any:
        """Wait for a result and return it, or None if the znode does not exist or has another version."""
        try:
            return self._connection.wait(result, path)
        except (BadVersion, NodeMissing):
            return None

    def _create(self, path: str, data: bytes, acl: Sequence[Any], *, ephemeral: bool = False) -> None:
        result = self._connection.connected_client().create_async(path, data, acl, ephemeral=ephemeral)
        self._connection.wait(result, path)

    def _commit(self, transaction: Any) -> list[Any] | None:
        """Return the results of a transaction, or None if it failed, which leaves all znodes unchanged."""
        results = self._connection.wait(transaction.commit_async())
        return None if any(isinstance(result, Exception) for result in results) else results


def _chunks(items: Sequence[_T], size: int = TRANSACTION_LIMIT) -> Iterator[Sequence[_T]]:
    """Split items into sequences of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
