"""Tests of health: each cause is reported in time, with its code, and ordinary rebalances are not reported."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator

import pytest
from helpers.aliases import Loads, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import Health, HealthReason, HealthState
from zkconsumer.tools.cli import main

from .faults import Cable, Member, Peer, expire, kill
from .test_coordinator_faults import coordinator_of

Members = Callable[..., Member]


def reason(member: Member, code: str, timeout: float = 10.0) -> HealthReason:
    """Wait until the health of a member has a reason with the code, and return the reason."""

    def found() -> HealthReason | None:
        return next((one for one in member.connector.health.reasons if one.code == code), None)

    return wait_for(found, timeout, what=f"{code} is reported; now: {member.connector.health}")


def wait_until_healthy(member: Member, timeout: float = 20.0) -> None:
    wait_for(lambda: member.connector.health.is_healthy, timeout, what="the member is healthy")


@pytest.fixture
def doctor(cluster: DevCluster, group: str, capfd: pytest.CaptureFixture[str]) -> Callable[[], dict[str, set[str]]]:
    """Run ``doctor``; return the partitions of each reason."""

    def call() -> dict[str, set[str]]:
        return examined(cluster, group, capfd)

    return call


def examined(cluster: DevCluster, group: str, capfd: pytest.CaptureFixture[str]) -> dict[str, set[str]]:
    """Return the partitions of each reason that ``doctor`` reports."""
    capfd.readouterr()
    main(["doctor", "--zookeeper", cluster.zookeeper_connect, "--group", group, "--json"])
    report = json.loads(capfd.readouterr().out)
    assert (report["health"] == "healthy") is not bool(report["healthReasons"])
    return {
        reason["code"]: {f"{one['topic']}-{one['partition']}" for one in reason["partitions"]}
        for reason in report["healthReasons"]
    }


@pytest.mark.slow
def test_partition_without_leader_stalls(
    cluster: DevCluster,
    member: Members,
    topic: Topics,
    zk: KazooClient,
    doctor: Callable[[], dict[str, set[str]]],
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(cluster.admin, name, partition, numbers(0, 50))
    one = member({name: 1})
    one.wait_for_more(100)
    wait_until_healthy(one)
    broker = cluster.brokers[0]
    led = {p for p in range(2) if cluster.admin._leader_of(TopicPartition(name, p)).port == broker.endpoint.port}
    kill(broker, zk)
    found = reason(one, "leader_not_found")
    assert (found.state, {p.partition for p in found.partitions}) == (HealthState.STALLED, led)
    assert one.connector.health.state is HealthState.STALLED
    assert doctor() == {"leader_not_found": {f"{name}-{partition}" for partition in led}}
    broker.start()
    wait_until_healthy(one, 60)
    wait_until_equal(doctor, {})  # the brokers learn of the change one after another


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_unreachable_coordinator_stalls(
    cluster: DevCluster,
    member: Members,
    topic: Topics,
    load: Loads,
    group: str,
    zk: KazooClient,
    doctor: Callable[[], dict[str, set[str]]],
) -> None:
    timeout_s = 2
    broker = coordinator_of(cluster, group)
    name = topic(partitions=1, replication=2)
    load(name, 1)
    one = member(
        {name: 1},
        offsets_storage="kafka",
        dual_commit_enabled=False,
        offsets_channel_socket_timeout_ms=timeout_s * 1000,
        offsets_channel_backoff_ms=200,
    )
    one.wait_for_more(100)
    wait_until_healthy(one)
    killed_at = time.time()
    kill(broker, zk)
    found = reason(one, "commit_failed")
    assert found.state is HealthState.STALLED
    assert time.time() - found.since < 2
    assert found.since - killed_at < timeout_s + 2
    assert doctor() == {"commit_failed": {f"{name}-0"}}
    broker.start()
    wait_until_healthy(one, 60)


@pytest.fixture
def authorizing() -> Iterator[DevCluster]:
    """Start a cluster whose broker checks ACLs; all clients have the rights that no ACL concerns."""
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with DevCluster(broker_config=authorizer) as cluster:
        yield cluster


@pytest.mark.timeout(180)
def test_withdrawn_rights_stall(
    authorizing: DevCluster, unique: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    name, group = authorizing.create_topic(unique("t"), 2), unique("g")
    config = ConsumerConfig.from_dict(
        {**authorizing.consumer_properties, "group.id": group, "auto.offset.reset": "smallest"}
    )
    everybody = ("User:*", "*", ACLOperation.ALL, ACLPermissionType.DENY, ResourcePattern(ResourceType.TOPIC, name))
    one = Member(config, {name: 1})
    admin = KafkaAdminClient(bootstrap_servers=authorizing.bootstrap_servers)
    try:
        for partition in range(2):
            produce(authorizing.admin, name, partition, numbers(0, 10))
        wait_for(lambda: one.count == 20)
        wait_until_healthy(one)
        denied_at = time.time()
        admin.create_acls([ACL(*everybody)])
        both = {TopicPartition(name, 0), TopicPartition(name, 1)}
        wait_for(lambda: reason(one, "topic_authorization_failed").partitions == both)
        found = reason(one, "topic_authorization_failed")
        assert found.state is one.connector.health.state is HealthState.STALLED
        assert time.time() - found.since < 2
        assert found.since - denied_at < 2
        assert examined(authorizing, group, capfd) == {"topic_authorization_failed": {f"{name}-0", f"{name}-1"}}
        admin.delete_acls([ACLFilter(*everybody)])
        wait_until_healthy(one)
        wait_for(lambda: examined(authorizing, group, capfd) == {}, what="doctor finds nothing")
        produce(authorizing.admin, name, 0, numbers(10, 20))
        wait_for(lambda: one.count == 30)
    finally:
        admin.close()
        one.leave()


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


def test_member_that_failed_reports_its_error(
    cluster: DevCluster, member: Members, topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(partitions=1)
    one = member({name: 1}, ignored_errors=(ZkConsumerError,))
    wait_until_healthy(one)

    def fail(_event: object) -> None:
        raise RuntimeError("unexpected error")

    monkeypatch.setattr(one.core._watch, "_record", fail)
    expire(cluster, one)
    found = reason(one, "member_failed")
    assert found.state is HealthState.FAILED
    [unbalanced] = [values for name, values in one.connector.metrics.items() if name.name == "UnbalancedSeconds"]
    assert unbalanced["Value"] > 0
    one.connector.shutdown()
    assert one.connector.health.state is HealthState.FAILED


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, pytest.param(600, marks=pytest.mark.timeout(720))])
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


@pytest.mark.parametrize("max_age_ms", [300_000, 200])
def test_unreachable_bootstrap_server_does_not_stall_member(
    max_age_ms: int, cluster: DevCluster, member: Members, topic: Topics, load: Loads
) -> None:
    """The rival joins after the cut; with the short poll interval, a lookup is always in progress."""
    name = topic(partitions=2)
    load(name, 2)
    with Cable(cluster.brokers[0].endpoint.port) as cable:
        one = member(
            {name: 1},
            consumer_id="a",
            bootstrap_servers=f"127.0.0.1:{cable.port}",
            metadata_max_age_ms=max_age_ms,
        )
        one.wait_for_more(100)
        cable.cut()
        two = member({name: 1}, consumer_id="b")
        assert (len(one.connector.assignment), len(two.connector.assignment)) == (1, 1)
        one.wait_for_more(100)
        two.wait_for_more(100)
        wait_until_healthy(one)
