"""Tests of the lease of a ZooKeeper session: what renews it, and what ends it."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.teardown import started
from helpers.waiting import TIMEOUT_S, wait_for

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import ZooKeeperServer
from zkconsumer.zookeeper import lease
from zkconsumer.zookeeper.lease import Lease
from zkconsumer.zookeeper.session import Event, EventKind, ZooKeeperSession
from zkconsumer.zookeeper.znodes import Znodes

from .faults import Cable, Member, expire, full_backlog

#: Session timeout in seconds.
SESSION_TIMEOUT = 3.0

#: Length of its lease in seconds.
LEASE = 0.75 * SESSION_TIMEOUT

#: A session and the queue of its events.
Opened = tuple[ZooKeeperSession, "queue.SimpleQueue[Any]"]


@pytest.fixture
def session(cluster: DevCluster) -> Iterator[Callable[..., Opened]]:
    """Open a session through cables, which are used in this order: ``one, events = session(first, second)``."""

    def make(hosts: str, timeout: float, events: queue.SimpleQueue[Any]) -> ZooKeeperSession:
        one = ZooKeeperSession(hosts, session_timeout_s=timeout, connection_timeout_s=20.0, events=events)
        one._client.randomize_hosts = False
        return one

    def start(*cables: Cable | SimpleNamespace, timeout: float = SESSION_TIMEOUT, hosts: str = "") -> Opened:
        hosts = hosts or ",".join(f"127.0.0.1:{cable.port}" for cable in cables)
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        one = create(hosts, timeout, events)
        one.start()
        assert events.get() == Event(EventKind.CONNECTED)
        one.lease.acquire()
        return one, events

    with started(make, ZooKeeperSession.close) as create:
        yield start


@pytest.fixture
def strict_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that grants no longer session timeout."""
    server = ZooKeeperServer(tmp_path, extra={"maxSessionTimeout": int(SESSION_TIMEOUT * 1000)})
    server.start()
    yield server
    server.stop()


def test_lease_counts_from_last_answered_renewal(cluster: DevCluster, session: Callable[..., Opened]) -> None:
    with Cable(cluster.zookeeper.port) as cable:
        one, events = session(cable)
        renewed = time.monotonic() + SESSION_TIMEOUT
        wait_for(lambda: time.monotonic() > renewed and one.lease.is_held, what="the lease is renewed")
        cable.cut()
        cut_at = time.monotonic()
        assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.SUSPENDED)
        earliest, latest = expiry(one.lease)
        assert earliest <= cut_at + LEASE
        wait_for(lambda: time.monotonic() > latest, what="the lease ends")
        assert not one.lease.is_held
        cable.mend()
        assert events.get(timeout=TIMEOUT_S) in (Event(EventKind.CONNECTED), Event(EventKind.LOST))
        wait_for(lambda: one.is_connected, what="the session has connected again")
        assert not one.lease.is_held  # a connection alone does not renew it
        one.lease.acquire()
        assert one.lease.is_held


def test_lease_counts_from_granted_session_timeout(cluster: DevCluster, session: Callable[..., Opened]) -> None:
    granted = 60.0  # maxSessionTimeout of the development cluster
    with Cable(cluster.zookeeper.port) as cable:
        one, _events = session(cable, timeout=10 * granted)
        assert 0.7 * granted < one.lease.remaining_s <= 0.75 * granted


def expiry(held: Lease) -> tuple[float, float]:
    """Return the earliest and the latest time of the clock at which the lease can end."""
    before = time.monotonic()
    remaining = held.remaining_s
    return before + remaining, time.monotonic() + remaining


def test_session_moves_from_silent_server_in_time(cluster: DevCluster, session: Callable[..., Opened]) -> None:
    with Cable(cluster.zookeeper.port) as silent, Cable(cluster.zookeeper.port) as healthy:
        one, events = session(silent, healthy)
        identity = one.session_id
        silent.cut()
        assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.SUSPENDED)
        assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.CONNECTED)
        assert one.lease.is_held
        wait_for(lambda: one.lease.remaining_s > 0.9 * LEASE, what="the lease is renewed")
        assert one.session_id == identity


def test_busy_member_thread_keeps_its_partitions(member: Callable[..., Member], topic: Callable[..., str]) -> None:
    name = topic(partitions=2)
    one = member({name: 1})
    rebalances, session = one.core.rebalances, one.core.session.session_id
    one.core._mailbox.submit(lambda: time.sleep(5)).result()  # two and a half session timeouts
    assert one.core._mailbox.submit(lambda: one.owned).result() == [0, 1]  # the loop has checked the lease
    assert (one.core.rebalances, one.core.session.session_id) == (rebalances, session)


def test_cut_off_member_with_busy_thread_stops_delivery(
    cluster: DevCluster, member: Callable[..., Member], topic: Callable[..., str], load: Callable[..., Any]
) -> None:
    """Only the lease can end the delivery: the member thread processes no event while it is busy."""
    name = topic(partitions=1)
    load(name, 1, per_second=500)
    timeout_s = 8.0
    released = threading.Event()
    with Cable(cluster.zookeeper.port) as cable:
        connect = f"127.0.0.1:{cable.port}"
        one = member({name: 1}, zookeeper_connect=connect, zookeeper_session_timeout_ms=int(timeout_s * 1000))
        one.wait_for_more(100)
        ended: list[float] = []
        held, report = one.core.session.lease, one.core.session.lease._on_expired

        def report_end() -> None:
            ended.append(time.monotonic())
            report()

        held._on_expired = report_end
        rebalances = one.core.rebalances
        busy = one.core._mailbox.submit(lambda: released.wait(60))
        try:
            wait_for(busy.running, what="the member thread is busy")
            cable.cut()
            cut_at = time.monotonic()
            wait_for(lambda: ended, what="the end of the lease is reported")
            assert ended[0] < cut_at + timeout_s
            read = one.count
            cable.mend()  # the answers of requests that were sent before arrive, too
            wait_for(lambda: held._ends_at > lease._now(), what="a renewal is answered")
            assert (held.is_held, len(ended)) == (False, 1)
            assert one.count <= read + 1, "one message may have been on its way to the application"
        finally:
            released.set()
        wait_for(lambda: one.core.rebalances > rebalances and one.owned == [0], what="the partition is claimed again")
        one.wait_for_more(100)
        one.leave()


def test_lapsed_lease_on_living_connection_is_regained(
    member: Callable[..., Member], topic: Callable[..., str], load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a process that was suspended for a session timeout before ZooKeeper has expired its session."""
    suspended_s = 0.0
    clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock_id: clock(clock_id) + suspended_s)
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1}, zookeeper_session_timeout_ms=60_000)
    one.wait_for_more(100)
    rebalances, session = one.core.rebalances, one.core.session
    identity = session.session_id
    suspended_s = 60.0
    wait_for(lambda: one.core.rebalances > rebalances, what="the member has registered again")
    one.wait_for_more(100)
    assert (one.owned, one.core.rebalances, session.session_id) == ([0, 1], rebalances + 1, identity)


def test_many_partitions_are_regained_in_few_transactions(
    member: Callable[..., Member], topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the end of the lease, the owner znodes still exist if the session has survived."""
    name = topic(partitions=200)
    one = member({name: 1}, zookeeper_session_timeout_ms=60_000)
    transactions: list[int] = []
    original = Znodes.create_all_ephemeral

    def counting(znodes: Znodes, nodes: Any) -> Any:
        transactions.append(len(nodes))
        return original(znodes, nodes)

    monkeypatch.setattr(Znodes, "create_all_ephemeral", counting)
    suspended_s = 0.0
    clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock_id: clock(clock_id) + suspended_s)
    rebalances = one.core.rebalances
    suspended_s = 60.0
    one.core.wake()
    wait_for(lambda: one.core.rebalances > rebalances and len(one.owned) == 200, what="the partitions are regained")
    assert len(transactions) <= 2


def assert_session_survives_cut(cable: Cable, opened: Opened) -> None:
    one, events = opened
    identity = one.session_id
    cable.cut()
    assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.SUSPENDED)
    assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.CONNECTED)
    assert (one.session_id, one.lease.is_held) == (identity, True)


@pytest.mark.parametrize("name", ["", "ensemble.test"], ids=["listed addresses", "one DNS name"])
def test_session_survives_server_that_drops_packets(
    name: str, cluster: DevCluster, session: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    with full_backlog() as port, Cable(cluster.zookeeper.port) as cable, Cable(cluster.zookeeper.port) as other:
        servers = cable, SimpleNamespace(port=port), other
        resolve_as(monkeypatch, "ensemble.test", [server.port for server in servers])
        assert_session_survives_cut(cable, session(*servers, hosts=name))


def test_shares_of_servers_follow_granted_session_timeout(
    strict_zookeeper: ZooKeeperServer, session: Callable[..., Opened]
) -> None:
    """The session timeout that was requested is 20 times as long."""
    with full_backlog() as port, Cable(strict_zookeeper.port) as cable, Cable(strict_zookeeper.port) as other:
        opened = session(cable, SimpleNamespace(port=port), other, timeout=20 * SESSION_TIMEOUT)
        assert_session_survives_cut(cable, opened)


def test_session_survives_silent_name_server(
    cluster: DevCluster, session: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All servers drop the connection while no name server responds; kazoo then resolves their names again."""
    stopped, silent = threading.Event(), threading.Event()
    with Cable(cluster.zookeeper.port) as first, Cable(cluster.zookeeper.port) as second:
        resolve_as(
            monkeypatch, "ensemble.test", [first.port, second.port], lambda: silent.is_set() and stopped.wait(60)
        )
        one, events = session(hosts="ensemble.test")
        identity = one.session_id
        try:
            silent.set()
            for _ in range(4):
                one._connection.drop()
                assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.SUSPENDED)
                assert events.get(timeout=SESSION_TIMEOUT) == Event(EventKind.CONNECTED)
            assert (one.session_id, one.lease.is_held) == (identity, True)
        finally:
            stopped.set()


def resolve_as(
    monkeypatch: pytest.MonkeyPatch, name: str, ports: list[int], wait: Callable[[], object] = lambda: None
) -> None:
    """Resolve a name to the local address, once for each port; kazoo connects to the ports that it resolves.

    Args:
        wait: called before each resolution.
    """
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        if host == name and not more.get("flags"):
            wait()
            return [found for each in ports for found in original("127.0.0.1", each, *arguments, **more)]
        return original(host, port, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_closed_session_holds_no_lease(cluster: DevCluster, session: Callable[..., Opened]) -> None:
    one, _ = session(SimpleNamespace(port=cluster.zookeeper.port))
    assert one.lease.is_held

    one.close()

    assert not one.lease.is_held


def test_new_lease_does_not_cover_former_claims(
    cluster: DevCluster, member: Callable[..., Member], topic: Callable[..., str]
) -> None:
    """The session expires, and the member registers in the next one before it processes the event of the expiry."""
    one = member({topic(partitions=2): 1})
    wait_for(lambda: one.owned == [0, 1])

    def register_again() -> tuple[bool, list[int]]:
        former = expire(cluster, one)
        session = one.core.session
        wait_for(lambda: session.session_id not in (0, former), what="kazoo has created another session")
        one.core._thread._listener._register()
        return session.lease.is_held, one.owned

    assert one.core._mailbox.submit(register_again).result(2 * TIMEOUT_S) == (True, [])
    wait_for(lambda: one.owned == [0, 1], what="the partitions are claimed again")
