"""Znodes: blocking znode operations with a deadline."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import Create
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.log import get_logger
from zkconsumer.zookeeper.connection import BadVersion, Connection, NodeExists, NodeMissing

#: Maximum number of operations per transaction, so that requests do not exceed ZooKeeper's ``jute.maxbuffer`` of 1 MB.
#: See docs/decisions/16-zookeeper-transactions.rst.
TRANSACTION_LIMIT = 1000

#: The ACL set by authenticated JVM members: full access for the creator, read access for everyone.
_CREATOR_ACL = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

#: Exceptions for failed preconditions: a znode has an unexpected version, does not exist, or already exists.
_NOT_AS_EXPECTED = (kazoo_errors.BadVersionError, kazoo_errors.NoNodeError, kazoo_errors.NodeExistsError)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode's data and part of its stat structure.

    Attributes:
        data: znode data.
        version: data version.
        owner_session: id of the session that owns an ephemeral znode; 0 for a persistent znode.
        created_zxid: id of the transaction that created the znode (``czxid``).
        modified_zxid: id of the transaction that last modified the data (``mzxid``).
        modified: time of the last modification according to the server's clock, in seconds since the epoch.
    """

    data: bytes
    version: int
    owner_session: int
    created_zxid: int
    modified_zxid: int
    modified: float


@dataclass(frozen=True, slots=True)
class Write:
    """A write to a persistent znode.

    Attributes:
        path: znode path.
        data: data to write.
        version: expected version, -1 for any version; None to create the znode.
        open_to_all: whether a new znode is writable by all clients, even if this client authenticates.
    """

    path: str
    data: bytes
    version: int | None
    open_to_all: bool = False


class Znodes:
    """Blocking znode operations. Thread-safe.

    All operations raise ``ZooKeeperUnavailableError`` if the client is not connected or receives no response in time,
    ``OwnershipLostError`` if the session expired, and ``AuthorizationError`` if an ACL denies access.

    Args:
        connection: connection to ZooKeeper.
        authenticates: whether the client authenticates; if so, by default only clients with the same credentials can
            write to the znodes that it creates.
        on_change: function that is called with the path of a fired watch, in a kazoo thread that must not block.
    """

    def __init__(self, connection: Connection, *, authenticates: bool, on_change: Callable[[str], object]) -> None:
        self._connection = connection
        self._acl = _CREATOR_ACL if authenticates else OPEN_ACL_UNSAFE
        self._notify = on_change
        self._log = get_logger("zkconsumer.zookeeper")

    def _on_change(self, event: Any) -> None:  # called by kazoo's callback thread
        self._notify(event.path or "")

    def get(self, path: str, *, watch: bool = False) -> Znode | None:
        """Return a znode, or None if it does not exist. If ``watch`` is true, report its next change or deletion."""
        return self.get_many([path], watch=watch)[0]

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[Znode | None]:
        """Return znodes as ``get`` does, but send all requests before waiting for the first response."""
        client = self._connection.connected_client()
        results = [client.get_async(path, self._on_change if watch else None) for path in paths]
        nodes: list[Znode | None] = []
        for path, result in zip(paths, results, strict=True):
            try:
                data, stat = self._connection.wait(result, path)
                zxids = stat.czxid, stat.mzxid
                nodes.append(Znode(data or b"", stat.version, stat.ephemeralOwner, *zxids, stat.mtime / 1000))
            except NodeMissing:
                nodes.append(None)
        return nodes

    def children(self, path: str, *, watch: bool = False) -> list[str] | None:
        """Return the sorted names of a znode's children, or None if the znode does not exist.

        If ``watch`` is true, the next creation or deletion of a child, or the deletion of the znode, is reported.
        """
        try:
            result = self._connection.connected_client().get_children_async(path, self._on_change if watch else None)
            return sorted(self._connection.wait(result, path))
        except NodeMissing:
            return None

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Return whether a znode exists. If ``watch`` is true, its creation, change or deletion is reported."""
        result = self._connection.connected_client().exists_async(path, self._on_change if watch else None)
        return self._connection.wait(result, path) is not None

    def ensure(self, path: str, *, open_to_all: bool = False) -> None:
        """Create a persistent znode and its parents if they do not exist.

        Args:
            path: znode path.
            open_to_all: whether new znodes are writable by all clients, even if this client authenticates.
        """
        parent, _, _ = path.rpartition("/")
        # /consumers and the root znodes of groups are writable by all clients.
        acl = OPEN_ACL_UNSAFE if open_to_all or path.count("/") < 3 else self._acl
        try:
            self._create(path, b"", acl)
        except NodeExists:
            return
        except NodeMissing:
            if parent:
                self.ensure(parent, open_to_all=open_to_all)
            else:
                self._ensure_chroot()
            self.ensure(path, open_to_all=open_to_all)

    def _ensure_chroot(self) -> None:
        """Create the chroot, which existed when the session was opened: the ensemble lost its data since then.

        kazoo's methods prepend the chroot to each path, so they cannot create its parents.
        """
        client = self._connection.connected_client()
        names = client.chroot.split("/")
        for path in ("/".join(names[: depth + 1]) for depth in range(1, len(names))):
            result = client.handler.async_result()
            client._call(Create(path, b"", OPEN_ACL_UNSAFE, 0), result)
            with contextlib.suppress(NodeExists):
                self._connection.wait(result, path)
        self._log.warning("zookeeper_chroot_created", path=client.chroot)

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode and its missing parents; all clients can write to them.

        Raises:
            NodeExists: the znode already exists.
        """
        try:
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)
        except NodeMissing:
            self.ensure(path.rpartition("/")[0], open_to_all=True)
            self._create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)

    def touch_parent(self, path: str, data: bytes) -> None:
        """Fire the child watches of a znode by creating and deleting a child in one transaction.

        Args:
            path: path of the child.
            data: data of the child; another client may read it between the two operations.
        """
        transaction = self._connection.connected_client().transaction()
        transaction.create(path, data, OPEN_ACL_UNSAFE, ephemeral=True)
        transaction.delete(path)
        self._commit(transaction)

    def create_all_ephemeral(self, nodes: Sequence[tuple[str, bytes]]) -> str | None:
        """Create ephemeral znodes in one transaction: all or none.

        Args:
            nodes: ``(path, data)`` pairs of at most ``TRANSACTION_LIMIT`` znodes, whose parents must exist.

        Returns:
            None if the znodes were created, otherwise the path of the first znode that already exists.

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
            others = f" and {len(nodes) - 1} more in the same transaction" if len(nodes) > 1 else ""
            raise ZooKeeperUnavailableError(f"could not create znode {nodes[0][0]}{others}: {errors[0]!r}")
        return None

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode if it exists.

        Args:
            path: znode path.
            version: expected version; -1 for any version.

        Raises:
            BadVersion: the znode does not have the expected version.
        """
        try:
            self._connection.wait(self._connection.connected_client().delete_async(path, version), path)
        except NodeMissing:
            pass

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete znodes in transactions, ignoring znodes that do not exist."""
        for chunk in _chunks(list(paths)):
            client = self._connection.connected_client()
            transaction = client.transaction()
            for path in chunk:
                transaction.delete(path)
            if self._commit(transaction) is None:  # nothing was deleted: delete the znodes one by one
                for path, result in zip(chunk, [client.delete_async(path) for path in chunk], strict=True):
                    self._wait_unless_stale(result, path)

    def delete_tree(self, path: str) -> None:
        """Delete a znode and its descendants."""
        for child in self.children(path) or ():
            self.delete_tree(f"{path}/{child}")
        self.delete(path)

    def write_many(self, groups: Sequence[Sequence[Write]]) -> list[int | None]:
        """Create and update persistent znodes in transactions, and create missing parents.

        Args:
            groups: groups of writes; the writes of a group are always part of the same transaction.

        Returns:
            The new version of each group's first znode, or None if a precondition of the group failed: a znode has an
            unexpected version, does not exist, or already exists.
        """
        writes = [write for group in groups for write in group if write.version is None]
        for parent, open_to_all in {(write.path.rpartition("/")[0], write.open_to_all) for write in writes}:
            if not self.exists(parent):
                self.ensure(parent, open_to_all=open_to_all)
        largest = max((len(group) for group in groups), default=1)
        versions: list[int | None] = []
        for chunk in _chunks(groups, TRANSACTION_LIMIT // largest):
            written = self._commit(self._transaction(chunk))
            if written is None:  # nothing was written: use one transaction per group
                pending = [self._transaction([group]).commit_async() for group in chunk]
                results = [self._connection.wait(one) for one in pending]
            else:
                remaining = iter(written)
                results = [list(itertools.islice(remaining, len(group))) for group in chunk]
            versions += [self._new_version(group, result) for group, result in zip(chunk, results, strict=True)]
        return versions

    def _new_version(self, group: Sequence[Write], results: Sequence[Any]) -> int | None:
        """Return the new version of the group's first znode, or None if a precondition of the group failed."""
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
        """Wait for a result and return it, or None if the znode does not exist or has an unexpected version."""
        try:
            return self._connection.wait(result, path)
        except (BadVersion, NodeMissing):
            return None

    def _create(self, path: str, data: bytes, acl: Sequence[Any], *, ephemeral: bool = False) -> None:
        result = self._connection.connected_client().create_async(path, data, acl, ephemeral=ephemeral)
        self._connection.wait(result, path)

    def _commit(self, transaction: Any) -> list[Any] | None:
        """Commit a transaction and return its results, or None if it failed and left all znodes unchanged."""
        results = self._connection.wait(transaction.commit_async())
        return None if any(isinstance(result, Exception) for result in results) else results


def _chunks(items: Sequence[_T], size: int = TRANSACTION_LIMIT) -> Iterator[Sequence[_T]]:
    """Split items into sequences of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
