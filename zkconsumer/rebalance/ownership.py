"""Ownership: manages a member's registration znode, and creates and deletes its owner znodes in transactions.

Source: Kafka 1.1 ZookeeperConsumerConnector.reflectPartitionOwnershipDecision, releasePartitionOwnership, which create
and delete the same owner znodes one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.connection import BadVersion, NodeExists, NodeMissing
from zkconsumer.zookeeper.registry import GroupPaths, Registration, consumer_of, is_thread_id, parse_owner
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import TRANSACTION_LIMIT, Znode


@dataclass(frozen=True, slots=True)
class Conflict:
    """A znode that this member has to create, but that belongs to another session.

    Attributes:
        path: path of the znode.
        owner: description of the owner.
    """

    path: str
    owner: str

    def __str__(self) -> str:
        return f"{self.path} is still owned by {self.owner}"


def _describe_owner(node: Znode) -> str:
    """Describe a partition's owner based on its owner znode, whose content may not be a thread id."""
    content = parse_owner(node.data)
    owner = f"consumer {excerpt(consumer_of(content))}" if is_thread_id(content) else "another client"
    found = f"the znode contains {excerpt(content)}"
    if not node.owner_session:
        found += " and is persistent, so ZooKeeper never deletes it; delete it if no process uses the partition"
    return f"{owner} ({found})"


class Ownership:
    """A member's ephemeral znodes: its registration and its owner znodes.

    A znode belongs to this member if it was created in the current session. Its content is not sufficient: a znode from
    an expired session of the same member has the same content, but is deleted later (KAFKA-992, KAFKA-1387). Used by
    the member thread.

    Args:
        config: consumer configuration.
        session: ZooKeeper session.
        consumer_id: consumer id of the member.
        registration: registration to write to ZooKeeper.
    """

    def __init__(
        self, config: ConsumerConfig, session: ZooKeeperSession, consumer_id: str, registration: Registration
    ) -> None:
        self._session = session
        self._consumer_id = consumer_id
        self._registration = registration
        self._paths = GroupPaths(config.group_id)
        #: Znodes that must exist so that monitoring tools find the group.
        self._subtrees = self._paths.subtrees if config.offsets_commit_unchanged else ()

    @property
    def registration_path(self) -> str:
        """Path of the member's registration znode."""
        return self._paths.registration(self._consumer_id)

    def register(self) -> Conflict | None:
        """Create the registration znode, or set a watch on it if it already exists.

        Returns:
            None, or a conflict if the existing znode belongs to another session: an earlier session of this member that
            is about to expire, or a second member with the same ``consumer.id``.
        """
        path = self.registration_path
        try:
            self._session.znodes.create_ephemeral(path, self._registration.to_json())
        except NodeExists:
            node = self._session.znodes.get(path, watch=True)
            if node is None or node.owner_session != self._session.session_id:
                return Conflict(
                    path,
                    f"another session of consumer {self._consumer_id!r} (if another process has the same consumer.id, "
                    "remove the property)",
                )
        for subtree in self._subtrees:
            self._session.znodes.ensure(subtree)
        return None

    def unregister(self) -> None:
        """Delete the registration znode if it belongs to this session."""
        self._delete_own([self.registration_path])

    def claim(self, wanted: Mapping[TopicPartition, str]) -> Conflict | None:
        """Create the owner znodes of the partitions in ``wanted``: all or none.

        Uses one transaction per thousand znodes. If one fails while the session is connected, the znodes created by
        earlier transactions are deleted.

        Args:
            wanted: thread ids by partition.

        Returns:
            None, or a conflict with an owner znode of another member.

        Raises:
            OwnershipLostError: the session expired in the meantime; ZooKeeper deletes all created znodes.
        """
        self._ensure_parents({partition.topic for partition in wanted})
        pending = {self._paths.owner(partition): thread.encode() for partition, thread in sorted(wanted.items())}
        created: list[str] = []
        try:
            while pending:
                nodes = list(pending.items())[:TRANSACTION_LIMIT]
                if self._session.znodes.create_all_ephemeral(nodes) is None:
                    created.extend(path for path, _ in nodes)
                    for path, _ in nodes:
                        del pending[path]
                elif conflict := self._resolve_existing(pending):
                    self._delete_own(created)
                    return conflict
        except (NodeMissing, ZooKeeperUnavailableError):
            if self._session.is_connected:
                self._delete_own(created)
            raise
        return None

    def find_missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions whose owner znode does not exist or belongs to another session."""
        checked = list(partitions)
        nodes = self._session.znodes.get_many([self._paths.owner(partition) for partition in checked])
        session = self._session.session_id
        return {p for p, node in zip(checked, nodes, strict=True) if node is None or node.owner_session != session}

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the owner znodes of ``partitions`` that belong to this session."""
        self._delete_own([self._paths.owner(partition) for partition in partitions])

    def _ensure_parents(self, topics: Set[str]) -> None:
        """Create the missing parents of the owner znodes."""
        paths = [self._paths.owners(topic) for topic in sorted(topics)]
        for path, node in zip(paths, self._session.znodes.get_many(paths), strict=True):
            if node is None:
                self._session.znodes.ensure(path)

    def _resolve_existing(self, pending: dict[str, bytes]) -> Conflict | None:
        """Handle owner znodes that already exist when they are claimed.

        Znodes created in the current session for the same thread are removed from ``pending``; other znodes of this
        member are deleted. One call handles all znodes, because all may exist after an outage that the session
        survived.

        Returns:
            None if the claim can be retried; otherwise a conflict with a znode of another member.
        """
        outdated = {}
        for path, node in zip(list(pending), self._session.znodes.get_many(list(pending)), strict=True):
            if node is None:
                continue
            if node.owner_session == self._session.session_id and node.data == pending[path]:
                del pending[path]
            elif consumer_of(parse_owner(node.data)) != self._consumer_id:
                return Conflict(path, _describe_owner(node))
            else:
                outdated[path] = node.version  # from an older session or another thread of this member
        for path, version in outdated.items():
            with contextlib.suppress(BadVersion):  # the next claim detects the modified znode
                self._session.znodes.delete(path, version)
        return None

    def _delete_own(self, paths: list[str]) -> None:
        nodes = self._session.znodes.get_many(paths)
        session = self._session.session_id
        own = [path for path, node in zip(paths, nodes, strict=True) if node and node.owner_session == session]
        self._session.znodes.delete_many(own)
