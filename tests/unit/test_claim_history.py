"""Tests of the start of claimed partitions: re-created topics, and partitions that are new."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.rebalance.claim_history import ClaimHistory

A, B, C = (TopicPartition("t", number) for number in range(3))


class Committer:
    """Committed offsets in memory; records what may decrease and what is forgotten."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.may_decrease: list[TopicPartition] = []
        self.forgotten: set[TopicPartition] = set()

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.committed.get(partition, -1) for partition in partitions}

    def allow_lower_once(self, partition: TopicPartition) -> None:
        self.may_decrease.append(partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        self.forgotten |= set(partitions)


class Scene:
    """A history, and the cluster, the membership and the offsets that it reads."""

    def __init__(self, new_partitions: str) -> None:
        self.topic_ids = {"t": "id-first"}
        self.committer = Committer()
        self.membership = SimpleNamespace(group="g", consumer_id="g_c", assignment={}, group_assignment={})
        config = ConsumerConfig.from_dict(
            {"zookeeper.connect": "z", "group.id": "g", "auto.offset.reset.new.partitions": new_partitions}
        )
        cluster: Any = SimpleNamespace(topic_ids=self.topic_ids)
        membership: Any = self.membership
        committer: Any = self.committer
        self.history = ClaimHistory(config, cluster, membership, committer)

    def starts(self, *partitions: TopicPartition) -> dict[TopicPartition, tuple[int, bool]]:
        """AssignedPartition partitions; returns the offset of each, and whether it is new."""
        found = self.history.find_starts(dict.fromkeys(partitions, "g_c-0"))
        self.history.record_claims(found)
        return {partition: (claim.offset, claim.is_new) for partition, claim in found.partitions.items()}


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(getattr(request, "param", "inherit"))


def test_partitions_start_at_committed_offsets(scene: Scene) -> None:
    scene.committer.committed = {A: 5}
    assert scene.starts(A, B) == {A: (5, False), B: (-1, False)}
    assert scene.committer.may_decrease == []


def test_partition_of_recreated_topic_starts_at_beginning(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.committer.committed = {A: 5, B: OF_DELETED_TOPIC}
    assert scene.starts(B) == {B: (-1, True)}
    assert "topic_recreated" in caplog.text
    assert scene.starts(A) == {A: (5, False)}

    scene.topic_ids["t"] = "id-second"
    assert scene.history.find_recreated([A, B]) == {A, B}
    scene.history.record_release({A})
    assert scene.starts(A) == {A: (-1, True)}
    assert scene.history.find_recreated([A]) == set()
    assert scene.committer.may_decrease == [B, A]


def test_recreated_partition_of_other_member_keeps_its_offset(scene: Scene) -> None:
    """The other member has read it since then."""
    scene.committer.committed = {A: 5}
    scene.starts(A)
    scene.history.record_release({A})
    scene.history.forget_unassigned({B})
    assert scene.starts(A) == {A: (5, False)}


def test_completed_rebalance_forgets_recreated_partitions(scene: Scene) -> None:
    scene.committer.committed = {A: 5}
    scene.starts(A)
    scene.history.record_release({A})
    scene.history.record_rebalance({A: "g_c-0"})
    assert scene.starts(A) == {A: (5, False)}


def test_offset_that_brokers_deleted_shows_recreated_topic(scene: Scene) -> None:
    scene.committer.committed = {A: 5, C: 5}
    scene.starts(A, C)
    scene.topic_ids["t"], scene.committer.committed = "id-second", {C: 0}
    assert scene.starts(A, B, C) == {A: (-1, True), B: (-1, False), C: (0, False)}, "offset 0 was committed since then"


def test_partitions_of_deleted_topics_are_found(scene: Scene) -> None:
    del scene.topic_ids["t"]
    assert scene.history.find_deleted([A, B]) == {A, B}


@pytest.mark.parametrize("scene", ["smallest"], indirect=True)
def test_new_partitions_are_read_from_beginning(scene: Scene) -> None:
    assert scene.starts(A) == {A: (-1, False)}, "every partition is new to a new member"
    scene.history.record_rebalance({A: "g_c-0"})
    scene.committer.committed = {C: 0}
    assert scene.starts(A, B, C) == {A: (-1, False), B: (-1, True), C: (0, False)}


@pytest.mark.parametrize("scene", ["smallest"], indirect=True)
def test_partition_without_offset_is_new_if_others_have_one(scene: Scene) -> None:
    scene.committer.committed = {B: 0}
    scene.membership.group_assignment = dict.fromkeys([A, B, C], "g_c-0")
    scene.membership.assignment = {C: "g_c-0"}
    assert scene.starts(A) == {A: (-1, True)}
    assert scene.committer.forgotten == {B}, "offsets of partitions that other members commit are not cached"
