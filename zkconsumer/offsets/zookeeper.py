"""A group's committed offsets under ``/consumers/<group>/offsets`` in ZooKeeper.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from zkconsumer.errors import AuthorizationError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.topic_id import created_zxid, is_same_topic
from zkconsumer.offsets.base import OF_DELETED_TOPIC, LowerOffsetGuard
from zkconsumer.zookeeper.registry import GroupPaths, format_offset, parse_offset
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import Write, Znode


class ZooKeeperOffsets:
    """Committed offsets in a group's offset znodes.

    Each offset write is conditional on the znode's cached version, to detect writes by operators and other owners.
    JVM members write unconditionally, but their writes also increment the version.

    An offset znode that was last written before its topic's znode was created belongs to a deleted topic with the same
    name. In KRaft mode, topics have no znodes. The topic id from the brokers is then written to a second znode, in the
    same transaction. That znode is ignored unless both znodes have the same ``mzxid``, because JVM members and tools
    write only the offset.

    See docs/decisions/25-offsets-of-deleted-topics.rst.

    Args:
        session: ZooKeeper session.
        group: group id.
        rewrite_unchanged: whether to rewrite unchanged offsets, for monitoring tools that check the age of offset
            znodes.
        on_commit: function that is called with the number of offsets in each write.
        topic_ids: function that returns the ids of existing topics, to detect re-created topics; see
            ``zkconsumer.metadata.topic_id``.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        group: str,
        *,
        rewrite_unchanged: bool = False,
        on_commit: Callable[[int], object] = int,
        topic_ids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._on_commit = on_commit
        self._znodes = session.znodes
        self._rewrite_unchanged = rewrite_unchanged
        self._paths = GroupPaths(group)
        self._existing_topic_ids = topic_ids
        self._topic_ids: dict[TopicPartition, str] = {}
        self._with_id_znode: set[TopicPartition] = set()
        self._stores_topic_ids = True  # False after an ACL denied writing topic ids
        #: Committed offset and znode version, by partition; both are -1 if the znode does not exist.
        self._cache: dict[TopicPartition, tuple[int, int]] = {}
        self._log = get_logger("zkconsumer.offsets", group=group)
        self._guard = LowerOffsetGuard(self._log)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's committed offset; see ``Offsets``.

        Raises:
            ZkConsumerError: a znode does not contain a valid offset; the message includes its path.
        """
        return self._fetch(partitions, is_before_write=False)

    def _fetch(self, partitions: Iterable[TopicPartition], *, is_before_write: bool) -> dict[TopicPartition, int]:
        """Read offset znodes into the cache. If ``is_before_write`` is true, a malformed offset is read as -1."""
        requested = list(partitions)
        ids = self._existing_topic_ids()
        for partition in requested:
            if not is_before_write or partition not in self._topic_ids:
                self._topic_ids[partition] = ids.get(partition.topic, "")
        paths = [self._paths.offset(partition) for partition in requested]
        with_id = [partition for partition in requested if self._needs_id_znode(partition)]
        nodes = self._znodes.get_many(paths + [self._paths.offset_topic_id(partition) for partition in with_id])
        id_nodes = dict(zip(with_id, nodes[len(paths) :], strict=True))
        offsets = {}
        for partition, path, node in zip(requested, paths, nodes, strict=False):
            try:
                offsets[partition] = parse_offset(path, node.data if node else None)
                if node and self._is_of_deleted_topic(partition, node, id_nodes.get(partition)):
                    offsets[partition] = OF_DELETED_TOPIC
            except ZkConsumerError as error:
                if not is_before_write:
                    raise
                self._log.warning("malformed_offset_overwritten", error=str(error))
                offsets[partition] = -1
            self._cache[partition] = (offsets[partition], node.version if node else -1)
        self._with_id_znode -= id_nodes.keys()
        self._with_id_znode |= {partition for partition, node in id_nodes.items() if node}
        return offsets

    def _needs_id_znode(self, partition: TopicPartition) -> bool:
        topic_id = self._topic_ids[partition]
        return self._stores_topic_ids and bool(topic_id) and created_zxid(topic_id) is None

    def _is_of_deleted_topic(self, partition: TopicPartition, node: Znode, id_node: Znode | None) -> bool:
        """Return whether an offset znode was written for a topic that was re-created afterwards."""
        topic_id = self._topic_ids[partition]
        if (created := created_zxid(topic_id)) is not None:
            return node.modified_zxid < created
        if id_node is None or id_node.modified_zxid != node.modified_zxid:
            return False
        return not is_same_topic(id_node.data.decode(errors="replace"), topic_id)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        allow_lower: bool = False,
        before_write: Callable[[], object] = dict,
    ) -> dict[TopicPartition, int]:
        """Commit offsets. Unchanged offsets are not rewritten (KAFKA-987) unless ``rewrite_unchanged`` is true.

        A committed offset is lowered only with ``allow_lower``, or once after ``allow_lower_once``. If another client
        modified a znode since it was read, it is read and written again; see ``Offsets`` for ``before_write``.

        Returns:
            The committed offset of each partition in ``offsets`` after the commit.
        """
        unknown = [partition for partition in offsets if partition not in self._cache]
        if unknown:
            self._fetch(unknown, is_before_write=True)
        pending = dict(offsets)
        while pending:
            before_write()
            pending = self._write(pending, allow_lower)
            before = {partition: self._cache[partition][0] for partition in pending}
            for partition, offset in self._fetch(pending, is_before_write=True).items():
                if offset == -1 < before[partition]:
                    self._log.warning(
                        "committed_offset_missing",
                        topic=partition.topic,
                        partition=partition.partition,
                        consumed_offset=before[partition],
                    )
        self._guard.reset(offsets)
        return {partition: self._cache[partition][0] for partition in offsets}

    def lacks(self, partition: TopicPartition, offset: int) -> bool:
        """See ``Offsets``."""
        return self._cache[partition][0] < offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        released = list(partitions)
        self._guard.forget(released)
        for partition in released:
            self._cache.pop(partition, None)
            self._topic_ids.pop(partition, None)
            self._with_id_znode.discard(partition)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._guard.allow(partition)

    @property
    def lowerable(self) -> Set[TopicPartition]:
        """See ``Offsets``."""
        return self._guard.allowed

    def close(self) -> None:
        """Do nothing: the ZooKeeper session is closed by its owner."""

    def _write_without_ids(self, offsets: Mapping[TopicPartition, int], allow_lower: bool) -> dict[TopicPartition, int]:
        """Write offsets without topic ids; if that succeeds, stop writing topic ids permanently."""
        self._stores_topic_ids = False
        try:
            return self._write(offsets, allow_lower)
        except BaseException:
            self._stores_topic_ids = True
            raise

    def _write(self, offsets: Mapping[TopicPartition, int], allow_lower: bool) -> dict[TopicPartition, int]:
        """Write offsets; return those that must be retried because their znodes were modified after they were read."""
        chosen = self._choose_writes(offsets, allow_lower)
        self._on_commit(len(chosen))
        try:
            versions = self._znodes.write_many(list(chosen.values()))
        except AuthorizationError as error:
            if not any(len(writes) > 1 for writes in chosen.values()):
                raise
            self._log.warning("topic_ids_not_stored", error=str(error))
            return self._write_without_ids({partition: offsets[partition] for partition in chosen}, allow_lower)
        stale: dict[TopicPartition, int] = {}
        for partition, new_version in zip(chosen, versions, strict=True):
            if new_version is None:
                stale[partition] = offsets[partition]
            else:
                self._cache[partition] = (offsets[partition], new_version)
                self._guard.reset([partition])  # now, because the commit of the other partitions may fail
                if self._needs_id_znode(partition):
                    self._with_id_znode.add(partition)
        return stale

    def _choose_writes(
        self, offsets: Mapping[TopicPartition, int], allow_lower: bool
    ) -> dict[TopicPartition, list[Write]]:
        """Return the znode writes for each partition whose offset needs to be written and may be committed."""
        existing = self._existing_topic_ids()
        chosen: dict[TopicPartition, list[Write]] = {}
        for partition, offset in offsets.items():
            committed, version = self._cache[partition]
            if offset == committed and not self._rewrite_unchanged:
                continue
            if not is_same_topic(self._topic_ids[partition], existing.get(partition.topic, "")):
                self._log.warning(
                    "offset_of_deleted_topic_skipped",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                )
                continue
            if not self._guard.permits(partition, offset, committed, allow_lower):
                continue
            path = self._paths.offset(partition)
            chosen[partition] = [Write(path, format_offset(offset), version if version >= 0 else None)]
            if self._needs_id_znode(partition):
                id_version = -1 if partition in self._with_id_znode else None
                path = self._paths.offset_topic_id(partition)
                chosen[partition].append(Write(path, self._topic_ids[partition].encode(), id_version, open_to_all=True))
        return chosen
