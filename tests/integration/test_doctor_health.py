"""Tests of the health of a group that ``doctor`` reports: the states and codes of a consumer's own health."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Run, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for
from helpers.znodes import registered, set_offsets
from kazoo.client import KazooClient

from zkconsumer import ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster, ExistingCluster

Health = Callable[..., tuple[str, dict[str, dict[str, Any]]]]


@pytest.fixture
def health(run: Run, group: str, at: str) -> Health:
    """Run ``doctor``; return the state, and the reason of each code."""

    def call(*arguments: object) -> tuple[str, dict[str, dict[str, Any]]]:
        code, out, _ = run("doctor", "--zookeeper", at, "--group", group, "--json", *arguments)
        report = json.loads(out)
        assert code == (1 if report["findings"] else 0)
        reasons = {reason["code"]: reason for reason in report["healthReasons"]}
        for reason in reasons.values():
            reason["partitions"] = [f"{p['topic']}-{p['partition']}" for p in reason["partitions"]]
        return report["health"], reasons

    return call


@pytest.fixture
def other(zkconsumer_cluster: DevCluster | ExistingCluster) -> Iterator[KazooClient]:
    """Return the session of another client; its ephemeral znodes are deleted after the test."""
    client = KazooClient(zkconsumer_cluster.zookeeper_connect)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def test_group_without_members_has_failed(topic: Topics, group: str, zk: KazooClient, health: Health) -> None:
    set_offsets(zk, group, topic(), {0: 0})

    state, reasons = health()

    assert (state, list(reasons)) == ("failed", ["no_members"])


def test_group_of_running_application_is_in_use(
    topic: Topics,
    group: str,
    admin: Any,
    zk: KazooClient,
    other: KazooClient,
    health: Health,
    run: Run,
    at: str,
) -> None:
    """A ``StreamsApp`` has no members, but an ephemeral znode."""
    name = topic()
    set_offsets(zk, group, name, {0: 0})
    zk.create(f"/consumers/{group}/application", b"left by a backup")  # not ephemeral, so no application runs
    assert health()[0] == "failed"
    zk.delete(f"/consumers/{group}/application")
    other.create(f"/consumers/{group}/application", b"process 7 on host", ephemeral=True)

    assert health() == ("healthy", {})
    produce(admin, name, 0, numbers(0, 10))
    mtime = zk.exists(f"/consumers/{group}/offsets/{name}/0").mtime / 1000
    wait_for(lambda: time.time() > mtime + 1)
    state, reasons = health("--stale-after", 1)
    assert (state, list(reasons)) == ("stalled", ["commit_failed"])
    assert reasons["commit_failed"]["partitions"] == [f"{name}-0"]
    assert (
        f"group {group}: 0 members, StreamsApp in process 7 on host, "
        in run("doctor", "--zookeeper", at, "--group", group)[1]
    )
    out = run("watch", "--zookeeper", at, "--group", group, "--count", "1")[1]
    assert out.startswith(f"group {group}: 0 members, StreamsApp in process 7 on host, 1 partition, lag 10")
    code, out, _ = run("consumer-groups", "--zookeeper", at, "--delete", "--group", group)
    assert (code, out) == (1, f"Error: Delete for group '{group}' failed because its consumers are still active.\n")
    code, _, errors = run("migrate-offsets", "--zookeeper", at, "--group", group, "--to", "kafka", "--execute")
    assert code == 1
    assert "has live members: the StreamsApp in process 7 on host; stop them" in errors
    assert zk.exists(f"/consumers/{group}/application")


def test_malformed_registration_stalls_group_and_member(
    topic: Topics,
    consumer: Callable[..., ZookeeperConsumerConnector],
    group: str,
    zk: KazooClient,
    other: KazooClient,
    health: Health,
    run: Run,
    at: str,
) -> None:
    name = topic(2)
    connector = consumer(consumer_id="c")
    connector.create_message_streams({name: 1})
    assert health() == ("healthy", {})
    path = f"/consumers/{group}/ids/{group}_broken"
    other.create(path, b"not json", ephemeral=True)
    wait_for(lambda: not connector.health.is_healthy, what="the member reports the registration")

    state, reasons = health()

    assert state == connector.health.state.name.lower() == "stalled"
    assert list(reasons) == [reason.code for reason in connector.health.reasons] == ["registration_invalid"]
    found = reasons["registration_invalid"]
    assert found["since"] == pytest.approx(zk.exists(path).mtime / 1000)
    assert found["partitions"] == []
    assert path in found["message"]
    out = run("doctor", "--zookeeper", at, "--group", group)[1]
    assert out.startswith("health: stalled (registration_invalid; since 20")


def test_owner_that_is_no_member_stalls_its_partitions(
    topic: Topics, group: str, zk: KazooClient, other: KazooClient, health: Health, run: Run, at: str
) -> None:
    name = topic(8)
    registered(other, group, "a", {name: 1})
    for number in range(7):
        path = f"/consumers/{group}/owners/{name}/{number}"
        other.create(path, f"{group}_zombie-0".encode(), ephemeral=True, makepath=True)
    before = time.time()

    state, reasons = health()

    assert (state, set(reasons)) == ("stalled", {"partition_not_released", "rebalance_failed"})
    assert reasons["partition_not_released"]["partitions"] == [f"{name}-{number}" for number in range(7)]
    first = zk.exists(f"/consumers/{group}/owners/{name}/0")
    assert reasons["partition_not_released"]["since"] == pytest.approx(first.mtime / 1000)
    assert reasons["rebalance_failed"]["partitions"] == [f"{name}-7"]
    assert reasons["rebalance_failed"]["since"] == pytest.approx(before, abs=10)
    _, out, _ = run("doctor", "--zookeeper", at, "--group", group)
    shown = ", ".join(f"{name}-{number}" for number in range(5))
    assert f"(partition_not_released: {shown} and 2 more; since " in out
    assert f"; rebalance_failed: {name}-7; since " in out


def test_group_whose_owners_change_is_rebalancing(
    topic: Topics, group: str, other: KazooClient, health: Health
) -> None:
    name, stop = topic(2), threading.Event()
    registered(other, group, "a", {name: 1})
    path = f"/consumers/{group}/owners/{name}/0"
    other.create(path, b"", ephemeral=True, makepath=True)

    def move() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            other.set(path, f"{group}_leaving{count}-0".encode())

    thread = threading.Thread(target=move, name="test-moving")
    thread.start()
    try:
        state, reasons = health()
    finally:
        stop.set()
        thread.join()

    assert (state, list(reasons)) == ("rebalancing", ["rebalancing"])
    assert reasons["rebalancing"]["partitions"] == [f"{name}-0", f"{name}-1"]


def test_partition_without_commits_stalls(
    admin: Any,
    topic: Topics,
    consumer: Callable[..., ZookeeperConsumerConnector],
    group: str,
    zk: KazooClient,
    health: Health,
) -> None:
    name = topic(2)
    produce(admin, name, 1, numbers(0, 10))
    consumer(consumer_id="c", auto_commit_enable=False).create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 0, 1: 4})
    mtime = zk.exists(f"/consumers/{group}/offsets/{name}/1").mtime / 1000
    wait_for(lambda: time.time() > mtime + 1)

    state, reasons = health("--stale-after", 1)

    assert (state, list(reasons)) == ("stalled", ["commit_failed"])
    assert reasons["commit_failed"]["partitions"] == [f"{name}-1"]
    assert reasons["commit_failed"]["since"] == pytest.approx(mtime)
