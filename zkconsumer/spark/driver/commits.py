"""Commits offsets of completed batches from the driver if the planning process commits them late or not at all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.topic_id import created_zxid, is_same_topic
from zkconsumer.metrics import Kind, Metrics, declare
from zkconsumer.offsets.access import open_access
from zkconsumer.offsets.base import Offsets
from zkconsumer.retry import retrying
from zkconsumer.spark.offset import BatchOffset, Ranges
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.threads import OwnedThread
from zkconsumer.zookeeper.registry import GroupPaths, consumer_of, format_offset, parse_owner
from zkconsumer.zookeeper.znodes import Znode, Znodes

_LISTENER = "zkconsumer.spark", "QueryListener"
_SUCCEEDED = declare(
    *_LISTENER, "CommitsSucceeded", Kind.METER, "query, groupId", "Successful commits by the driver listener."
)
_FAILED = declare(*_LISTENER, "CommitsFailed", Kind.METER, "query, groupId", "Failed commits by the driver listener.")


class PartitionChangedError(RetriableError):
    """A partition was claimed, released or reset during a commit. The commit did not fail; it is repeated."""


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """A completed batch of one source.

    Attributes:
        options: options of the source.
        end: offset of the batch as JSON; see ``zkconsumer.spark.offset``.
        completed_at: completion time of the batch, in seconds since the epoch.
        known: brokers that the planning process last reported; kept after that process has ended.
    """

    options: SourceOptions
    end: Mapping[str, Any]
    completed_at: float
    known: KnownBrokers = field(default_factory=KnownBrokers)


class UncommittedBatches:
    """For each source of a query, the latest batch that is completed but not committed.

    The listener thread adds batches, and the ``DriverCommits`` threads take them.

    Args:
        query: name or id of the query.
        sources: options of the query's sources.

    Attributes:
        groups: ``zookeeper.connect`` and ``group.id`` of the sources.
        consumer_ids: current and previous consumer ids of the query, with the indexes of their sources. The listener
            thread adds them.
        committed: offsets that the driver committed, by partition. Only one thread at a time updates them.
        commit_counts: number of batches that the planning processes or the driver committed, by source index,
            including batches that a later one replaced.
    """

    def __init__(self, query: str, sources: Iterable[SourceOptions]) -> None:
        self.query = query
        self.groups = {(source.consumer.zookeeper_connect, source.consumer.group_id) for source in sources}
        self.consumer_ids: dict[str, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.commit_counts: Counter[int] = Counter()
        self._batches: dict[int, CompletedBatch] = {}
        self._taken: dict[int, CompletedBatch] = {}  # ``DriverCommits`` deletes batches that it committed
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether there are batches, including those that were taken and are being committed."""
        with self._lock:
            return bool(self._batches or self._taken)

    @property
    def waiting(self) -> dict[int, str]:
        """The sources that have a batch, including those that were taken, with their ``group.id``."""
        with self._lock:
            return {source: batch.options.consumer.group_id for source, batch in (self._taken | self._batches).items()}

    def count_commit(self, source: int) -> None:
        """Record that a batch of a source was committed."""
        with self._lock:
            self.commit_counts[source] += 1

    def add(self, source: int, batch: CompletedBatch) -> None:
        """Add a batch, which replaces an earlier batch of the same source.

        Args:
            source: index of the source in the query.
        """
        with self._lock:
            self._batches[source] = batch

    def take(self) -> dict[int, CompletedBatch]:
        """Remove and return all batches. The caller deletes the batches that it commits, and puts back the others."""
        with self._lock:
            batches, self._batches = self._batches, {}
            self._taken = batches
        return batches

    def remove(self, source: int, batch: CompletedBatch) -> None:
        """Remove a batch that the planning process committed, unless a later one was added."""
        with self._lock:
            if self._batches.get(source) is batch:
                del self._batches[source]

    def put_back(self, batches: Mapping[int, CompletedBatch]) -> None:
        """Put back batches that could not be committed, unless a later batch of the same source was added."""
        with self._lock:
            self._batches, self._taken = {**batches, **self._batches}, {}


class DriverCommits:
    """Commits offsets in background threads of the driver, so that the listener thread does not wait for ZooKeeper.

    Commits for the same group run sequentially.

    Used by the listener thread.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = get_logger("zkconsumer.spark")
        self._threads: dict[OwnedThread, set[tuple[str, str]]] = {}  # thread -> groups for which it commits

    def is_committing(self, uncommitted: UncommittedBatches) -> bool:
        """Return whether a thread is committing offsets for one of the query's groups."""
        return bool(self._threads_of(uncommitted))

    def commit(self, uncommitted: UncommittedBatches, timeout_s: float) -> None:
        """Commit the batches of a query in a new thread, which first waits for unfinished commits for the same groups.

        Args:
            timeout_s: maximum seconds to retry while ZooKeeper or the brokers are unreachable.
        """
        earlier = self._threads_of(uncommitted)
        if not (uncommitted or earlier):
            return

        def run() -> None:
            for thread in earlier:
                thread.join(threading.TIMEOUT_MAX)
            batches = uncommitted.take()
            try:
                self._commit_all(uncommitted, batches, timeout_s)
            finally:
                uncommitted.put_back(batches)

        thread = OwnedThread(run, f"zkconsumer-commit-{uncommitted.query}", partial(self._log_crash, uncommitted.query))
        self._threads[thread] = uncommitted.groups
        thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` seconds for all threads to end."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _log_crash(self, query: str, error: BaseException) -> None:
        self._log.error("offset_commit_failed", query=query, exc_info=error)

    def _threads_of(self, uncommitted: UncommittedBatches) -> list[OwnedThread]:
        self._threads = {thread: groups for thread, groups in self._threads.items() if thread.is_alive}
        return [thread for thread, groups in self._threads.items() if groups & uncommitted.groups]

    def _commit_all(
        self, uncommitted: UncommittedBatches, batches: dict[int, CompletedBatch], timeout_s: float
    ) -> None:
        """Commit the batches, and remove successfully committed ones from ``batches``."""
        for source, batch in list(batches.items()):
            group = batch.options.consumer.group_id
            tags = {"query": uncommitted.query, "groupId": group}
            try:
                committed = retrying(timeout_s)(commit_batch, batch, uncommitted.consumer_ids, uncommitted.committed)
            except PartitionChangedError as error:
                self._log.debug("offset_commit_repeated", query=uncommitted.query, group=group, error=str(error))
                continue
            except ZkConsumerError as error:
                self._metrics.meter(_FAILED, **tags).mark()
                self._log.warning("offset_commit_failed", query=uncommitted.query, group=group, error=str(error))
                continue
            del batches[source]
            uncommitted.count_commit(source)
            uncommitted.committed.update(committed)
            if committed:
                self._metrics.meter(_SUCCEEDED, **tags).mark()
                offsets = {str(partition): offset for partition, offset in sorted(committed.items())}
                self._log.info("offsets_committed", query=uncommitted.query, group=group, offsets=offsets)


def commit_batch(
    batch: CompletedBatch, consumer_ids: Collection[str], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit those offsets of a batch that are higher than the group's committed offsets.

    Skips partitions that another member owns, partitions of re-created topics, and partitions whose offset znode was
    modified after the batch was completed, for example by an offset reset. With ``resumeFrom=group``, also skips
    partitions whose committed offset is below the start of the batch: that offset may have been set before a restart to
    make the query resume from it.

    Owners and offset znodes are checked again immediately before each write. A write to ZooKeeper is also conditional
    on the version of the offset znode. Kafka has no conditional commits: a commit by a member that claims a partition
    after the last check, or that owns it only between the two checks, is not detected.

    Args:
        consumer_ids: consumer ids of the query.
        committed: offsets that the driver previously committed for the query, so that its own commits are not mistaken
            for offset resets.

    Returns:
        The committed offsets.

    Raises:
        RetriableError: ZooKeeper or the brokers did not respond.
        PartitionChangedError: a partition was claimed, released or reset during the call.
    """
    config, end = batch.options.consumer, BatchOffset.from_json(batch.end)
    connecting = Connecting.from_config(config).with_timeout(config.zookeeper_connection_timeout_s)
    with open_access(config, connecting, known=batch.known) as access:
        offsets = access.offsets(
            config.offsets_storage, dual_commit=config.dual_commit_enabled, topic_ids=lambda: end.topic_ids
        )
        check = _CommitCheck(access.session.znodes, GroupPaths(config.group_id), batch.completed_at, consumer_ids)
        owners = check.find_owners(end.ranges, committed)
        partitions = _drop_recreated(access.cluster, list(owners), end.topic_ids)
        is_reset_kept = batch.options.starting_offsets.restart == "group"
        return _commit_higher(offsets, check, {p: owners[p] for p in partitions}, end.ranges, committed, is_reset_kept)


def _commit_higher(
    offsets: Offsets,
    check: _CommitCheck,
    owners: Mapping[TopicPartition, int | None],
    ranges: Ranges,
    committed: Mapping[TopicPartition, int],
    is_reset_kept: bool,
) -> dict[TopicPartition, int]:
    """Commit the end offsets of ``ranges`` that are higher than the committed offsets; see ``commit_batch``.

    With two storages, an earlier attempt may have written to only one of them. An offset that either storage lacks is
    therefore committed, unless the other storage contains a higher offset.

    Args:
        owners: the partitions that may be committed; see ``_CommitCheck.find_owners``.
        is_reset_kept: whether to skip partitions whose committed offset is below the start of their range.
    """
    stored = offsets.fetch(owners)
    partitions = list(owners)
    if is_reset_kept:
        partitions = [p for p in partitions if stored[p] >= ranges[p][0] or stored[p] == committed.get(p)]
    ends = {p: ranges[p][1] for p in partitions}
    higher = {p: end for p, end in ends.items() if stored[p] <= end and offsets.lacks(p, end)}

    def check_again() -> None:
        found = check.find_owners(higher, committed, higher)
        changed = sorted(p for p in higher if p not in found or found[p] != owners[p])
        if changed:
            raise PartitionChangedError(
                f"partition {changed[0]} was claimed or released, or its offset was written, while its offset was "
                "being committed"
            )

    written = offsets.commit(higher, before_write=check_again)
    return {p: offset for p, offset in higher.items() if written[p] == offset}


@dataclass(frozen=True, slots=True)
class _CommitCheck:
    """Checks which partitions the driver may commit after a batch.

    Attributes:
        znodes: znode operations.
        paths: znode paths of the group.
        completed_at: completion time of the batch, in seconds since the epoch.
        consumer_ids: consumer ids of the query.
    """

    znodes: Znodes
    paths: GroupPaths
    completed_at: float
    consumer_ids: Collection[str]

    def find_owners(
        self, partitions: Iterable[TopicPartition], *own: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the partitions that may be committed, with the ``created_zxid`` of their owner znodes.

        These are partitions without an owner, whose zxid is None, and those that the query owns, except partitions
        whose offset znode was modified by another process after the batch was completed. A znode that contains one of
        the ``own`` offsets was modified by the driver. Owners are read last.
        """
        wanted = list(partitions)
        offsets = self.znodes.get_many([self.paths.offset(partition) for partition in wanted])
        owners = self.znodes.get_many([self.paths.owner(partition) for partition in wanted])

        def is_own(partition: TopicPartition, node: Znode) -> bool:
            return node.data in [format_offset(offsets[partition]) for offsets in own if partition in offsets]

        return {
            partition: None if owner is None else owner.created_zxid
            for partition, offset, owner in zip(wanted, offsets, owners, strict=True)
            if (offset is None or offset.modified <= self.completed_at or is_own(partition, offset))
            and (owner is None or consumer_of(parse_owner(owner.data)) in self.consumer_ids)
        }


def _drop_recreated(
    cluster: Cluster, partitions: list[TopicPartition], topic_ids: Mapping[str, str]
) -> list[TopicPartition]:
    """Return the partitions whose topic has not been re-created since the batch was planned.

    Only ids with a zxid are checked here. Other topic ids are stored with the committed offset, and checked when it is
    fetched.
    """
    topics = {partition.topic for partition in partitions}
    checked = sorted(topic for topic in topics if created_zxid(topic_ids.get(topic, "")) is not None)
    existing = cluster.look_up_topic_ids(checked).ids if checked else {}
    return [p for p in partitions if is_same_topic(topic_ids.get(p.topic, ""), existing.get(p.topic, ""))]
