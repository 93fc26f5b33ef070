"""Tests of health: each cause is reported in time, with its code, and ordinary rebalances are not reported."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from support import Load, wait_for

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import Health, HealthReason, HealthState

from .faults import Cable, Member, Peer, expire, kill

Members = Callable[..., Member]
Topics = Callable[..., str]
Loads = Callable[..., Load]


def reason(member: Member, code: str, timeout: float = 10.0) -> HealthReason:
    """Wait until the health of a member has a reason with the code, and return the reason."""

    def found() -> HealthReason | None:
        return next((one for one in member.connector.health.reasons if one.code == code), None)

    return wait_for(found, timeout, what=f"{code} is reported; now: {member.connector.health}")


def wait_until_healthy(member: Member, timeout: float = 20.0) -> None:
    wait_for(lambda: member.connector.health.is_healthy, timeout, what="the member is healthy")


def test_partition_without_leader_stalls(
    cluster: DevCluster, member: Members, topic: Topics, load: Loads, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1})
    one.wait_for_more(100)
    wait_until_healthy(one)
    broker = cluster.brokers[0]
    led = {p for p in range(2) if cluster.admin._leader_of(TopicPartition(name, p)).port == broker.endpoint.port}
    kill(broker, zk)
    found = reason(one, "leader_not_found")
    assert (found.state, {p.partition for p in found.partitions}) == (HealthState.STALLED, led)
    assert one.connector.health.state is HealthState.STALLED
    broker.start()
    wait_until_healthy(one, 60)


def test_silent_cut_is_reported_when_lease_ends(
    cluster: DevCluster, member: Members, topic: Topics, load: Loads
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    reported: list[tuple[float, Health]] = []
    with Cable(cluster.zookeeper.port) as cable:
        one = member(
            {name: 1},
            zookeeper_connect=f"127.0.0.1:{cable.port}",
            zookeeper_session_timeout_ms=4000,
            health_listener=lambda health: reported.append((time.monotonic(), health)),
        )
        one.wait_for_more(100)
        cable.cut()
        cut_at = time.monotonic()
        wait_for(lambda: any(h.state is HealthState.DISCONNECTED for _, h in reported), what="the cut is reported")
        assert reported[-1][0] - cut_at < 0.75 * 4 + 2
        cable.mend()
        wait_until_healthy(one)
        wait_for(lambda: reported[-1][1].is_healthy, what="the recovery is reported")
        one.leave()


@pytest.mark.parametrize("cause", ["registration", "owner"])
def test_foreign_znode_in_the_way_stalls(
    cause: str, cluster: DevCluster, member: Members, topic: Topics, group: str
) -> None:
    name = topic(partitions=2)
    settings = {"rebalance_max_retries": 3, "rebalance_backoff_ms": 200}
    one = member({name: 1}, **settings)
    wait_until_healthy(one)
    with Peer(cluster, group) as peer:
        if cause == "registration":
            path = peer.register(b"not a registration")
            found = reason(one, "registration_invalid")
        else:
            path = peer.own(name, 2)
            cluster.admin.create_partitions(name, 3)
            found = reason(one, "partition_not_released")
        assert found.state is HealthState.STALLED
        assert path in found.message
    wait_until_healthy(one)


def test_member_that_failed_reports_its_error(cluster: DevCluster, member: Members, topic: Topics) -> None:
    name = topic(partitions=1)
    one = member({name: 1}, ignored_errors=(ZkConsumerError,))
    wait_until_healthy(one)

    def fail(_event: object) -> None:
        raise RuntimeError("unexpected error")

    one.core._events.on_zookeeper_event = fail
    expire(cluster, one)
    found = reason(one, "member_failed")
    assert found.state is HealthState.FAILED
    one.connector.shutdown()
    assert one.connector.health.state is HealthState.FAILED


@pytest.mark.parametrize("seconds", [10, pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(720)])])
def test_ordinary_rebalances_do_not_stall(
    seconds: float, member: Members, topic: Topics, load: Loads, config: Callable[..., ConsumerConfig]
) -> None:
    name = topic(partitions=6)
    load(name, 6)
    reported: list[Health] = []
    one = member({name: 1}, consumer_id="a", health_listener=reported.append)
    others: list[Member] = []
    rng = random.Random(1)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        if others and rng.random() < 0.5:
            others.pop(rng.randrange(len(others))).leave()
        elif len(others) < 3:
            number += 1
            others.append(member({name: 1}, consumer_id=f"b{number}"))
        one.wait_for_more(100)
    assert [health.reasons[0] for health in reported if health.state > HealthState.REBALANCING] == []
