"""ZooKeeperOffsets: a group's offsets under ``/consumers/<group>/offsets``.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.registry import GroupPaths, parse_offset
from zkconsumer.zookeeper import NodeExists, ZooKeeperSession


class ZooKeeperOffsets:
    """Reads and writes offset znodes; used by the member's thread.

    Writes name the version that was seen, so that what an operator or another owner wrote meanwhile is
    noticed. JVM members write without looking; theirs shows as a new version too.
    """

    def __init__(self, session: ZooKeeperSession, group: str) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._seen: dict[TopicPartition, tuple[int, int]] = {}  # offset and znode version, -1 where missing
        self._may_go_back: set[TopicPartition] = set()
        self._log = get_logger("zkconsumer.offsets", group=group)

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
        for partition, path, node in zip(wanted, paths, self._session.get_many(paths), strict=True):
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
        self._may_go_back -= offsets.keys()
        return {partition: self._seen[partition][0] for partition in offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is remembered of partitions that others may write from now on."""
        for partition in partitions:
            self._seen.pop(partition, None)
            self._may_go_back.discard(partition)

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of a partition lower its offset: its position was reset."""
        self._may_go_back.add(partition)

    def _write(self, offsets: Mapping[TopicPartition, int], may_go_back: bool) -> dict[TopicPartition, int]:
        """Write what has to be written and return what met another version than the one seen."""
        writes: list[tuple[TopicPartition, int, int]] = []
        for partition, offset in offsets.items():
            stored, version = self._seen[partition]
            if offset == stored:
                continue
            if offset < stored:
                allowed = may_go_back or partition in self._may_go_back
                self._log.warning(
                    "offset_goes_back" if allowed else "offset_not_moved_back",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                    stored=stored,
                )
                if not allowed:
                    continue
            writes.append((partition, offset, version))
        refused = {p: o for p, o, version in writes if version < 0 and not self._create(p, o)}
        updates = [write for write in writes if write[2] >= 0]
        versions = self._session.set_many([(self._paths.offset(p), b"%d" % o, v) for p, o, v in updates])
        for (partition, offset, _), written in zip(updates, versions, strict=True):
            if written is None:
                refused[partition] = offset
            else:
                self._seen[partition] = (offset, written)
        return refused

    def _create(self, partition: TopicPartition, offset: int) -> bool:
        try:
            self._session.create(self._paths.offset(partition), b"%d" % offset)
        except NodeExists:
            return False
        self._seen[partition] = (offset, 0)
        return True
