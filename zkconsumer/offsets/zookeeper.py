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
    """Reads and writes offset znodes.

    Writes name the version that was seen, so that what an operator or another owner wrote meanwhile is
    noticed. JVM members write without looking; theirs shows as a new version too.

    Args:
        rewrite_unchanged: write also what is stored already, so that monitors see a live group by the znodes' age.
        on_commit: told how many offsets were sent.
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
        self._seen: dict[TopicPartition, tuple[int, int]] = {}  # offset and znode version, -1 where missing
        self._log = get_logger("zkconsumer.offsets", group=group)
        self._guard = LowerOffsetGuard(self._log)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 where none is stored.

        Raises:
            ZkConsumerError: a znode holds something else; names its path.
        """
        return self._fetch(partitions, overwrite=False)

    def _fetch(self, partitions: Iterable[TopicPartition], *, overwrite: bool) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        paths = [self._paths.offset(partition) for partition in wanted]
        found = {}
        for partition, path, node in zip(wanted, paths, self._znodes.get_many(paths), strict=True):
            try:
                found[partition] = parse_offset(path, node.data if node else None)
            except ZkConsumerError as error:
                if not overwrite:
                    raise
                self._log.warning("offset_overwritten", error=str(error))  # the owner knows better
                found[partition] = -1
            self._seen[partition] = (found[partition], node.version if node else -1)
        return found

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """Store offsets; those that are stored already are not written again (KAFKA-987).

        A lower offset than the stored one is written only with ``may_go_back`` or once after ``allow_back``,
        and logged.

        Returns:
            what the znodes of these partitions hold now.
        """
        unknown = [partition for partition in offsets if partition not in self._seen]
        if unknown:
            self._fetch(unknown, overwrite=True)
        pending = dict(offsets)
        while pending:
            pending = self._write(pending, may_go_back)
            self._fetch(pending, overwrite=True)
        self._guard.settle(offsets)
        return {partition: self._seen[partition][0] for partition in offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is remembered of partitions that others may write from now on."""
        gone = list(partitions)
        self._guard.settle(gone)
        for partition in gone:
            self._seen.pop(partition, None)

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of a partition lower its offset: its position was reset."""
        self._guard.allow(partition)

    def close(self) -> None:
        """Nothing to close: the session is its owner's."""

    def _write(self, offsets: Mapping[TopicPartition, int], may_go_back: bool) -> dict[TopicPartition, int]:
        """Write what has to be written and return what met another version than the one seen."""
        writes: list[tuple[TopicPartition, int, int]] = []
        for partition, offset in offsets.items():
            stored, version = self._seen[partition]
            if offset == stored and not self._rewrite_unchanged:
                continue
            if not self._guard.admits(partition, offset, stored, may_go_back):
                continue
            writes.append((partition, offset, version))
        self._on_commit(len(writes))
        refused: dict[TopicPartition, int] = {}
        missing = [(partition, offset) for partition, offset, version in writes if version < 0]
        created = self._znodes.create_many([(self._paths.offset(p), b"%d" % o) for p, o in missing])
        for (partition, offset), done in zip(missing, created, strict=True):
            if done:
                self._seen[partition] = (offset, 0)
            else:
                refused[partition] = offset
        updates = [write for write in writes if write[2] >= 0]
        versions = self._znodes.set_many([(self._paths.offset(p), b"%d" % o, v) for p, o, v in updates])
        for (partition, offset, _), written in zip(updates, versions, strict=True):
            if written is None:
                refused[partition] = offset
            else:
                self._seen[partition] = (offset, written)
        return refused
