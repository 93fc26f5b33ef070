"""Tests of partition ownership while members join, leave, are killed or suspended, and claim the same partitions."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from helpers.aliases import Configs, Loads, Topics
from helpers.producing import numbers, produce
from helpers.teardown import started
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from helpers.zookeeper import start_zookeeper
from kazoo.client import KazooClient

from zkconsumer import create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ClosedError, ConsumerRebalanceFailedError, OwnershipLostError, ZooKeeperUnavailableError

from .conftest import GIVE_UP_MS, SESSION_TIMEOUT_MS
from .faults import Cable, ChildMember, Member, Peer, expire, wait_until_all_is_read
from .transaction_log import group_history

Members = Callable[..., Member]


@pytest.fixture
def peer(cluster: DevCluster, group: str) -> Iterator[Peer]:
    """Return another group member that consists of znodes; its id sorts before the ids of the tested members."""
    with Peer(cluster, group, "a-peer") as peer:
        yield peer


@pytest.fixture
def child(cluster: DevCluster, group: str) -> Iterator[Callable[..., ChildMember]]:
    """Start a member in a separate process: ``child(topic)``."""

    def make(topic: str, **settings: object) -> ChildMember:
        properties = {
            **cluster.consumer_properties,
            "group.id": group,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": 100,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "zookeeper.sync.time.ms": 200,
        }
        return ChildMember(properties | settings, topic)

    with started(make, ChildMember.close) as start:
        yield start


def test_blocked_partition_is_claimed_on_release(
    cluster: DevCluster, member: Members, topic: Topics, group: str, peer: Peer, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    peer.register({name: 1})
    one = member({name: 1}, consumer_id="b", zookeeper_sync_time_ms=30_000)
    assert one.owned == [2, 3]
    blocked = peer.own(name, 1)
    peer.client.delete(peer.paths.registration(peer.consumer_id))
    wait_for(lambda: one.core.unbalanced_since is not None, what="the member reports that it is unbalanced")
    assert sorted(owners(zk, group, name)) == [1, 2, 3]  # 0 is not claimed without 1
    for number in range(4):
        produce(cluster.admin, name, number, numbers(0, 10))
    wait_for(lambda: one.count == 20, what="the partitions that stay assigned are read")
    peer.client.delete(blocked)
    wait_for(lambda: one.count == 40, 5, what="the other partitions are read, long before the next attempt is due")
    assert one.core.unbalanced_since is None


def test_owner_znode_of_older_session_is_replaced(
    cluster: DevCluster, member: Members, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    with Peer(cluster, group, "one") as older:
        path = older.own(name, 0)
        one = member({name: 1}, consumer_id="one")
        assert one.owned == [0, 1]
    assert zk.get(path)[1].ephemeralOwner == one.core.session.session_id
    produce(cluster.admin, name, 0, numbers(0, 10))
    wait_for(lambda: one.count == 10)


def test_join_waits_for_registration_of_older_session(
    cluster: DevCluster, member: Members, topic: Topics, group: str
) -> None:
    name = topic()
    with Peer(cluster, group, "one") as older:
        older.register({name: 1})
        starting = in_thread(lambda: member({name: 1}, consumer_id="one", zookeeper_sync_time_ms=30_000))
        wait_for(lambda: older.client.get_children(older.paths.ids), what="it has registered")
        assert starting.is_alive()
    assert starting.result(5).owned == [0]


def test_second_member_with_same_id_fails(
    member: Members, topic: Topics, config: Configs, load: Loads, group: str
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1}, consumer_id="one")
    second = create_consumer(
        config(consumer_id="one", rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS)
    )
    with pytest.raises(ConsumerRebalanceFailedError, match=f"/ids/{group}_one is still owned by another ") as raised:
        second.create_message_streams({name: 1})
    assert "if another process has the same consumer.id, remove the property" in str(raised.value)
    assert one.owned == [0, 1]
    one.wait_for_more(50)


def test_failed_first_rebalance_leaves_no_znodes(
    topic: Topics, config: Configs, group: str, peer: Peer, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    path = peer.own(name, 0)
    one = create_consumer(config(rebalance_max_retries=2, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(ConsumerRebalanceFailedError, match=f"failed to rebalance after .* s: {path}"):
        one.create_message_streams({name: 1})
    assert members(zk, group) == []
    assert owners(zk, group, name) == {0: f"{peer.consumer_id}-0"}
    assert stored(zk, group, name) == {}
    one.shutdown()


def test_shutdown_ends_join_in_another_thread(
    topic: Topics, config: Configs, group: str, peer: Peer, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    peer.own(name, 0)
    one = create_consumer(config(rebalance_max_retries=1000, zookeeper_session_timeout_ms=30_000))
    joining = in_thread(lambda: one.create_message_streams({name: 1}))
    wait_for(lambda: members(zk, group), what="it has registered")
    one.shutdown()
    with pytest.raises(ClosedError):
        joining.result(5)
    assert members(zk, group) == []


def test_concurrent_shutdowns_are_one_shutdown(topic: Topics, config: Configs, group: str, zk: KazooClient) -> None:
    name = topic(partitions=2)
    for _ in range(5):
        one = create_consumer(config())
        one.create_message_streams({name: 1})
        for call in [in_thread(one.shutdown) for _ in range(4)]:
            call.result()
        assert members(zk, group) == []


def test_shutdown_during_join_leaves_no_znodes(
    topic: Topics, config: Configs, group: str, zk: KazooClient, quick_switches: None
) -> None:
    name = topic(partitions=2)
    for number in range(60):
        one = create_consumer(config())
        joining = in_thread(functools.partial(one.create_message_streams, {name: 1}))
        while one._runtime is None and joining.is_alive():
            time.sleep(0)
        time.sleep(number * 0.0002)  # vary the time of the shutdown
        one.shutdown()
        with contextlib.suppress(ClosedError):
            joining.result(5)
    wait_until_equal(lambda: members(zk, group), [], 5)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Shorten the switch interval of Python to test more interleavings of threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_killed_member_is_replaced_within_session_timeout(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, child: Callable[..., ChildMember]
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    killed = child(name)
    wait_for(lambda: killed.count > 100 and len(one.owned) == 2, what="both members read")
    killed.signal(signal.SIGKILL)
    died = time.monotonic()
    wait_for(lambda: one.owned == [0, 1, 2, 3], what="all partitions are taken over")
    assert time.monotonic() - died < SESSION_TIMEOUT_MS / 1000 + 1.5
    one.wait_for_more(500)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one, killed])
    one.leave()
    assert group_history(cluster.folder, group).violations == []


def test_resumed_member_commits_no_lost_partition(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, child: Callable[..., ChildMember]
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    frozen = child(name, **{"auto.commit.interval.ms": 10})
    wait_for(lambda: frozen.count > 100 and len(one.owned) == 2, what="both members read")
    frozen.signal(signal.SIGSTOP)
    wait_for(lambda: one.owned == [0, 1, 2, 3], what="all partitions are taken over")
    one.wait_for_more(100)
    frozen.signal(signal.SIGCONT)
    wait_for(lambda: len(one.owned) == 2, what="the suspended member has rejoined")
    read = frozen.count
    wait_for(lambda: frozen.count > read + 100, what="the suspended member reads again")
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one, frozen])
    assert group_history(cluster.folder, group).violations == []


def test_new_owner_keeps_partition_after_outage(
    cluster: DevCluster, member: Members, topic: Topics, group: str, zk: KazooClient
) -> None:
    # A restarted ZooKeeper restarts the timeouts of all sessions, so the session in which the member owned
    # partitions still exists, with its owner znodes. The member must delete those that are not assigned to it any more.
    name = topic(partitions=4)
    with Cable(cluster.zookeeper.port) as cable:
        one = member({name: 1}, consumer_id="b", zookeeper_connect=f"127.0.0.1:{cable.port}")
        session = one.core.session.session_id
        assert one.owned == [0, 1, 2, 3]
        cluster.zookeeper.kill()
        wait_for(lambda: one.owned == [], what="the member releases its partitions")
        cable.cut()
        start_zookeeper(cluster)
        with Peer(cluster, group, "a-peer") as peer:
            peer.register({name: 1})
            cable.mend()
            wait_for(lambda: one.owned == [2, 3], what="the member owns its assigned partitions")
            assert one.core.session.session_id == session
            wait_until_equal(lambda: sorted(owners(zk, group, name)), [2, 3], 5)


def churn(member: Members, name: str, duration: float) -> list[Member]:
    """Let members join and leave, two at a time; return the members that have left."""
    departed: list[Member] = []
    until = time.monotonic() + duration
    while time.monotonic() < until:
        guests = [member({name: 1 + number}, consumer_id=f"{time.monotonic_ns()}") for number in range(2)]
        wait_for(lambda: all(guest.owned for guest in guests), what="the guests own partitions")
        guests[0].wait_for_more(20)
        for guest in guests:
            guest.leave()
        departed += guests
    return departed


def test_rebalances_under_load_lose_nothing(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    join_and_leave(cluster, member, load, topic(partitions=6), group, 5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rebalances_for_a_minute_lose_nothing(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    join_and_leave(cluster, member, load, topic(partitions=6), group, 60)


def join_and_leave(cluster: DevCluster, member: Members, load: Loads, name: str, group: str, duration: float) -> None:
    writer = load(name, 6, per_second=6000, batch=100)
    # The slow member always has decoded messages when its partitions are revoked.
    slow = member({name: 1}, consumer_id="slow", pause=0.001)
    quick = member({name: 2}, consumer_id="quick")
    departed = churn(member, name, duration)
    writer.stop()
    slow.pause = 0.0
    repeated = wait_until_all_is_read(cluster, name, 6, [slow, quick, *departed])
    for one in (slow, quick):
        one.leave()
    history = group_history(cluster.folder, group)
    assert history.violations == []
    handed_over = sum(len(owned) - 1 for owned in history.owners.values())
    print(f"{len(departed)} guests, {handed_over} hand-overs, {repeated} of {writer.written} repeated")
    assert repeated <= handed_over


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_session_expiries_during_rebalances_lose_nothing(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=6)
    writer = load(name, 6)
    stable = [member({name: count}, consumer_id=f"stable-{count}") for count in (1, 2)]
    departed: list[Member] = []
    for _ in range(15):
        for one in stable:
            expire(cluster, one)
        departed += churn(member, name, 0.5)
    writer.stop()
    wait_until_all_is_read(cluster, name, 6, [*stable, *departed])
    for one in stable:
        one.leave()
    assert group_history(cluster.folder, group).violations == []


def test_only_owner_commits_while_sessions_expire(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    load(name, 4)
    both = [member({name: 1}, consumer_id=i, auto_commit_interval_ms=1) for i in "ab"]
    stop = threading.Event()

    def commit(one: Member) -> None:
        while not stop.is_set():
            with contextlib.suppress(OwnershipLostError, ZooKeeperUnavailableError):
                one.connector.commit_offsets()

    committing = [in_thread(functools.partial(commit, one)) for one in both * 2]
    try:
        for number in range(10):
            one = both[number % 2]
            before = one.core.rebalances
            expire(cluster, one)
            wait_for(lambda: one.core.rebalances > before and one.owned, what="the member has rejoined")
    finally:
        stop.set()
    for call in committing:
        call.result()
    assert group_history(cluster.folder, group).violations == []
