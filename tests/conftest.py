"""Fixtures of all tests. Each test has topics and groups of its own, so that any cluster serves.

``ZKCONSUMER_TEST_ZOOKEEPER`` and ``ZKCONSUMER_TEST_BROKERS`` name an existing one; what tests made is deleted
there. Else ``zkconsumer_cluster`` starts one that vanishes with the session.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from kazoo.client import KazooClient
from support import in_thread, properties, remaining_threads
from xdist.scheduler import LoadScopeScheduling

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer
from zkconsumer.devcluster import DevCluster, ExistingCluster

Cluster = DevCluster | ExistingCluster


def pytest_configure() -> None:
    """Have pytest show the package's log where a test fails, and hypothesis measure no time on a shared machine."""
    logging.getLogger("zkconsumer").setLevel(logging.INFO)
    logging.getLogger("zkconsumer.zookeeper.kazoo").setLevel(logging.WARNING)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and would have all its children do so, which the tests interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("zkconsumer", deadline=None)
    settings.load_profile("zkconsumer")


class _Scheduling(LoadScopeScheduling):
    """Runs the tests of a file in one process, and all tests of faults, which depend on time, in one process."""

    def _split_scope(self, nodeid: str) -> str:
        folder, _, _ = nodeid.partition("/test_")
        return folder if folder.endswith("faults") else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Distribute tests over the processes of ``pytest -n``."""
    return _Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests that take longest, so that all processes end at about the same time."""
    order = ["faults", "spark", "interop", "integration", "unit"]
    items.sort(key=lambda item: order.index(item.path.parent.name))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test starts has ended a moment after it: fetchers, leader finders, members, kazoo's threads."""
    before = set(threading.enumerate())
    yield
    left = remaining_threads(before)
    assert not left, "threads that the test has left running: " + "\n".join(left)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no other test and no other run has, with the test's name in them."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")[:60]
    return lambda kind: f"{kind}-{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Create fresh topics: ``topic(partitions=2)`` returns the name of one; further options are Admin's."""
    created = []

    def create(partitions: int = 1, *, name: str | None = None, **options: Any) -> str:
        name = name or unique("t")
        zkconsumer_cluster.create_topic(name, partitions, **options)
        created.append(name)
        return name

    yield create
    if isinstance(zkconsumer_cluster, ExistingCluster):
        for name in created:
            zkconsumer_cluster.admin.delete_topic(name)


@pytest.fixture
def group(zkconsumer_cluster: Cluster, unique: Callable[[str], str], zk: KazooClient) -> Iterator[str]:
    """The name of a group that has no znodes yet."""
    name = unique("g")
    yield name
    if isinstance(zkconsumer_cluster, ExistingCluster):
        for found in zk.get_children("/consumers"):
            if found.startswith(name):
                zk.delete(f"/consumers/{found}", recursive=True)


@pytest.fixture(scope="session")
def zk_session(zkconsumer_cluster: Cluster) -> Iterator[KazooClient]:
    """One connection for all tests, for looking at znodes."""
    client = KazooClient(zkconsumer_cluster.zookeeper_connect)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def zk(zk_session: KazooClient) -> KazooClient:
    """A ZooKeeper client with the cluster's chroot, for looking at znodes."""
    return zk_session


@pytest.fixture
def config(zkconsumer_cluster: Cluster, group: str) -> Callable[..., ConsumerConfig]:
    """Make configurations of members of the test's group: ``config(consumer_id="one")``."""

    def make(**settings: object) -> ConsumerConfig:
        defaults: dict[str, object] = {
            **zkconsumer_cluster.consumer_properties,
            "group.id": group,
            "auto.offset.reset": "smallest",
            "consumer.timeout.ms": 20_000,  # a test that waits for what never comes fails by this
            "zookeeper.sync.time.ms": 200,
        }
        return ConsumerConfig.from_dict(defaults | properties(settings), strict=True)

    return make


@pytest.fixture
def consumer(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    """Make members of the test's group, which are shut down after it: ``consumer(consumer_id="one")``."""
    created: list[ZookeeperConsumerConnector] = []

    def make(**settings: object) -> ZookeeperConsumerConnector:
        created.append(create_consumer(config(**settings)))
        return created[-1]

    yield make
    for connector in created:
        in_thread(connector.shutdown).result(30)  # once a test has failed, pytest-timeout does not watch any more
