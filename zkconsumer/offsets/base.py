"""A group's offsets: under ``/consumers/<group>/offsets`` in ZooKeeper, in Kafka, or in both.

Source: Kafka 1.1 ZookeeperConsumerConnector.commitOffsets, commitOffsetToZooKeeper, fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.zookeeper.registry import GroupPaths, parse_offset
from zkconsumer.zookeeper.session import ZooKeeperSession


class Offsets(Protocol):
    """Where the offsets of a group are; used by one thread.

    A commit that would lower an offset is left out and logged, unless it is allowed.
    """

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 where none is stored.

        Raises:
            ZkConsumerError: it is not known; never -1 for that.
        """

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """Store offsets and return what is stored of these partitions now.

        Raises:
            ZkConsumerError: not all were stored.
        """

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is remembered of partitions that others may write from now on."""

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of a partition lower its offset: its position was reset."""

    def close(self) -> None:
        """Close what was opened."""


class _NeverBack:
    """Decides whether an offset may be written: by itself it never moves back."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._allowed: set[TopicPartition] = set()

    def allow(self, partition: TopicPartition) -> None:
        """Let the partition's offset move back."""
        self._allowed.add(partition)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Allow no more what was allowed for these."""
        self._allowed.difference_update(partitions)

    def admits(self, partition: TopicPartition, offset: int, stored: int, may_go_back: bool) -> bool:
        """Whether ``offset`` may replace ``stored``."""
        if offset >= stored:
            return True
        allowed = may_go_back or partition in self._allowed
        self._log.warning(
            "offset_goes_back" if allowed else "offset_not_moved_back",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            stored=stored,
        )
        return allowed


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
        self._session = session
        self._rewrite_unchanged = rewrite_unchanged
        self._paths = GroupPaths(group)
        self._seen: dict[TopicPartition, tuple[int, int]] = {}  # offset and znode version, -1 where missing
        self._log = get_logger("zkconsumer.offsets", group=group)
        self._never_back = _NeverBack(self._log)

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
        self._never_back.settle(offsets)
        return {partition: self._seen[partition][0] for partition in offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is remembered of partitions that others may write from now on."""
        gone = list(partitions)
        self._never_back.settle(gone)
        for partition in gone:
            self._seen.pop(partition, None)

    def allow_back(self, partition: TopicPartition) -> None:
        """Let the next commit of a partition lower its offset: its position was reset."""
        self._never_back.allow(partition)

    def close(self) -> None:
        """Nothing to close: the session is its owner's."""

    def _write(self, offsets: Mapping[TopicPartition, int], may_go_back: bool) -> dict[TopicPartition, int]:
        """Write what has to be written and return what met another version than the one seen."""
        writes: list[tuple[TopicPartition, int, int]] = []
        for partition, offset in offsets.items():
            stored, version = self._seen[partition]
            if offset == stored and not self._rewrite_unchanged:
                continue
            if not self._never_back.admits(partition, offset, stored, may_go_back):
                continue
            writes.append((partition, offset, version))
        self._on_commit(len(writes))
        refused: dict[TopicPartition, int] = {}
        missing = [(partition, offset) for partition, offset, version in writes if version < 0]
        created = self._session.create_many([(self._paths.offset(p), b"%d" % o) for p, o in missing])
        for (partition, offset), done in zip(missing, created, strict=True):
            if done:
                self._seen[partition] = (offset, 0)
            else:
                refused[partition] = offset
        updates = [write for write in writes if write[2] >= 0]
        versions = self._session.set_many([(self._paths.offset(p), b"%d" % o, v) for p, o, v in updates])
        for (partition, offset, _), written in zip(updates, versions, strict=True):
            if written is None:
                refused[partition] = offset
            else:
                self._seen[partition] = (offset, written)
        return refused


class KafkaOffsets:
    """Reads and writes offsets in Kafka, where each commit names every partition (KAFKA-1510).

    Args:
        on_commit: told how many offsets were sent.
    """

    def __init__(self, coordinator: GroupCoordinator, on_commit: Callable[[int], object] = int) -> None:
        self._coordinator = coordinator
        self._on_commit = on_commit
        self._stored: dict[TopicPartition, int] = {}
        self._never_back = _NeverBack(get_logger("zkconsumer.offsets", group=coordinator.group))

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        wanted = list(partitions)
        found = self._coordinator.fetch_offsets(wanted) if wanted else {}
        self._stored.update(found)
        return found

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        stored, refused = self.store(offsets, may_go_back=may_go_back)
        for error in refused.values():
            raise error
        return stored

    def store(
        self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Commit, and return what is stored now, and what was refused."""
        if unknown := [partition for partition in offsets if partition not in self._stored]:
            self.fetch(unknown)
        writes = {
            partition: offset
            for partition, offset in offsets.items()
            if self._never_back.admits(partition, offset, self._stored[partition], may_go_back)
        }
        self._on_commit(len(writes))
        refused = self._coordinator.commit_offsets(writes) if writes else {}
        self._stored.update({p: offset for p, offset in writes.items() if p not in refused})
        self._never_back.settle(offsets.keys() - refused.keys())
        return {p: self._stored[p] for p in offsets if p not in refused}, refused

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        gone = list(partitions)
        self._never_back.settle(gone)
        for partition in gone:
            self._stored.pop(partition, None)

    def allow_back(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._never_back.allow(partition)

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()


class DualOffsets:
    """Both: what Kafka has taken is written to ZooKeeper too, and of two offsets the later one counts.

    So members of either storage can follow each other. Source: Kafka 1.1, ``dual.commit.enabled``.
    """

    def __init__(self, kafka: KafkaOffsets, zookeeper: ZooKeeperOffsets) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        wanted = list(partitions)
        in_zookeeper = self._zookeeper.fetch(wanted)
        return {p: max(offset, in_zookeeper[p]) for p, offset in self._kafka.fetch(wanted).items()}

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """See ``Offsets``."""
        stored, refused = self._kafka.store(offsets, may_go_back=may_go_back)
        in_zookeeper = self._zookeeper.commit(stored, may_go_back=may_go_back)
        for error in refused.values():
            raise error
        return {partition: max(offset, in_zookeeper[partition]) for partition, offset in stored.items()}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Offsets``."""
        gone = list(partitions)
        self._kafka.forget(gone)
        self._zookeeper.forget(gone)

    def allow_back(self, partition: TopicPartition) -> None:
        """See ``Offsets``."""
        self._kafka.allow_back(partition)
        self._zookeeper.allow_back(partition)

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._kafka.close()


def offsets_of(
    config: ConsumerConfig,
    session: ZooKeeperSession,
    brokers: Callable[[], Sequence[Endpoint]],
    timeout: float,
    *,
    storage: str,
    dual_commit: bool,
    counter: Callable[[str], Callable[[int], object]] = lambda _: int,
) -> Offsets:
    """Return the offsets of the group of a consumer with these properties.

    Args:
        brokers: returns who may be asked for the group's coordinator.
        timeout: seconds for each of its answers.
        storage: as in ``offsets.storage``.
        dual_commit: as in ``dual.commit.enabled``.
        counter: given ``ZooKeeper`` or ``Kafka``, returns what is told how many offsets are sent there.
    """
    rewrites, count = config.offsets_commit_unchanged, counter("ZooKeeper")
    zookeeper = ZooKeeperOffsets(session, config.group_id, rewrite_unchanged=rewrites, on_commit=count)
    if storage == "zookeeper":
        return zookeeper
    assert config.client_id is not None
    coordinator = GroupCoordinator(
        config.group_id, brokers, config.client_id, timeout=timeout, security=Security.of(config)
    )
    kafka = KafkaOffsets(coordinator, on_commit=counter("Kafka"))
    return DualOffsets(kafka, zookeeper) if dual_commit else kafka
