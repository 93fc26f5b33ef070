"""Tests of the session lease with a fake connection and a fake clock; ``tests/faults`` tests it with servers."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from helpers.clocks import Clock
from helpers.waiting import wait_for

from zkconsumer.errors import OwnershipLostError, ZooKeeperUnavailableError
from zkconsumer.zookeeper import lease as module
from zkconsumer.zookeeper.lease import Lease, LeaseEvent, LeaseState

#: Session timeout in seconds of the fake clock.
TIMEOUT = 8.0
LENGTH = 6.0


class Answer(Future[None]):
    """The result of an asynchronous call, with the methods of kazoo's results."""

    def ready(self) -> bool:
        return self.done()

    def successful(self) -> bool:
        return self.done() and self.exception() is None


class FakeConnection:
    """A connection to a server that answers when the test does.

    Attributes:
        on_wait: called while ``wait`` waits.
    """

    hosts = server = "h:1"

    def __init__(self) -> None:
        self.session_timeout_s = TIMEOUT
        self.is_connected = True
        self.requests: list[Answer] = []
        self.has_response = False
        self.drops = 0
        self.on_wait: Callable[[], object] = lambda: None
        self.on_drop: Callable[[], object] = lambda: None

    @property
    def client(self) -> FakeConnection:
        return self

    def connected_client(self) -> FakeConnection:
        if not self.is_connected:
            raise ZooKeeperUnavailableError("not connected")
        return self

    def sync_async(self, path: str) -> Answer:
        self.requests.append(Answer())
        return self.requests[-1]

    def wait(self, result: Answer) -> None:
        self.on_wait()

    def poll_response(self) -> bool:
        return self.has_response

    def drop(self) -> None:
        self.drops += 1
        self.on_drop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def ends() -> list[float]:
    return []


@pytest.fixture
def lease(connection: FakeConnection, clock: Clock, ends: list[float]) -> Iterator[Lease]:
    made: Any = Lease(connection, lambda: ends.append(clock.now), clock=clock)  # type: ignore[arg-type]
    yield made
    made.close()


def documented() -> dict[tuple[LeaseState, LeaseEvent], LeaseState]:
    """Return the transitions of the table in the docstring of ``Lease``."""
    columns = {LeaseEvent.ACQUIRE: slice(10, 37), LeaseEvent.EXPIRE: slice(39, 62), LeaseEvent.REPORT: slice(64, 90)}
    found = {}
    for line in (inspect.getdoc(Lease) or "").splitlines():
        state = LeaseState.__members__.get(line.partition(" ")[0])
        for event, column in columns.items():
            if state is not None and (name := line[column].strip()):
                found[state, event] = LeaseState[name]
    return found


def test_table_of_states_is_documented() -> None:
    assert documented() == module.TRANSITIONS


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_clock_counts_suspension_of_system() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= module._now() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert module._clock_id() == time.CLOCK_BOOTTIME


def test_lease_lasts_three_quarters_of_session_timeout(lease: Lease, clock: Clock) -> None:
    assert (lease.is_held, lease.remaining_s) == (False, 0.0)
    lease.acquire()
    assert (lease.is_held, lease.remaining_s) == (True, LENGTH)
    clock.now += LENGTH - 0.001
    assert lease.is_held
    clock.now += 0.001
    assert (lease.is_held, lease.remaining_s) == (False, 0.0)


def test_lease_counts_from_time_of_request(lease: Lease, connection: FakeConnection, clock: Clock) -> None:
    def answer_late() -> None:
        clock.now += 2

    connection.on_wait = answer_late
    lease.acquire()
    assert lease.remaining_s == LENGTH - 2

    lease._renew()
    clock.now += 1
    assert lease.remaining_s == LENGTH - 3, "no answer yet"
    connection.requests[-1].set_result(None)
    assert lease.remaining_s == LENGTH - 1


def test_failed_renewal_does_not_extend_lease(lease: Lease, connection: FakeConnection, clock: Clock) -> None:
    lease.acquire()
    clock.now += 1
    lease._renew()
    connection.requests[-1].set_exception(ZooKeeperUnavailableError("x"))
    assert lease.remaining_s == LENGTH - 1
    assert lease._renew(), "the next renewal is sent"
    assert len(connection.requests) == 3


def test_late_answer_does_not_revive_ended_lease(
    lease: Lease, connection: FakeConnection, clock: Clock, ends: list[float]
) -> None:
    """Other members may have taken the partitions over in the meantime."""
    lease.acquire()
    lease._renew()
    clock.now += LENGTH
    lease._report_end()
    assert ends == [clock.now]
    connection.requests[-1].set_result(None)
    lease._renew()
    connection.requests[-1].set_result(None)
    assert (lease.is_held, lease.remaining_s) == (False, 0.0)

    lease.acquire()
    assert lease.remaining_s == LENGTH


def test_answer_that_was_not_processed_in_time_counts(lease: Lease, connection: FakeConnection, clock: Clock) -> None:
    """The process may have been suspended while the response was in its socket."""
    lease.acquire()
    clock.now += 5
    lease._renew()
    connection.requests[-1].set_result(None)
    clock.now += LENGTH - 0.5
    assert (lease.is_held, lease.remaining_s) == (True, 0.5)


def test_end_is_reported_once_for_each_lease(lease: Lease, clock: Clock, ends: list[float]) -> None:
    lease._report_end()
    assert ends == []
    for number in range(1, 3):
        lease.acquire()
        lease._report_end()
        assert len(ends) == number - 1
        clock.now += LENGTH
        for _ in range(2):
            lease._report_end()
        assert len(ends) == number


def test_expired_session_ends_lease(lease: Lease, connection: FakeConnection, ends: list[float]) -> None:
    lease.acquire()
    lease._renew()
    assert lease.expired_at == 0.0
    lease.expire()
    connection.requests[-1].set_result(None)
    assert (lease.is_held, len(ends), lease.expired_at > 0) == (False, 1, True)


def test_session_that_expires_meanwhile_has_no_lease(lease: Lease, connection: FakeConnection) -> None:
    connection.on_wait = lease.expire
    with pytest.raises(OwnershipLostError, match="session expired"):
        lease.acquire()
    assert not lease.is_held


def test_renewal_waits_for_previous_one(lease: Lease, connection: FakeConnection) -> None:
    assert lease._renew()
    assert not lease._renew()
    connection.is_connected = False
    assert lease._renew(), "kazoo is connecting"
    connection.is_connected = True
    connection.requests[-1].set_result(None)
    assert lease._renew()
    assert len(connection.requests) == 2


def test_renewal_is_sent_at_once_on_request(connection: FakeConnection) -> None:
    connection.session_timeout_s = 600.0
    lease = Lease(connection, lambda: None)  # type: ignore[arg-type]
    lease.start()
    wait_for(lambda: len(connection.requests) == 1, what="the first renewal is sent at once")
    connection.requests[0].set_result(None)
    lease.renew_soon()
    wait_for(lambda: len(connection.requests) == 2, what="another one is sent on request")
    lease.close()
    assert not lease._thread.is_alive


def test_thread_sleeps_until_its_next_step(lease: Lease, connection: FakeConnection, clock: Clock) -> None:
    assert lease._time_to_next_step(time.monotonic() - 5) == 0.0
    assert 4 < lease._time_to_next_step(time.monotonic() + 5) <= 5
    lease.acquire()
    clock.now += LENGTH - 1
    assert lease._time_to_next_step(time.monotonic() + 5) == 1.0

    steps: list[None] = []
    lease._report_end = lambda: steps.append(None)  # type: ignore[method-assign]
    lease.start()
    wait_for(lambda: len(connection.requests) == 2)
    connection.requests[-1].set_result(None)
    lease.renew_soon()
    wait_for(lambda: len(connection.requests) == 3)
    assert len(steps) < 10


@pytest.mark.parametrize("has_response", [False, True])
def test_silent_connection_is_dropped(has_response: bool, connection: FakeConnection) -> None:
    """Three intervals without any response; other responses show that the server is slow, and not silent."""
    connection.session_timeout_s = 0.8
    connection.has_response = has_response
    dropped = threading.Event()
    polls: list[int] = []
    until_drop: list[int] = []

    def drop() -> None:
        until_drop.append(len(polls))
        dropped.set()

    connection.on_drop = drop
    connection.poll_response = lambda: polls.append(len(connection.requests)) or has_response  # type: ignore
    lease = Lease(connection, lambda: None)  # type: ignore[arg-type]
    lease.start()
    try:
        if has_response:
            wait_for(lambda: len(polls) > 6, what="several intervals have passed")
            assert connection.drops == 0
        else:
            assert dropped.wait(10)
            assert until_drop[0] == 4, "one interval sends the renewal, three wait for it"
    finally:
        lease.close()


def test_lease_ends_while_no_other_thread_looks(connection: FakeConnection) -> None:
    connection.session_timeout_s = 0.8
    ended = threading.Event()
    lease = Lease(connection, ended.set)  # type: ignore[arg-type]
    lease.acquire()
    lease.start()
    try:
        assert ended.wait(10)
        connection.requests[-1].set_result(None)
        assert not lease.is_held
    finally:
        lease.close()


def test_failing_listener_does_not_end_renewals(connection: FakeConnection, caplog: pytest.LogCaptureFixture) -> None:
    connection.session_timeout_s = 0.2

    def fail() -> None:
        raise KeyError("x")

    lease = Lease(connection, fail)  # type: ignore[arg-type]
    lease.acquire()
    lease.start()
    try:
        wait_for(lambda: "lease_renewal_failed" in caplog.text, what="the error is logged")
        sent = len(connection.requests)
        connection.requests[-1].set_result(None)
        wait_for(lambda: len(connection.requests) > sent, what="the next renewal is sent")
    finally:
        lease.close()
