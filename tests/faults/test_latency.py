"""Members whose ZooKeeper is slow to answer, or does not answer at some addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from helpers.aliases import Topics
from helpers.producing import Load
from helpers.threads import in_thread
from helpers.waiting import wait_for

from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import OwnershipLostError

from .faults import Cable, Member, full_backlog

Members = Callable[..., Member]


def test_commits_of_threads_do_not_delay_join(
    cluster: DevCluster, member: Members, topic: Topics, load: Callable[..., Load]
) -> None:
    """Four threads commit as often as they can, through a connection that takes 10 ms per request."""
    name = topic(partitions=8)
    load(name, 8)
    stopping = threading.Event()
    with Cable(cluster.zookeeper.port) as cable:
        cable.delay_s = 0.005
        slow = {"zookeeper_session_timeout_ms": 6000, "zookeeper_connect": f"127.0.0.1:{cable.port}"}
        one = member({name: 4}, consumer_id="a", auto_commit_enable=False, **slow)
        one.wait_for_more(100)

        committed = [0] * 4

        def commit(thread: int) -> None:
            while not stopping.is_set():
                try:
                    one.connector.commit_offsets()
                except OwnershipLostError:
                    continue  # released while the call waited
                committed[thread] += 1

        committing = [in_thread(partial(commit, thread)) for thread in range(4)]
        try:
            wait_for(lambda: min(committed) > 5, what="all threads commit")
            started = time.monotonic()
            two = member({name: 4}, consumer_id="b", **slow)
            wait_for(lambda: (len(one.owned), len(two.owned)) == (4, 4), what="both members own partitions")
            took = time.monotonic() - started
        finally:
            stopping.set()
        for thread in committing:
            thread.result()
        print(f"joined in {took:.2f} s beside {sum(committed)} commits")
        assert took < 4, "less than the session timeout"
        one.leave()
        two.leave()


@pytest.mark.slow
def test_join_through_slow_connection(cluster: DevCluster, member: Members, topic: Topics) -> None:
    name = topic(partitions=4)
    with Cable(cluster.zookeeper.port) as cable:
        cable.delay_s = 0.25
        started = time.monotonic()
        one = member({name: 1}, zookeeper_session_timeout_ms=20_000, zookeeper_connect=f"127.0.0.1:{cable.port}")
        took = time.monotonic() - started
        print(f"joined in {took:.1f} s with 0.5 s per request")
        assert one.owned == [0, 1, 2, 3]
        assert took < 15
        cable.delay_s = 0.0
        one.leave()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_join_beside_addresses_that_drop_packets(
    count: int, cluster: DevCluster, member: Members, topic: Topics
) -> None:
    name = topic(partitions=1)
    with full_backlog() as first, full_backlog() as second:
        ports = [first, second][:count]
        hosts = ",".join(f"127.0.0.1:{port}" for port in (*ports, cluster.zookeeper.port))
        times = []
        for _ in range(10):  # kazoo tries the addresses in a random order
            started = time.monotonic()
            one = member({name: 1}, zookeeper_session_timeout_ms=6000, zookeeper_connect=hosts)
            times.append(time.monotonic() - started)
            assert one.owned == [0]
            one.leave()
        print(f"{count} silent addresses: joined in {sorted(round(took, 1) for took in times)} s")
        assert max(times) < 6


@pytest.mark.slow
def test_shutdown_beside_address_that_drops_packets(cluster: DevCluster, member: Members, topic: Topics) -> None:
    name = topic(partitions=1)
    with full_backlog() as silent, Cable(cluster.zookeeper.port) as cable:
        hosts = f"127.0.0.1:{cable.port},127.0.0.1:{silent}"
        one = member({name: 1}, zookeeper_session_timeout_ms=60_000, zookeeper_connect=hosts)
        cable.cut()
        started = time.monotonic()
        one.leave()
        took = time.monotonic() - started
        print(f"shut down in {took:.1f} s")
        assert took < 20, "a third of the session timeout"
