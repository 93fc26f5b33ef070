"""Fixtures for members of one group as child processes, and for a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.configurations import properties
from helpers.producing import Load
from helpers.teardown import started
from helpers.waiting import wait_for
from kazoo.client import KazooClient

from zkconsumer.devcluster import DevCluster, ExistingCluster

from .group import Group
from .jvm import ChildConsumer, Maker, jvm_consumer
from .neighbours import Neighbours

#: Commit interval of all members, in milliseconds.
COMMIT_INTERVAL_MS = 1000


@pytest.fixture
def child(
    zkconsumer_cluster: DevCluster | ExistingCluster, group: str, zk: KazooClient, tmp_path: Path
) -> Iterator[Callable[..., ChildConsumer]]:
    """Start members: ``child(jvm_consumer, "1-jvm", topic)`` returns when the member has registered.

    With ``consumer_id=None`` the member generates its id, and the call does not wait for it. Other settings are
    properties.
    """

    def start(make: Maker, name: str, topic: str, *, wait: bool = True, **settings: object) -> ChildConsumer:
        # The JVM's tool rejects "smallest" and --from-beginning for a group with offsets.
        refuses = make is jvm_consumer and zk.exists(f"/consumers/{group}/offsets")
        wanted = {
            "zookeeper.connect": zkconsumer_cluster.zookeeper_connect,
            "group.id": group,
            "consumer.id": name,
            "auto.offset.reset": "largest" if refuses else "smallest",
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "zookeeper.session.timeout.ms": 3000,
            "zookeeper.connection.timeout.ms": 20_000,
        } | properties(settings)
        given = {key: value for key, value in wanted.items() if value is not None}
        member = create(make, name, given, topic)
        member.start()
        if wait and wanted["consumer.id"]:
            path = f"/consumers/{wanted['group.id']}/ids/{wanted['group.id']}_{wanted['consumer.id']}"
            wait_for(lambda: zk.exists(path) or not member.is_running, what=f"{name} has registered")
            assert member.is_running, member.log_end()
        return member

    def instantiate(make: Maker, name: str, given: dict[str, Any], topic: str) -> ChildConsumer:
        return make(name, tmp_path, given, topic)

    with started(instantiate, ChildConsumer.kill) as create:
        yield start


@pytest.fixture
def load(zkconsumer_cluster: DevCluster | ExistingCluster) -> Iterator[Callable[..., Load]]:
    """Produce to a topic continuously: ``load(topic, partitions=4)``."""
    with started(partial(Load, zkconsumer_cluster), Load.stop) as start:
        yield start


@pytest.fixture
def neighbours(
    child: Callable[..., ChildConsumer],
    zk: KazooClient,
    group: str,
    topic: Callable[..., str],
    load: Callable[..., Load],
) -> Callable[..., Neighbours]:
    """Create a group without members, and a topic with a load; ``options`` are those of the load."""

    def make(partitions: int = 8, **options: int) -> Neighbours:
        name = topic(partitions)
        return Neighbours(child, Group(zk, group, name), load(name, partitions, **options))

    return make
