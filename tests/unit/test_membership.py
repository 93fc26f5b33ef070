"""Tests of the state of a member: which session its owner znodes belong to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkconsumer import TopicPartition
from zkconsumer.errors import OwnershipLostError, ZooKeeperUnavailableError
from zkconsumer.rebalance import membership as membership_module
from zkconsumer.rebalance.membership import TRANSITIONS, Membership, OwnershipEvent, OwnershipState

A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def session() -> SimpleNamespace:
    return SimpleNamespace(
        session_id=7, lease=SimpleNamespace(is_held=True), not_connected_error=lambda: ZooKeeperUnavailableError("x")
    )


@pytest.fixture
def membership(session: SimpleNamespace) -> Membership:
    made = Membership("g", "g_c", cast("Any", session))
    made.register(7)
    own(made, {A: "g_c-0", B: "g_c-0"})
    return made


def own(membership: Membership, partitions: dict[TopicPartition, str]) -> None:
    membership.claim(partitions)
    membership.confirm(partitions)


def test_docstring_and_table_agree() -> None:
    rows = [line.split() for line in (membership_module.__doc__ or "").splitlines()]
    columns = [state.value for state in OwnershipState]
    assert ["event", *columns] in rows
    for event in OwnershipEvent:
        [row] = [row for row in rows if row[:1] == [event.value] and len(row) == 5]
        following = [TRANSITIONS[event].get(state) for state in OwnershipState]
        assert row[1:] == ["-" if state is None else state.value for state in following]


def test_assignment_is_replaced_as_a_whole(membership: Membership) -> None:
    before = membership.assignment
    membership.claim([C])
    assert (membership.assignment, membership.uncertain) == (before, {C})
    membership.confirm({C: "g_c-1"})
    membership.stop({A: 5})
    membership.delete([A])
    membership.release([A])
    assert membership.assignment == {B: "g_c-0", C: "g_c-1"}
    assert before == {A: "g_c-0", B: "g_c-0"}


def test_partition_that_is_released_is_still_owned(membership: Membership) -> None:
    membership.stop({A: 5})
    assert membership.assignment == {A: "g_c-0", B: "g_c-0"}
    assert membership.releasing == {A: 5}
    membership.delete([A])
    assert (membership.assignment, membership.uncertain) == ({B: "g_c-0"}, {A}), "its znode may be gone"
    membership.release([A])
    assert (membership.releasing, membership.uncertain) == ({}, set())


def test_lost_partitions_may_still_be_owned(membership: Membership) -> None:
    membership.stop({A: 5})
    membership.claim([C])
    membership.lose()
    assert (membership.assignment, membership.releasing, membership.is_registered) == ({}, {}, False)
    assert membership.uncertain == {A, B, C}
    membership.release([A, B])
    assert membership.uncertain == {C}


def test_dropped_partitions_are_not_owned(membership: Membership) -> None:
    membership.stop({A: 5})
    membership.drop([A, B])
    assert (membership.assignment, membership.releasing, membership.uncertain) == ({}, {}, set())


def test_impossible_event_is_rejected(membership: Membership) -> None:
    with pytest.raises(RuntimeError, match="event 'confirm' is not valid in state 'unowned'"):
        membership.confirm({C: "g_c-0"})


def test_new_member_is_not_registered(session: SimpleNamespace) -> None:
    made = Membership("g", "g_c", cast("Any", session))
    assert (made.is_registered, made.has_registered, made.is_session_current) == (False, False, False)
    made.register(7)
    assert (made.is_registered, made.is_session_current) == (True, True)


def test_offsets_may_be_committed_in_session_of_claims(membership: Membership) -> None:
    assert membership.holds_lease
    membership.check_session()


@pytest.mark.parametrize(("session_id", "is_held"), [(8, True), (7, False)], ids=["other session", "no lease"])
def test_offsets_of_former_claims_are_rejected(
    session_id: int, is_held: bool, membership: Membership, session: SimpleNamespace
) -> None:
    session.session_id, session.lease.is_held = session_id, is_held
    with pytest.raises(OwnershipLostError):
        membership.check_session()
    membership.drop([A, B])
    membership.check_session()


def test_commit_without_session_is_retriable(membership: Membership, session: SimpleNamespace) -> None:
    session.session_id = 0
    with pytest.raises(ZooKeeperUnavailableError):
        membership.check_session()
