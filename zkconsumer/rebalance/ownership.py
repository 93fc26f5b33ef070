"""Claim and release of owner znodes, all or none at a time.

Source: Kafka 1.1 ZookeeperConsumerConnector.reflectPartitionOwnershipDecision, releasePartitionOwnership,
which create and delete the znodes one by one; what peers see is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.connection import BadVersion, NodeExists, NodeMissing
from zkconsumer.zookeeper.registry import GroupPaths, Registration
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import TRANSACTION_LIMIT


class Ownership:
    """The ephemeral znodes of one member: its registration and its owner znodes.

    An ephemeral znode counts as ours by the session that it belongs to, not by its content: one of an older
    session of ours has the same content and vanishes later (KAFKA-992, KAFKA-1387). Used by the member's thread.
    """

    def __init__(self, session: ZooKeeperSession, paths: GroupPaths, consumer_id: str) -> None:
        self._session = session
        self._paths = paths
        self._consumer_id = consumer_id

    @property
    def registration_path(self) -> str:
        """Where the member is registered."""
        return self._paths.registration(self._consumer_id)

    def register(self, registration: Registration) -> bool:
        """Create the registration znode.

        Returns:
            False where another session holds one of this name: an earlier one that is about to end, or a second
            member with the same ``consumer.id``.
        """
        path = self.registration_path
        try:
            self._session.znodes.create_ephemeral(path, registration.to_json())
        except NodeExists:
            node = self._session.znodes.get(path, watch=True)
            return node is not None and node.owner_session == self._session.session_id
        return True

    def unregister(self) -> None:
        """Delete the registration znode, where it is ours."""
        self._delete_ours([self.registration_path])

    def claim(self, wanted: Mapping[TopicPartition, str]) -> str | None:
        """Write the owner znodes of ``wanted``, all or none.

        One transaction for each thousand; a refused one undoes the earlier ones.

        Returns:
            None, or the path of an owner znode that another member holds.

        Raises:
            OwnershipLostError: the session ended meanwhile; nothing that was written survives.
        """
        for topic in {partition.topic for partition in wanted}:
            self._session.znodes.ensure(self._paths.owners(topic))
        pending = {self._paths.owner(partition): thread.encode() for partition, thread in sorted(wanted.items())}
        created: list[str] = []
        try:
            while pending:
                nodes = list(pending.items())[:TRANSACTION_LIMIT]
                existing = self._session.znodes.create_all_ephemeral(nodes)
                if existing is None:
                    created.extend(path for path, _ in nodes)
                    for path, _ in nodes:
                        del pending[path]
                elif not self._clear(existing, pending):
                    self._delete_ours(created)
                    return existing
        except (NodeMissing, ZooKeeperUnavailableError):
            if self._session.is_connected:
                self._delete_ours(created)
            raise
        return None

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those partitions whose owner znode is not there or not ours: somebody has deleted it."""
        asked = list(partitions)
        nodes = self._session.znodes.get_many([self._paths.owner(partition) for partition in asked])
        session = self._session.session_id
        return {p for p, node in zip(asked, nodes, strict=True) if node is None or node.owner_session != session}

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the owner znodes that are ours."""
        self._delete_ours([self._paths.owner(partition) for partition in partitions])

    def _clear(self, path: str, pending: dict[str, bytes]) -> bool:
        """Deal with an owner znode that is in the way; False where it is another member's."""
        node = self._session.znodes.get(path)
        if node is None:
            return True  # it went meanwhile
        if node.owner_session == self._session.session_id and node.data == pending[path]:
            del pending[path]  # ours already
            return True
        ours = node.data.decode(errors="replace").rpartition("-")[0] == self._consumer_id
        if not ours:
            return False
        # Of an older session, or of another thread of this member.
        try:
            self._session.znodes.delete(path, node.version)
        except BadVersion:
            pass  # looked at again by the next transaction
        return True

    def _delete_ours(self, paths: list[str]) -> None:
        nodes = self._session.znodes.get_many(paths)
        session = self._session.session_id
        ours = [path for path, node in zip(paths, nodes, strict=True) if node and node.owner_session == session]
        self._session.znodes.delete_many(ours)
