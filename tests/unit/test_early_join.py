"""A member that joins before the checkpoint is known: its partitions, its errors and its end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from helpers.batch_offsets import offset_json

from zkconsumer import TopicPartition
from zkconsumer.errors import ClosedError, ConfigurationError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.early_join import EarlyJoin
from zkconsumer.spark.planning.factory import create_planner
from zkconsumer.spark.planning.partition_state import PartitionState
from zkconsumer.spark.planning.query_member import QueryMember

OPTIONS = SourceOptions.parse(
    {
        "group.id": "g",
        "zookeeper.connect": "127.0.0.1:1",
        "subscribe": "t",
        "zookeeper.connection.timeout.ms": "100",
        "clusterUnavailableTimeout": "200ms",
    }
)
PARTITIONS = [TopicPartition("t", number) for number in range(4)]


def claims(*partitions: TopicPartition, offset: int = 7) -> dict[TopicPartition, AssignedPartition]:
    return {partition: AssignedPartition("x-0", offset) for partition in partitions}


@pytest.mark.parametrize("seen", [INITIAL, offset_json({PARTITIONS[0]: (3, 9), PARTITIONS[1]: (0, 2)})])
@pytest.mark.parametrize("seed", range(20))
def test_early_and_late_members_get_same_partitions(seed: int, seen: dict[str, Any]) -> None:
    rng = random.Random(seed)
    early = QueryMember(OPTIONS, None)
    owned: set[TopicPartition] = set()
    for _ in range(10):
        some = set(rng.sample(PARTITIONS, 2))
        if rng.random() < 0.5:
            early.on_partitions_assigned(claims(*some - owned))
            owned |= some
        elif rng.random() < 0.8:
            assert early.on_partitions_revoked(some & owned, final=False) == {}, "nothing is in flight"
            owned -= some
        else:
            early.on_partitions_lost()
            owned = set()
    assert early.tracker.states() == {}
    late = QueryMember(OPTIONS, seen)
    if owned:
        late.on_partitions_assigned(claims(*owned))
    create_planner(OPTIONS, seen, joined=early)

    assert early.tracker.states() == late.tracker.states() == dict.fromkeys(owned, PartitionState.CLAIMED)
    assert early.tracker.pending_starts() == late.tracker.pending_starts()


def test_resumed_member_keeps_its_batch() -> None:
    member = QueryMember(OPTIONS, None)
    member.on_partitions_assigned(claims(PARTITIONS[0], offset=3))
    batch = offset_json({PARTITIONS[0]: (3, 9)})
    planner = create_planner(OPTIONS, batch, joined=member)
    planner.start_batch(batch)
    assert member.on_partitions_revoked({PARTITIONS[0]}, final=False) is None


@pytest.mark.parametrize(
    ("topics", "continues"), [([], True), (["t"], True), (["other"], False), (["t", "other"], False)]
)
def test_member_continues_unless_checkpoint_adds_topics(topics: list[str], continues: bool) -> None:
    options = replace(OPTIONS, keeps_unsubscribed=True)
    member = QueryMember(options, None)
    batch = offset_json({TopicPartition(topic, 0): (3, 9) for topic in topics}) if topics else INITIAL
    planner = create_planner(options, batch, joined=member)
    assert (planner.member is member) is continues
    assert member.stopping.is_set() is not continues, "the member has left the group"
    assert all(planner.member.wants(topic) for topic in ["t", *topics])


def test_checkpoint_of_another_group_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="the checkpoint belongs to group 'other'"):
        create_planner(
            OPTIONS, {**offset_json({PARTITIONS[0]: (0, 1)}), "group": "other"}, joined=QueryMember(OPTIONS, None)
        )


def test_new_query_raises_error_of_failed_join() -> None:
    join = EarlyJoin(OPTIONS, 1)
    join.start()
    with pytest.raises(ZooKeeperUnavailableError):
        join.take(is_new=True)
    assert join.take(is_new=True) is None
    join.close()


def test_query_with_checkpoint_joins_again_after_failed_join() -> None:
    join = EarlyJoin(OPTIONS, 1)
    join.start()
    assert join.take(is_new=False) is None
    join.close()


class Member:
    """A member that joins at once, or blocks until it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def joined(member: Member, monkeypatch: pytest.MonkeyPatch) -> Any:
    def join(self: EarlyJoin) -> Any:
        self._member = member  # type: ignore[assignment]
        return member

    monkeypatch.setattr(EarlyJoin, "_join", join)
    early = EarlyJoin(OPTIONS, 1)
    early.start()
    return early


def test_taken_member_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    early = joined(member, monkeypatch)
    assert early.take(is_new=True) is member
    early.close()
    assert member.closed == 0


def test_member_that_is_not_taken_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not stop the sources of a query that fails while it is prepared."""
    member = Member()
    early = joined(member, monkeypatch)
    assert early._thread.join(10), "clusterUnavailableTimeout expires"
    assert member.closed == 1
    assert early.take(is_new=True) is None
    early.close()
    assert member.closed == 1


def test_close_leaves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    early = joined(member, monkeypatch)
    early.close()
    assert (member.closed, early._thread.is_alive) == (1, False)


def test_closed_join_creates_no_member() -> None:
    early = EarlyJoin(OPTIONS, 1)
    early.close()
    early.start()
    with pytest.raises((ClosedError, ZkConsumerError)):
        early._joined.result(10)


def test_query_without_membership_does_not_join_early() -> None:
    options = SourceOptions.parse(
        {"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "subscribe": "t", "membership": "none"}
    )
    early = EarlyJoin(options, 1)
    early.start()
    assert early.take(is_new=True) is None
    early.close()
