"""Fixtures of all tests. Each test has its own topics and groups, so the tests run against any cluster.

``ZKCONSUMER_TEST_ZOOKEEPER`` and ``ZKCONSUMER_TEST_BROKERS`` select an existing cluster; topics and groups that tests
created are deleted there. Otherwise ``zkconsumer_cluster`` starts a cluster and deletes it at the end of the session.
With ``pytest -n``, all processes use the same cluster.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster
from helpers.configurations import consumer_config
from helpers.group_members import consumers
from helpers.threads import remaining_threads
from helpers.topics import SHARED, outlives_tests
from helpers.zookeeper import zookeeper_client
from hypothesis import HealthCheck, settings
from kazoo.client import KazooClient
from xdist.scheduler import LoadScopeScheduling

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, event_limits
from zkconsumer.devcluster import DevCluster
from zkconsumer.tools.cli import main


def pytest_configure() -> None:
    """Set up JVMs, the log that is shown for failed tests, and hypothesis (no time limits, for shared machines)."""
    # Tests start many short-lived JVMs, where the optimizing compiler uses more CPU time than it saves.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    logging.getLogger("zkconsumer").setLevel(logging.INFO)
    logging.getLogger("zkconsumer.zookeeper.kazoo").setLevel(logging.WARNING)
    # Background jobs of a shell ignore SIGINT, and processes started by nohup ignore SIGHUP. The processes that tests
    # start and interrupt would inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    settings.register_profile("zkconsumer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("zkconsumer")


def _split_scope(nodeid: str, *, has_slow: bool) -> str:
    """Return the name of a test's group. The tests of a group run in the same process, one after another.

    All fault tests are in one group, because they depend on timing. Spark tests share a session, because the JVM of
    each new session compiles all of Spark again; with slow tests, they share two sessions, and the two groups take
    about the same time. Other tests are grouped by file.
    """
    file, _, _ = nodeid.partition("::")
    *folders, name = file.split("/")
    if "faults" in folders:
        return "faults"
    if "spark" in folders:
        is_late = name >= "test_p" and not name.startswith("test_streams")
        return "Spark, second part" if has_slow and is_late else "Spark"
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start the cluster that the processes of ``pytest -n`` share, unless an existing one is selected."""
    if "ZKCONSUMER_TEST_ZOOKEEPER" in os.environ:
        return
    cluster = DevCluster(brokers=2).start()
    config.add_cleanup(cluster.stop)
    # The processes inherit the environment.
    os.environ[SHARED] = "1"
    os.environ["ZKCONSUMER_TEST_ZOOKEEPER"] = cluster.zookeeper_connect
    os.environ["ZKCONSUMER_TEST_BROKERS"] = cluster.bootstrap_servers


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Return the scheduler that distributes tests among the processes of ``pytest -n``."""
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = partial(_split_scope, has_slow=config.option.markexpr != "not slow")
    return scheduling


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that all processes end at about the same time."""
    order = {name: number for number, name in enumerate(["faults", "spark", "interop", "integration", "unit"])}

    def position(item: pytest.Item) -> int:
        return next((order[parent.name] for parent in item.path.parents if parent.name in order), len(order))

    items.sort(key=position)


@pytest.fixture(autouse=True)
def events_are_not_limited_by_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log the first event with each cause, even if an earlier test in this process logged it."""
    for name, state in vars(event_limits.EventLimiter()).items():
        monkeypatch.setattr(event_limits._limiter, name, state)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that no thread of a test (fetcher, leader finder, member, kazoo) is alive after the test."""
    before = set(threading.enumerate())
    yield
    left = remaining_threads(before)
    assert not left, "threads are still running after the test: " + "\n".join(left)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return a function that makes names which contain the test's name and are unique to this run of the test."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")[:60]
    return lambda kind: f"{kind}-{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Create topics: ``topic(partitions=2)`` returns the name of a new one; other options are those of ``Admin``."""
    created = []

    def create(partitions: int = 1, *, name: str | None = None, **options: Any) -> str:
        name = name or unique("t")
        zkconsumer_cluster.create_topic(name, partitions, **options)
        created.append(name)
        return name

    yield create
    if outlives_tests(zkconsumer_cluster):
        for name in created:
            zkconsumer_cluster.admin.delete_topic(name)


@pytest.fixture
def group(zkconsumer_cluster: Cluster, unique: Callable[[str], str], zk: KazooClient) -> Iterator[str]:
    """Return the name of a group without znodes; delete its znodes after the test."""
    name = unique("g")
    yield name
    if outlives_tests(zkconsumer_cluster):
        for found in zk.get_children("/consumers"):
            if found.startswith(name):
                zk.delete(f"/consumers/{found}", recursive=True)


@pytest.fixture(scope="session")
def zk_session(zkconsumer_cluster: Cluster) -> Iterator[KazooClient]:
    """Return a ZooKeeper connection that all tests share for reading znodes."""
    with zookeeper_client(zkconsumer_cluster.zookeeper_connect) as client:
        yield client


@pytest.fixture
def zk(zk_session: KazooClient) -> KazooClient:
    """Return a ZooKeeper client with the chroot of the cluster."""
    return zk_session


@pytest.fixture
def config(zkconsumer_cluster: Cluster, group: str) -> Callable[..., ConsumerConfig]:
    """Return a function that makes the configuration of a group member: ``config(consumer_id="one")``."""

    def make(**settings: object) -> ConsumerConfig:
        return consumer_config(zkconsumer_cluster, **({"group_id": group, "zookeeper_sync_time_ms": 200} | settings))

    return make


@pytest.fixture
def consumer(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    """Create group members: ``consumer(consumer_id="one")``; they are shut down after the test."""
    with consumers(config) as make:
        yield make


@pytest.fixture
def admin(zkconsumer_cluster: Cluster) -> Any:
    return zkconsumer_cluster.admin


@pytest.fixture
def at(zkconsumer_cluster: Cluster) -> str:
    """Return ``zookeeper.connect`` of the cluster."""
    return zkconsumer_cluster.zookeeper_connect


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a tool; return its exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``console-consumer`` in this process; return its only line on standard error, after an exit code."""

    def run(*arguments: str, exit_code: int = 2) -> str:
        code = main(["console-consumer", *arguments])
        out, errors = capfd.readouterr()
        assert (code, out) == (exit_code, ""), errors
        assert re.fullmatch("zkconsumer console-consumer: .*\n", errors), errors
        return errors

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], str]:
    """Write a properties file and return its path."""

    def write(content: bytes) -> str:
        path = tmp_path / "given.properties"
        path.write_bytes(content)
        return str(path)

    return write
