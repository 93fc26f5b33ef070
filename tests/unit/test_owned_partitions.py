"""Tests of the steps that start and stop the delivery of partitions, without servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.threads import in_thread

from zkconsumer import TopicPartition
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.rebalance.callbacks import CallbackRunner
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.owned_partitions import OwnedPartitions
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch
from zkconsumer.zookeeper.session import Event, EventKind

A, B, C = (TopicPartition("t", number) for number in range(3))


class Scene:
    """Owned partitions whose collaborators record their calls.

    Attributes:
        released: what the handler returns for revoked partitions; None while it keeps them.
        action: called in each step that waits for a server.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released: Mapping[TopicPartition, int] | None = {A: 5, B: -1}
        self.action: Callable[[], object] = lambda: None
        self.recreated: set[TopicPartition] = set()
        self.missing: set[TopicPartition] = set()
        self.session = SimpleNamespace(session_id=7, lease=SimpleNamespace(is_held=True, remaining_s=60.0))
        session: Any = self.session
        mailbox = Mailbox("closed")
        mailbox.open()
        self.membership = Membership("g", "g_c", session)
        self.membership.register(7)
        self.watch = SessionWatch(session, self.membership, mailbox)
        ownership: Any = SimpleNamespace(
            claim=lambda added: self._record("claim", added),
            release=lambda partitions: self._record("delete", partitions),
            find_missing=lambda _partitions: self.missing,
        )
        history: Any = SimpleNamespace(
            find_recreated=lambda partitions: self.recreated & set(partitions),
            find_deleted=lambda _partitions: set(),
            find_starts=self._find_starts,
            record_claims=lambda _starts: None,
            record_release=lambda recreated: self._record("recreated", recreated) if recreated else None,
        )
        committer: Any = SimpleNamespace(
            commit_released=lambda offsets: self._record("commit", offsets),
            wait_for_commits=lambda: self._record("wait", self.membership.uncertain),
            forget=lambda _partitions: None,
        )
        handler: Any = SimpleNamespace(
            release_timeout_s=60.0,
            on_partitions_assigned=lambda partitions: self._record("deliver", partitions),
            on_partitions_revoked=self._revoke,
            on_partitions_lost=lambda: self.calls.append("lost"),
        )
        callbacks = CallbackRunner(None, self.watch, timeout_s=10.0)
        self.owned = OwnedPartitions(self.watch, ownership, history, committer, handler, callbacks)

    def own(self, *partitions: TopicPartition) -> None:
        self.membership.claim(partitions)
        self.membership.confirm(dict.fromkeys(partitions, "g_c-0"))

    def expire(self) -> None:
        self.watch.mailbox.queue.put(Event(EventKind.LOST))
        self.watch.wait(10)

    def _record(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(" ".join([name, *map(str, sorted(partitions))]))
        self.action()

    def _find_starts(self, claimed: Mapping[TopicPartition, str]) -> Any:
        self._record("fetch", claimed)
        return SimpleNamespace(partitions={p: AssignedPartition(thread, 5) for p, thread in claimed.items()})

    def _revoke(self, partitions: Iterable[TopicPartition], final: bool) -> Mapping[TopicPartition, int] | None:
        self._record("final" if final else "revoke", list(partitions))
        return {} if final else self.released


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_claimed_partitions_are_delivered(scene: Scene) -> None:
    added = {A: "g_c-0", B: "g_c-0"}
    assert scene.owned.claim(added) is None
    assert (scene.membership.uncertain, scene.membership.assignment) == ({A, B}, {})
    scene.owned.start_delivery(added, {**added, C: "g_d-0"})
    assert scene.calls == ["claim t-0 t-1", "fetch t-0 t-1", "deliver t-0 t-1"]
    assert (scene.membership.uncertain, scene.membership.assignment) == (set(), added)
    assert scene.membership.group_assignment.keys() == {A, B, C}


def test_session_lost_between_claim_and_delivery_delivers_nothing(scene: Scene) -> None:
    scene.owned.claim({A: "g_c-0"})
    scene.session.session_id = 8  # while the offsets are fetched; its event is still in the queue
    with pytest.raises(SessionLostError):
        scene.owned.start_delivery({A: "g_c-0"}, {A: "g_c-0"})
    assert scene.calls == ["claim t-0", "fetch t-0"]
    assert scene.membership.uncertain == {A}


def test_claim_needs_the_session_of_the_registration(scene: Scene) -> None:
    scene.session.lease.is_held = False
    with pytest.raises(SessionLostError):
        scene.owned.claim({A: "g_c-0"})
    assert scene.calls == []


def test_released_partitions_are_committed_before_their_znodes_are_deleted(scene: Scene) -> None:
    scene.own(A, B, C)
    scene.owned.release({A, B}, time.monotonic() + 60)
    assert scene.calls == ["revoke t-0 t-1", "commit t-0", "wait t-0 t-1", "delete t-0 t-1"]
    assert scene.membership.assignment == {C: "g_c-0"}


def test_offsets_of_recreated_topics_are_not_committed(scene: Scene) -> None:
    scene.own(A)
    scene.recreated = {A}
    scene.owned.release({A}, time.monotonic() + 60)
    assert scene.calls == ["revoke t-0", "commit", "recreated t-0", "wait t-0", "delete t-0"]


def test_release_is_repeated_until_the_deadline(scene: Scene) -> None:
    scene.own(A)
    scene.released = None
    scene.owned.release({A}, time.monotonic() + 0.05)
    assert scene.calls == ["revoke t-0", "final t-0", "commit", "wait t-0", "delete t-0"]


def test_event_repeats_release_early(scene: Scene) -> None:
    scene.own(A)
    scene.released = None
    releasing = in_thread(lambda: scene.owned.release({A}, time.monotonic() + 60))
    scene.watch.mailbox.submit(lambda: setattr(scene, "released", {A: 7})).result(10)
    releasing.result(10)
    assert scene.calls == ["revoke t-0", "revoke t-0", "commit t-0", "wait t-0", "delete t-0"]


@pytest.mark.parametrize("step", ["revoke", "commit", "wait"])
def test_session_lost_during_release_ends_it(step: str, scene: Scene) -> None:
    scene.own(A, B)
    scene.action = lambda: scene.expire() if scene.calls[-1].startswith(step) else None
    with pytest.raises(SessionLostError) as raised:
        scene.owned.release({A}, time.monotonic() + 60)
    assert "delete t-0" not in scene.calls, "other members may own the partition now"

    scene.owned.lose(raised.value)
    assert scene.calls[-1] == "lost"
    assert (scene.membership.assignment, scene.membership.uncertain) == ({}, {A, B})
    scene.action = lambda: None
    scene.membership.register(7)
    scene.owned.release_uncertain({A})
    assert (scene.calls[-1], scene.membership.uncertain) == ("delete t-1", {A})


def test_failed_commit_is_repeated_without_stopping_again(scene: Scene) -> None:
    def fail() -> None:
        if scene.calls[-1] == "commit t-0":
            raise BrokerUnavailableError("x")

    scene.own(A, C)
    scene.action = fail
    with pytest.raises(BrokerUnavailableError):
        scene.owned.release({A, C}, time.monotonic() + 60)
    assert scene.membership.releasing == {A: 5, C: -1}, "the handler has no offset of partition 2"
    assert scene.membership.assignment.keys() == {A, C}
    scene.action = lambda: None
    scene.owned.release({A, C}, time.monotonic() + 60)
    assert scene.calls == ["revoke t-0 t-2", "commit t-0", "commit t-0", "wait t-0 t-2", "delete t-0 t-2"]


def test_partitions_without_znodes_are_discarded(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.own(A, B)
    scene.owned.drop_deleted()
    assert scene.calls == []
    scene.missing = {A}
    scene.owned.drop_deleted()
    assert scene.calls == ["final t-0"]
    assert "owner_znodes_deleted" in caplog.text
    assert scene.membership.assignment == {B: "g_c-0"}
