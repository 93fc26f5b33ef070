"""Tests of the state of a member: which session its owner znodes belong to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkconsumer import TopicPartition
from zkconsumer.errors import OwnershipLostError, ZooKeeperUnavailableError
from zkconsumer.rebalance.membership import Membership

A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def session() -> SimpleNamespace:
    return SimpleNamespace(
        session_id=7, lease=SimpleNamespace(is_held=True), not_connected_error=lambda: ZooKeeperUnavailableError("x")
    )


@pytest.fixture
def membership(session: SimpleNamespace) -> Membership:
    made = Membership("g", "g_c", cast("Any", session))
    made.session_id = 7
    made.add({A: "g_c-0", B: "g_c-0"})
    return made


def test_partitions_are_added_and_removed_as_a_whole(membership: Membership) -> None:
    before = membership.assignment
    membership.add({B: "g_c-1", C: "g_c-1"})
    membership.remove([A])
    assert membership.assignment == {B: "g_c-1", C: "g_c-1"}
    assert before == {A: "g_c-0", B: "g_c-0"}


def test_new_member_is_not_registered(session: SimpleNamespace) -> None:
    made = Membership("g", "g_c", cast("Any", session))
    assert (made.is_registered, made.has_registered, made.is_session_current) == (False, False, False)
    made.session_id = 7
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
    membership.assignment = {}
    membership.check_session()


def test_commit_without_session_is_retriable(membership: Membership, session: SimpleNamespace) -> None:
    session.session_id = 0
    with pytest.raises(ZooKeeperUnavailableError):
        membership.check_session()
