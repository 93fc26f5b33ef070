"""Commits that are in progress while their partitions are released, lost or switched, with a slow storage."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.group_members import IdleHandler, commit, switch

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.errors import OwnershipLostError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.rebalance.broker_requests import BrokerRequestThread
from zkconsumer.rebalance.callbacks import CallbackRunner
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.owned_partitions import OwnedPartitions
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch
from zkconsumer.zookeeper.registry import GroupPaths
from zkconsumer.zookeeper.znodes import Write, Znode

A = TopicPartition("t", 0)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
PATHS = GroupPaths("g")
CONFIG = ConsumerConfig.from_dict(
    {
        "zookeeper.connect": "z:1",
        "group.id": "g",
        "offsets.channel.socket.timeout.ms": 2000,
        "offsets.channel.backoff.ms": 1,
    }
)


class Ensemble:
    """Versioned offset znodes and the owners of partitions, shared with the other members of the group.

    Attributes:
        before_read, before_write: called before each read and write of the member, which may wait there.
        rivals: highest offset that another member committed, by partition, while this member does not own it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.znodes: dict[str, tuple[int, int]] = {}  # offset and version
        self.owned: set[TopicPartition] = set()
        self.rivals: dict[TopicPartition, int] = {}
        self.before_read: Callable[[], object] = lambda: None
        self.before_write: Callable[[], object] = lambda: None
        self.faults: list[str] = []

    def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        self.before_read()
        with self.lock:
            found = [self.znodes.get(path) for path in paths]
            return [one and Znode(b"%d" % one[0], one[1], 0, 1, 1, 0.0) for one in found]

    def write_many(self, groups: Sequence[Sequence[Write]]) -> list[int | None]:
        self.before_write()
        with self.lock:
            return [self._write(write) for [write] in groups]

    def _write(self, write: Write) -> int | None:
        current = self.znodes.get(write.path)
        if (current[1] if current else None) != write.version:
            return None
        version = 0 if current is None else current[1] + 1
        offset = int(write.data)
        [partition] = [p for p in PARTITIONS if PATHS.offset(p) == write.path]
        if offset < self.rivals.get(partition, -1):
            self.faults.append(f"{offset} replaced the next owner's {self.rivals[partition]} of {partition}")
        self.znodes[write.path] = (offset, version)
        return version

    def claim(self, partition: TopicPartition) -> None:
        with self.lock:
            self.owned.add(partition)
            self.rivals.pop(partition, None)

    def pass_on(self, partitions: Iterable[TopicPartition], offset: int) -> None:
        """Let another member claim the partitions, and commit the offset for each."""
        with self.lock:
            for partition in partitions:
                self.owned.discard(partition)
                self.rivals[partition] = offset
                _, version = self.znodes.get(PATHS.offset(partition), (-1, -1))
                self.znodes[PATHS.offset(partition)] = (offset, version + 1)


class Scene:
    """A member that owns partitions; the test is its member thread."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.session: Any = SimpleNamespace(
            session_id=1,
            lease=SimpleNamespace(is_held=True, remaining_s=100.0),
            not_connected_error=lambda: ZooKeeperUnavailableError("not connected"),
            znodes=self.ensemble,
        )
        self.offset = 0
        mailbox = Mailbox("closed")
        mailbox.open()
        session: Any = self.session
        self.membership = Membership("g", "g_c", session)
        self.membership.register(1)
        self.watch = SessionWatch(session, self.membership, mailbox)
        handler = IdleHandler()
        self.storages: list[SlowOffsets] = []
        self.committer = OffsetCommitter(
            CONFIG,
            self.membership,
            self._open_offsets,
            handler,
            BrokerRequestThread("test-requests", self.watch),
            interval_s=None,
        )
        ownership = SimpleNamespace(release=lambda partitions: self.ensemble.pass_on(partitions, self.next_offset()))
        history = SimpleNamespace(
            find_recreated=lambda _: set(), find_deleted=lambda _: set(), record_release=lambda _: None
        )
        self.partitions = OwnedPartitions(
            self.watch,
            cast("Any", ownership),
            cast("Any", history),
            self.committer,
            handler,
            CallbackRunner(None, self.watch, timeout_s=10.0),
        )
        self.committer.start()

    def _open_offsets(self, *_storage: object) -> SlowOffsets:
        self.storages.append(SlowOffsets(self.session, "g"))
        return self.storages[-1]

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    def own(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.membership.claim([partition])
            self.ensemble.claim(partition)
            self.committer.fetch([partition])
            self.membership.confirm({partition: "g_c-0"})

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.release(frozenset(partitions), time.monotonic() + 1)

    def expire(self) -> None:
        """Let the session end, and other members claim all partitions, before the member notices."""
        owned = list(self.membership.assignment)
        self.session.session_id += 1
        self.ensemble.pass_on(owned, self.next_offset())

    def rejoin(self) -> None:
        self.partitions.lose(SessionLostError("session_expired"))
        self.membership.register(self.session.session_id)

    def close(self) -> None:
        self.committer.close()
        self.committer.join()


class SlowOffsets(ZooKeeperOffsets):
    """Offset znodes that record whether they were closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.ensemble.before_read = made.ensemble.before_write = lambda: None
    made.close()


class Gate:
    """Blocks its callers until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(10)


@pytest.mark.parametrize("consumed", [-1, 5], ids=["nothing to commit", "consumed"])
def test_release_waits_for_commits_in_progress(consumed: int, scene: Scene) -> None:
    """With auto-commit off, or if nothing was consumed, the release itself commits nothing."""
    scene.own(A)
    scene.partitions._handler.on_partitions_revoked = lambda *_: {A: consumed}  # type: ignore[method-assign]
    scene.ensemble.before_write = gate = Gate()
    committing = commit(scene.committer, {A: 0}, allow_lower=True)
    assert gate.reached.wait(10)
    threading.Timer(0.1, gate.opened.set).start()
    scene.release([A])
    assert committing.done()
    assert committing.result() == {A: 0}
    assert scene.ensemble.faults == []


def test_commit_requested_during_release_is_rejected(scene: Scene) -> None:
    """The commit arrives after the last one that the release waits for, and before the znode is deleted."""
    scene.own(A)
    late: list[Future[dict[TopicPartition, int]] | ZkConsumerError] = []

    def commit_late() -> None:
        try:
            late.append(commit(scene.committer, {A: 7}))
        except ZkConsumerError as error:
            late.append(error)

    wait = scene.committer.wait_for_commits

    def wait_for_commits() -> None:
        commit_late()
        wait()

    scene.committer.wait_for_commits = wait_for_commits  # type: ignore[method-assign]
    scene.release([A])
    assert [type(result) for result in late] == [OwnershipLostError]
    assert scene.ensemble.faults == []


@pytest.mark.parametrize("way", ["lose", "drop"])
def test_repeated_write_keeps_offset_of_next_owner(way: str, scene: Scene) -> None:
    scene.own(A)
    scene.ensemble.before_write = gate = Gate()
    committing = commit(scene.committer, {A: 0}, allow_lower=True)
    assert gate.reached.wait(10)
    if way == "lose":
        scene.expire()
        scene.rejoin()
    else:
        scene.ensemble.pass_on([A], scene.next_offset())
        scene.membership.drop([A])
    gate.opened.set()
    with pytest.raises(OwnershipLostError):
        committing.result(10)
    assert scene.ensemble.znodes == {PATHS.offset(A): (1, 0)}


def test_switch_during_session_loss_writes_nothing(scene: Scene) -> None:
    scene.own(A)
    commit(scene.committer, {A: 5}).result(10)
    scene.ensemble.before_read = gate = Gate()
    switched = switch(scene.committer)
    assert gate.reached.wait(10)
    scene.offset = 8
    scene.expire()
    gate.opened.set()
    with pytest.raises(OwnershipLostError):
        switched.result(10)
    assert scene.ensemble.faults == []
    assert [storage.is_closed for storage in scene.storages] == [False, True]


def test_close_during_switch_closes_both_storages(scene: Scene) -> None:
    scene.own(A)
    scene.ensemble.before_read = gate = Gate()
    switch(scene.committer)
    assert gate.reached.wait(10)
    scene.committer.close()
    assert [storage.is_closed for storage in scene.storages] == [True, True]
    gate.opened.set()


def test_permission_to_lower_ends_with_ownership(scene: Scene) -> None:
    scene.own(A)
    scene.offset = 10
    scene.expire()
    scene.rejoin()
    scene.committer.allow_lower_once(A)  # requested while the partition was owned, for example by a stream
    scene.own(A)
    assert commit(scene.committer, {A: 4}).result(10) == {A: 11}


def test_failed_commit_does_not_repeat_permission_to_lower(scene: Scene) -> None:
    """The offset of one partition is lowered; that of another one is not written, because it was released."""
    b = PARTITIONS[1]
    scene.own(A, b)
    commit(scene.committer, {A: 220, b: 5}).result(10)
    scene.committer.allow_lower_once(A)

    def release() -> None:
        scene.ensemble.before_write = lambda: None
        scene.ensemble.pass_on([b], 7)
        scene.membership.drop([b])

    scene.ensemble.before_write = release
    with pytest.raises(OwnershipLostError):
        commit(scene.committer, {A: 6, b: 6}).result(10)

    assert commit(scene.committer, {A: 4}).result(10) == {A: 6}


@pytest.mark.parametrize("end", ["raised again", "caught up", "reached", "released"])
def test_skipped_commit_is_logged_once(scene: Scene, end: str, caplog: pytest.LogCaptureFixture) -> None:
    """An operator may raise an offset; until the consumer has caught up, each of its commits is skipped."""

    def skipped() -> int:
        return caplog.text.count("offset_commit_skipped")

    scene.own(A)
    commit(scene.committer, {A: 9}).result(10)
    for offset in (4, 5, 6):
        assert commit(scene.committer, {A: offset}).result(10) == {A: 9}
    assert skipped() == 1

    if end == "raised again":
        scene.ensemble.znodes[PATHS.offset(A)] = (20, 7)
        assert commit(scene.committer, {A: 10}).result(10) == {A: 20}
    elif end == "caught up":
        commit(scene.committer, {A: 10}).result(10)
    elif end == "reached":
        commit(scene.committer, {A: 10}).result(10)
        commit(scene.committer, {A: 9}, allow_lower=True).result(10)
    else:
        scene.committer.forget([A])
    commit(scene.committer, {A: 0}).result(10)
    assert skipped() == 2


def test_no_schedule_replaces_offset_of_next_owner(record_property: Callable[[str, object], None]) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    deadline = time.monotonic() + 2.0
    rounds = 0
    while time.monotonic() < deadline and rounds < 200:
        rounds += 1
        _run_schedule(random.Random(seed + rounds), f"seed {seed + rounds}")


def _run_schedule(rng: random.Random, label: str) -> None:
    scene = Scene()
    pauses = random.Random(rng.random())

    def pause() -> None:
        time.sleep(pauses.choice([0.0, 0.0, 0.0005, 0.002]))

    scene.ensemble.before_read = scene.ensemble.before_write = pause
    commits: list[Future[dict[TopicPartition, int]]] = []
    try:
        scene.own(*PARTITIONS)
        for _ in range(rng.randrange(5, 25)):
            _step(scene, rng, commits)
        scene.ensemble.before_read = scene.ensemble.before_write = lambda: None
        for result in commits:
            assert isinstance(result.exception(10), ZkConsumerError | None), label
    finally:
        scene.close()
    assert scene.ensemble.faults == [], label


def _step(scene: Scene, rng: random.Random, commits: list[Future[dict[TopicPartition, int]]]) -> None:
    owned = sorted(scene.membership.assignment)
    chosen = rng.sample(PARTITIONS, rng.randint(1, len(PARTITIONS)))
    step = rng.choice(["commit", "commit", "commit", "release", "own", "expire", "drop", "switch", "reset"])
    mine = [partition for partition in chosen if partition in owned]
    if step == "commit" and mine:
        # Offsets from before the partitions were passed on: a late write would be lower than that of the next owner.
        offsets: Mapping[TopicPartition, int] = {p: rng.randint(0, scene.next_offset()) for p in mine}
        commits.append(commit(scene.committer, offsets, allow_lower=rng.random() < 0.7))
    elif step == "release" and mine:
        scene.release(mine)
    elif step == "own":
        scene.own(*(partition for partition in chosen if partition not in owned))
    elif step == "expire":
        scene.expire()
        scene.rejoin()
    elif step == "drop" and mine:
        scene.ensemble.pass_on(mine, scene.next_offset())
        scene.membership.drop(mine)
        scene.committer.forget(mine)
    elif step == "switch":
        commits.append(switch(scene.committer))
    elif step == "reset" and mine:
        scene.committer.allow_lower_once(mine[0])
