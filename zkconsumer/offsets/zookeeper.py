"""A group's committed offsets under ``/consumers/<group>/offsets`` in ZooKeeper.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import LowerOffsetGuard
from zkconsumer.zookeeper.registry import GroupPaths, parse_offset
from zkconsumer.zookeeper.session import ZooKeeperSession


class ZooKeeperOffsets:
    """Committed offsets in the offset znodes of a group.

    Each write requires the znode's cached version, which detects concurrent writes of operators and other owners. JVM
    members write unconditionally; that increments the version, too.

    Args:
        rewrite_unchanged: write offsets that are already committed, too, for monitoring tools that check the age of
            offset znodes.
        on_commit: called with the number of offsets that are sent.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        group: str,
        *,
        rewrite_unchanged: bool = False,
        on_commit: Callable[[int], object] = int,
    ) -> None:
        self._on_commit = on_commit
        self._znodes = session.znodes
        self._rewrite_unchanged = rewrite_unchanged
        self._paths = GroupPaths(group)
        #: Committed offset and version of the znode, both -1 if it does not exist.
        self._cache: dict[TopicPartition, tuple[int, int]] = {}
        self._log = get_logger("zkconsumer.offsets", group=group)
        self._guard = LowerOffsetGuard(self._log)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition; -1 if there is none.

        Raises:
            ZkConsumerError: a znode does not contain an offset; the message has its path.
        """
        return self._fetch(partitions, is_before_write=False)

    def _fetch(self, partitions: Iterable[TopicPartition], *, is_before_write: bool) -> dict[TopicPartition, int]:
        """Read offset znodes into the cache. Before a write, an invalid offset counts as -1."""
        requested = list(partitions)
        paths = [self._paths.offset(partition) for partition in requested]
        offsets = {}
        for partition, path, node in zip(requested, paths, self._znodes.get_many(paths), strict=True):
            try:
                offsets[partition] = parse_offset(path, node.data if node else None)
            except ZkConsumerError as error:
                if not is_before_write:
                    raise
                self._log.warning("invalid_offset_overwritten", error=str(error))
                offsets[partition] = -1
            self._cache[partition] = (offsets[partition], node.version if node else -1)
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool = False) -> dict[TopicPartition, int]:
        """Commit offsets. Without ``rewrite_unchanged``, committed offsets are not written again (KAFKA-987).

        An offset lower than the committed one is written only with ``allow_lower`` or once after ``allow_lower_once``.

        Returns:
            The committed offset of each of these partitions, after the commit.
        """
        unknown = [partition for partition in offsets if partition not in self._cache]
        if unknown:
            self._fetch(unknown, is_before_write=True)
        pending = dict(offsets)
        while pending:
            pending = self._write(pending, allow_lower)
            self._fetch(pending, is_before_write=True)
        self._guard.reset(offsets)
        return {partition: self._cache[partition][0] for partition in offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop cached offsets of partitions that other members may commit from now on."""
        released = list(partitions)
        self._guard.reset(released)
        for partition in released:
            self._cache.pop(partition, None)

    def allow_lower_once(self, partition: TopicPartition) -> None:
        """Allow the next commit of a partition to lower its offset, because its position was reset."""
        self._guard.allow(partition)

    def close(self) -> None:
        """Do nothing: the session is not closed with the offsets."""

    def _write(self, offsets: Mapping[TopicPartition, int], allow_lower: bool) -> dict[TopicPartition, int]:
        """Write offsets; returns those whose znode has another version than the cached one."""
        writes: list[tuple[TopicPartition, int, int]] = []
        for partition, offset in offsets.items():
            committed, version = self._cache[partition]
            if offset == committed and not self._rewrite_unchanged:
                continue
            if not self._guard.permits(partition, offset, committed, allow_lower):
                continue
            writes.append((partition, offset, version))
        self._on_commit(len(writes))
        stale: dict[TopicPartition, int] = {}
        missing = [(partition, offset) for partition, offset, version in writes if version < 0]
        created = self._znodes.create_many([(self._paths.offset(p), b"%d" % o) for p, o in missing])
        for (partition, offset), is_created in zip(missing, created, strict=True):
            if is_created:
                self._cache[partition] = (offset, 0)
            else:
                stale[partition] = offset
        updates = [write for write in writes if write[2] >= 0]
        versions = self._znodes.set_many([(self._paths.offset(p), b"%d" % o, v) for p, o, v in updates])
        for (partition, offset, _), version_written in zip(updates, versions, strict=True):
            if version_written is None:
                stale[partition] = offset
            else:
                self._cache[partition] = (offset, version_written)
        return stale
