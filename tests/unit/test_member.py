"""Tests of the commits of a group member, also if the application no longer waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.group_members import IdleHandler, unregistered_watch
from helpers.threads import in_thread

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.errors import ZooKeeperUnavailableError
from zkconsumer.rebalance.broker_requests import BrokerRequestThread
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.member import GroupMember

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ConsumerConfig.from_dict({"zookeeper.connect": "z:1", "group.id": "g"})


class SlowStorage:
    """Offsets in memory; a commit waits for ``allowed``."""

    def __init__(self) -> None:
        self.calls: list[dict[TopicPartition, int]] = []
        self.is_running, self.allowed = threading.Event(), threading.Event()

    def commit(self, offsets: Mapping[TopicPartition, int], **_options: object) -> dict[TopicPartition, int]:
        self.calls.append(dict(offsets))
        self.is_running.set()
        assert self.allowed.wait(10)
        return dict(offsets)

    def close(self) -> None:
        pass


class Scene:
    """A member whose partitions do not change; the test is its member thread."""

    def __init__(self) -> None:
        self.storage = SlowStorage()
        self.watch = unregistered_watch()
        membership = cast("Any", self.watch.membership)
        membership.assignment = {A: "g_c-0", B: "g_c-0"}
        membership.check_session = lambda: None
        handler = IdleHandler()
        requests = BrokerRequestThread("test-requests", self.watch)
        self.committer = OffsetCommitter(
            CONFIG, self.watch.membership, lambda *_: cast("Any", self.storage), handler, requests, interval_s=None
        )
        others: Any = SimpleNamespace(cluster=None, attempts=None)
        self.member = GroupMember(CONFIG, self.watch, others, self.committer, others, handler)
        self.committer.start()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.storage.allowed.set()
    made.committer.close()
    made.committer.join()


def test_timed_out_commit_keeps_merged_commits(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[dict[TopicPartition, int]] = []
    first = in_thread(lambda: scene.member.commit({A: 1}))
    scene.watch.mailbox.process(10)
    assert scene.storage.is_running.wait(10)

    late = in_thread(lambda: scene.member.commit({A: 2}, timeout_s=0.5, on_committed=seen.append))
    scene.watch.mailbox.process(10)
    with pytest.raises(ZooKeeperUnavailableError, match="could not commit offsets within"):
        late.result(10)
    merged = in_thread(lambda: scene.member.commit({B: 3}))
    scene.watch.mailbox.process(10)
    scene.storage.allowed.set()

    assert first.result(10) == {A: 1}
    assert merged.result(10) == {B: 3}
    assert scene.storage.calls == [{A: 1}, {A: 2, B: 3}]
    assert seen == [{A: 2}]
    assert caplog.text == ""


def test_commit_that_times_out_in_mailbox_is_discarded(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    evaluated: list[bool] = []

    def offsets() -> dict[TopicPartition, int]:
        evaluated.append(True)
        return {A: 1}

    with pytest.raises(ZooKeeperUnavailableError, match="could not commit offsets within"):
        scene.member.commit(offsets, timeout_s=0.01)
    scene.watch.mailbox.process(0)
    assert (evaluated, scene.storage.calls, caplog.text) == ([], [], "")


def test_error_of_offset_function_reaches_application(scene: Scene) -> None:
    def fail() -> dict[TopicPartition, int]:
        raise KeyError("x")

    commit = in_thread(lambda: scene.member.commit(fail))
    scene.watch.mailbox.process(10)
    with pytest.raises(KeyError):
        commit.result(10)
