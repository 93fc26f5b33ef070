"""Tests with a ZooKeeper that is restarted, stopped, paused or unreachable, and with expired sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.aliases import Loads, Topics
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.threads import in_thread
from helpers.waiting import wait_for
from helpers.znodes import stored
from helpers.zookeeper import start_zookeeper
from kazoo.client import KazooClient

from zkconsumer import TopicPartition, ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import OwnershipLostError, ZooKeeperUnavailableError

from .faults import Cable, Member, expire, seconds, wait_until_all_is_read
from .transaction_log import group_history

Members = Callable[..., Member]


def test_zookeeper_restart_does_not_interrupt_reading(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    with Cable(cluster.zookeeper.port) as cable:
        writer = load(name, 4)
        # The lease of the session lasts longer than any restart.
        one = member({name: 2}, zookeeper_session_timeout_ms=40_000, zookeeper_connect=f"127.0.0.1:{cable.port}")
        one.wait_for_more(500)
        cluster.zookeeper.stop()
        cable.cut()  # see start_zookeeper
        start_zookeeper(cluster)
        cable.mend()
        one.wait_for_more(2000)
        writer.stop()
        assert wait_until_all_is_read(cluster, name, 4, [one]) == 0
        one.leave()
    assert group_history(cluster.folder, group).violations == []


def test_expired_session_is_replaced_without_loss(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 2})
    one.wait_for_more(500)
    for times in (1, 2, 3):
        session = expire(cluster, one)
        wait_for(lambda: one.core.session.session_id not in (0, session), what="a new session")
        wait_for(lambda: one.core.rebalances > times and one.owned == [0, 1, 2, 3], what="the member has rejoined")
        one.wait_for_more(500)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])
    one.leave()
    history = group_history(cluster.folder, group)
    assert history.violations == []
    assert {len(owned) for owned in history.owners.values()} == {4}


def test_delivery_stops_after_session_timeout_without_zookeeper(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    one.wait_for_more(500)
    cluster.zookeeper.kill()
    wait_for(lambda: one.connector.assignment == {}, what="the member has released its partitions")
    read = one.count
    writer.wait_for_more(500)
    assert one.count <= read + 1
    with pytest.raises((OwnershipLostError, ZooKeeperUnavailableError)):
        one.connector.commit_offsets({TopicPartition(name, 0): 1})
    start_zookeeper(cluster)
    assert seconds(lambda: one.wait_for_more(500)) < 6
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])
    one.leave()
    assert group_history(cluster.folder, group).violations == []


def test_frozen_zookeeper_stops_and_resumes_delivery(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = member({name: 1})
    one.wait_for_more(500)
    cluster.zookeeper.pause()
    wait_for(lambda: one.connector.assignment == {}, what="the member has released its partitions")
    read = one.count
    writer.wait_for_more(500)
    assert one.count <= read + 1
    cluster.zookeeper.resume()
    one.wait_for_more(500)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])
    one.leave()
    assert group_history(cluster.folder, group).violations == []


@pytest.mark.parametrize("away", ["frozen", "gone"])
def test_shutdown_without_zookeeper_is_bounded(
    away: str, cluster: DevCluster, member: Members, topic: Topics, load: Loads
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1})
    one.wait_for_more(100)
    (cluster.zookeeper.pause if away == "frozen" else cluster.zookeeper.kill)()
    assert seconds(one.leave) < 5


@pytest.mark.slow
def test_shutdown_without_zookeeper_ignores_long_session(
    cluster: DevCluster, member: Members, topic: Topics, load: Loads
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1}, zookeeper_session_timeout_ms=60_000)
    one.wait_for_more(100)
    cluster.zookeeper.pause()
    assert seconds(one.leave) < 15


def test_cut_off_member_stops_before_takeover(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=4)
    with Cable(cluster.zookeeper.port) as cable:
        writer = load(name, 4)
        cut_off = member({name: 1}, consumer_id="a", zookeeper_connect=f"127.0.0.1:{cable.port}")
        other = member({name: 1}, consumer_id="b")
        wait_for(lambda: (cut_off.owned, other.owned) == ([0, 1], [2, 3]), what="both members own partitions")
        cut_off.wait_for_more(200)
        cable.cut()
        wait_for(lambda: other.owned == [0, 1, 2, 3], what="the other member takes over")
        assert cut_off.owned == []
        read = cut_off.count
        other.wait_for_more(200)
        assert cut_off.count <= read + 1
        cable.mend()
        wait_for(lambda: (cut_off.owned, other.owned) == ([0, 1], [2, 3]), what="both members own partitions again")
        cut_off.wait_for_more(200)
        writer.stop()
        wait_until_all_is_read(cluster, name, 4, [cut_off, other])
        other.leave()
        cut_off.leave()
    assert group_history(cluster.folder, group).violations == []


@pytest.mark.parametrize("session_timeout_ms", [2000, 6000])
def test_idle_member_stops_when_silently_cut_off(
    session_timeout_ms: int, cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    """A member that commits nothing sends no commit requests, whose failure would show that the connection is lost."""
    name = topic(partitions=4)
    settings = {"zookeeper_session_timeout_ms": session_timeout_ms, "auto_commit_enable": "false"}
    with Cable(cluster.zookeeper.port) as cable:
        writer = load(name, 4)
        cut_off = member({name: 1}, consumer_id="a", zookeeper_connect=f"127.0.0.1:{cable.port}", **settings)
        other = member({name: 1}, consumer_id="b", **settings)
        wait_for(lambda: (cut_off.owned, other.owned) == ([0, 1], [2, 3]), what="both members own partitions")
        cut_off.wait_for_more(200)
        cable.cut()
        wait_for(lambda: other.owned == [0, 1, 2, 3], what="the other member takes over")
        read, owned = cut_off.count, cut_off.owned
        writer.wait_for_more(4000)
        assert (owned, cut_off.owned, cut_off.count) == ([], [], read)
        cable.mend()
        wait_for(lambda: (cut_off.owned, other.owned) == ([0, 1], [2, 3]), what="both members own partitions again")
        cut_off.wait_for_more(200)
        other.leave()
        cut_off.leave()
    assert group_history(cluster.folder, group).violations == []


def test_join_completes_when_zookeeper_resumes(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    with Cable(cluster.zookeeper.port) as cable:
        requests = []

        def freeze(request: bytes) -> None:
            requests.append(request)
            if len(requests) == 4:  # connected, during its first rebalance
                cluster.zookeeper.pause()

        cable.on_request = freeze
        settings = {"zookeeper_connect": f"127.0.0.1:{cable.port}", "rebalance_max_retries": 1000}
        joining = in_thread(lambda: member({name: 1}, **settings))
        wait_for(lambda: len(requests) >= 5, what="the member reconnects")
        assert joining.is_alive()
        cluster.zookeeper.resume()
        one = joining.result()
        assert one.owned == [0, 1]
        one.wait_for_more(100)
        one.leave()


def test_commits_fail_only_while_zookeeper_is_down(
    cluster: DevCluster, consumer: Callable[..., ZookeeperConsumerConnector], topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic()
    produce(cluster.admin, name, 0, numbers(0, 10))
    with Cable(cluster.zookeeper.port) as cable:
        one = consumer(
            auto_commit_enable="false",
            zookeeper_connect=f"127.0.0.1:{cable.port}",
            zookeeper_session_timeout_ms=60_000,  # longer than the restart
        )
        [stream] = one.create_message_streams({name: 1})[name]
        take(stream, 5)
        cluster.zookeeper.kill()
        wait_for(lambda: not one._active_runtime().member.session.is_connected, what="the member is disconnected")
        with pytest.raises(ZooKeeperUnavailableError):
            one.commit_offsets()
        cable.cut()  # see start_zookeeper
        start_zookeeper(cluster)
        cable.mend()
        take(stream, 5)
        wait_for(lambda: one._active_runtime().member.session.is_connected, what="the member is connected again")
        assert one.commit_offsets() == {TopicPartition(name, 0): 10}
        assert stored(zk, group, name) == {0: "10"}
        one.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_repeated_zookeeper_faults_lose_nothing(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str
) -> None:
    name = topic(partitions=6)
    writer = load(name, 6)
    both = [member({name: 2}, consumer_id=i, zookeeper_session_timeout_ms=3000) for i in "ab"]
    for number in range(8):
        for one in both:
            one.wait_for_more(200, 60)
        if number % 2:
            cluster.zookeeper.pause()
            wait_for(lambda: not any(one.owned for one in both), what="both members have released their partitions")
            cluster.zookeeper.resume()
        else:
            cluster.zookeeper.kill()
            start_zookeeper(cluster)
    for one in both:
        one.wait_for_more(200, 60)
    writer.stop()
    wait_until_all_is_read(cluster, name, 6, both)
    for one in both:
        one.leave()
    assert group_history(cluster.folder, group).violations == []
