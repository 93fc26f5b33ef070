"""Commits by the driver, while another member claims a partition or an operator resets its offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from zkconsumer.broker.protocol import CommittedOffset
from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import Metrics
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.dual import DualOffsets
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.spark.driver import commits
from zkconsumer.spark.driver.commits import PartitionChangedError, _commit_higher, _CommitCheck
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.zookeeper.registry import GroupPaths
from zkconsumer.zookeeper.znodes import Write, Znode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PATHS = GroupPaths("g")
COMPLETED_AT, LATER = 100.0, 200.0
RANGES = {A: (0, 50), B: (0, 60)}


class Store:
    """The znodes and the offsets in Kafka of a group.

    Args:
        step: number of operations before ``interfere`` is called.
        interfere: changes the znodes or offsets before the next operation.
    """

    group = "g"

    def __init__(self, step: int, interfere: Callable[[Store], object]) -> None:
        self.step, self._interfere, self._operations = step, interfere, 0
        self.nodes: dict[str, Znode] = {}
        self.in_kafka: dict[TopicPartition, int] = {}
        self._zxid = 0
        self.znodes = self  # the session of ZooKeeperOffsets

    @property
    def has_interfered(self) -> bool:
        return self._operations > self.step

    def put(self, path: str, data: bytes, modified: float = LATER) -> None:
        self._zxid += 1
        before = self.nodes.get(path)
        created = self._zxid if before is None else before.created_zxid
        version = 0 if before is None else before.version + 1
        self.nodes[path] = Znode(data, version, 0, created, self._zxid, modified)

    def commit_all(self, offset: int, modified: float) -> None:
        for partition in RANGES:
            self.put(PATHS.offset(partition), b"%d" % offset, modified)
            self.in_kafka[partition] = offset

    def _advance(self) -> None:
        if self._operations == self.step:
            self._interfere(self)
        self._operations += 1

    def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        self._advance()
        return [self.nodes.get(path) for path in paths]

    def write_many(self, groups: Sequence[Sequence[Write]]) -> list[int | None]:
        self._advance()
        return [self._write(write) for [write] in groups]

    def _write(self, write: Write) -> int | None:
        node = self.nodes.get(write.path)
        if (None if node is None else node.version) != write.version:
            return None
        self.put(write.path, write.data)
        return self.nodes[write.path].version

    def fetch_offsets_and_metadata(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        self._advance()
        return {partition: CommittedOffset(self.in_kafka.get(partition, -1), "") for partition in partitions}

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int], _metadata: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ZkConsumerError]:
        self.in_kafka.update(offsets)  # not conditional: see ``commit_batch``
        return {}


def open_offsets(store: Any, storage: str) -> Offsets:
    zookeeper, kafka = ZooKeeperOffsets(store, "g"), KafkaOffsets(store)
    storages: dict[str, Offsets] = {"zookeeper": zookeeper, "kafka": kafka, "dual": DualOffsets(kafka, zookeeper)}
    return storages[storage]


def commit(store: Any, storage: str, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Commit the offsets of the batch, and repeat the commit after a retriable error, as the driver does."""
    check = _CommitCheck(store, PATHS, COMPLETED_AT, {"g_query"})
    for _ in range(3):
        try:
            owners = check.find_owners(RANGES, committed)
            return _commit_higher(open_offsets(store, storage), check, owners, RANGES, committed, False)
        except RetriableError:
            pass
    raise AssertionError("the commit did not end")


def claim(store: Store) -> None:
    """Let another member claim a partition, and commit an offset."""
    store.nodes.pop(PATHS.owner(A), None)
    store.put(PATHS.owner(A), b"g_other-0")
    store.put(PATHS.offset(A), b"70")
    store.in_kafka[A] = 70


def claim_and_release(store: Store) -> None:
    """Let another member own a partition of the query for a short time; then the query claims it again."""
    claim(store)
    store.nodes.pop(PATHS.owner(A))
    store.put(PATHS.owner(A), b"g_query-0")


def reset(store: Store) -> None:
    """Lower an offset, as an operator does."""
    store.put(PATHS.offset(A), b"5")


@pytest.mark.parametrize(("interfere", "kept"), [(claim, 70), (claim_and_release, 70), (reset, 5)])
@pytest.mark.parametrize("is_owned", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("storage", ["zookeeper", "kafka", "dual"])
def test_commit_does_not_overwrite_concurrent_change(
    storage: str, is_late: bool, is_owned: bool, interfere: Callable[[Store], object], kept: int
) -> None:
    for step in range(20):
        store = Store(step, interfere)
        store.commit_all(10, modified=LATER if is_late else COMPLETED_AT)  # late: the driver committed a batch late
        if is_owned:
            store.put(PATHS.owner(A), b"g_query-0")
        written = commit(store, storage, dict.fromkeys(RANGES, 10) if is_late else {})
        if not store.has_interfered:
            assert step > 3
            assert written == {A: 50, B: 60}
            return
        assert written.get(B, 60) == 60
        if storage != "kafka":
            assert int(store.nodes[PATHS.offset(A)].data) == kept, step
            assert int(store.nodes[PATHS.offset(B)].data) == 60, step
        if storage != "zookeeper" and kept == 70:
            assert store.in_kafka[A] == 70, step
    raise AssertionError("the commit has more operations than expected")


def test_commit_below_concurrent_offset_is_not_returned() -> None:
    def commit_more(store: Store) -> None:
        store.put(PATHS.offset(A), b"70", modified=COMPLETED_AT)

    store = Store(5, commit_more)
    store.commit_all(10, modified=COMPLETED_AT)
    assert commit(store, "zookeeper", {}) == {B: 60}
    assert store.has_interfered


@pytest.mark.parametrize(
    ("in_kafka", "in_zookeeper", "expected"),
    [(50, 10, (50, 50)), (10, 50, (50, 50)), (50, 50, (50, 50)), (10, 70, (10, 70)), (70, 10, (70, 10))],
)
def test_commit_writes_offset_that_one_storage_lacks(
    in_kafka: int, in_zookeeper: int, expected: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(-1, print)
    store.commit_all(60, modified=COMPLETED_AT)
    store.put(PATHS.offset(A), b"%d" % in_zookeeper, modified=COMPLETED_AT)
    store.in_kafka[A] = in_kafka

    assert commit(store, "dual", {}) == ({A: 50} if expected != (in_kafka, in_zookeeper) else {})
    assert (store.in_kafka[A], int(store.nodes[PATHS.offset(A)].data)) == expected
    assert "offset_commit_skipped" not in caplog.text


@pytest.mark.parametrize(("error", "failures"), [(PartitionChangedError("changed"), 0), (RetriableError("failed"), 1)])
def test_changed_partition_is_not_a_failed_commit(
    error: RetriableError, failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> dict[TopicPartition, int]:
        raise error

    caplog.set_level("DEBUG", "zkconsumer")
    monkeypatch.setattr(commits, "commit_batch", fail)
    options = SourceOptions.parse({"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t"})
    uncommitted, metrics = commits.UncommittedBatches("q", [options]), Metrics()
    uncommitted.add(0, commits.CompletedBatch(options, {}, 0.0))
    in_driver = commits.DriverCommits(metrics)
    in_driver.commit(uncommitted, 0.0)
    in_driver.join(20)

    assert uncommitted  # the next attempt commits it
    assert caplog.text.count("offset_commit_failed") == failures
    assert caplog.text.count("offset_commit_repeated") == 1 - failures
    assert metrics.meter(commits._FAILED, query="q", groupId="g").count == failures
