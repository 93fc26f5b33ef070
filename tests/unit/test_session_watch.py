"""Tests of the watch that notices the end of a member's session."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkconsumer.errors import RetriableError, ZooKeeperUnavailableError
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.session_watch import SessionLostError, SessionWatch
from zkconsumer.zookeeper.session import Event, EventKind


@pytest.fixture
def session() -> Any:
    return SimpleNamespace(
        session_id=7,
        lease=SimpleNamespace(is_held=True, remaining_s=60.0),
        not_connected_error=lambda: ZooKeeperUnavailableError("x"),
    )


@pytest.fixture
def watch(session: Any) -> SessionWatch:
    membership = Membership("g", "g_c", cast("Any", session))
    membership.session_id = 7
    mailbox = Mailbox("closed")
    mailbox.open()
    return SessionWatch(session, membership, mailbox)


@pytest.mark.parametrize(
    ("kind", "needs_rebalance"), [(EventKind.CONNECTED, True), (EventKind.SUSPENDED, False), (EventKind.CHANGED, True)]
)
def test_events_cause_rebalances(kind: EventKind, needs_rebalance: bool, watch: SessionWatch) -> None:
    watch.mailbox.queue.put(Event(kind))
    watch.wait(10)
    assert watch.needs_rebalance is needs_rebalance


def test_calls_behind_expired_session_are_left(watch: SessionWatch) -> None:
    before = watch.mailbox.submit(lambda: "done")
    watch.mailbox.queue.put(Event(EventKind.LOST))
    call = watch.mailbox.submit(lambda: "done")
    with pytest.raises(SessionLostError) as raised:
        watch.wait(10)
    assert (raised.value.event, watch.needs_rebalance) == ("session_expired", True)
    assert (before.result(0), call.done()) == ("done", False)
    assert isinstance(raised.value, RetriableError)


def test_wait_ends_with_lease(watch: SessionWatch, session: Any) -> None:
    """A process that was suspended may receive no event."""
    session.lease.remaining_s = 0.05
    started = time.monotonic()
    watch.wait(None)
    assert 0.05 <= time.monotonic() - started < 10

    session.lease.is_held = False
    with pytest.raises(SessionLostError) as raised:
        watch.wait(10)
    assert (raised.value.event, watch.needs_rebalance) == ("session_lease_expired", True)
    watch.membership.session_id = 0
    watch.wait(0)


def test_wait_ends_before_lease(watch: SessionWatch) -> None:
    started = time.monotonic()
    watch.wait(0.05)
    assert time.monotonic() - started < 10


def test_calls_wake_the_member(watch: SessionWatch) -> None:
    watch.wake()
    started = time.monotonic()
    watch.wait(10)
    assert time.monotonic() - started < 10
    assert not watch.needs_rebalance


def test_member_may_write_in_its_session(watch: SessionWatch, session: Any) -> None:
    watch.require()
    session.session_id = 8
    with pytest.raises(SessionLostError) as raised:
        watch.require()
    assert raised.value.event == "session_expired"

    session.session_id, session.lease.is_held = 7, False
    with pytest.raises(SessionLostError) as raised:
        watch.require()
    assert raised.value.event == "session_lease_expired"


def test_member_without_session_may_not_write(watch: SessionWatch, session: Any) -> None:
    session.session_id = 0
    with pytest.raises(ZooKeeperUnavailableError):
        watch.require()
