"""No record is delivered after another member owns its partition, whatever the cut-off member waits for.

Each of the slow tests has twenty groups behind the same proxies. ``make test`` runs a sample with few groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from helpers.aliases import Configs, Loads, Topics
from helpers.producing import numbers, produce
from helpers.topics import end_offsets
from helpers.waiting import wait_for
from interop.jvm import ChildConsumer, jvm_consumer

from zkconsumer import ConsumerConfig
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import ZooKeeperServer

from .cut_off import CutOff, Takeover, describe, takeover
from .ensemble import Ensemble
from .faults import Cable, settings

#: Number of groups in each slow test.
GROUPS = 20


def check(name: str, takeovers: list[Takeover], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the figures, and check that nothing was delivered after a takeover."""
    with capsys.disabled():
        print(f"\n{describe(name, takeovers)}")
    assert sum(one.after for one in takeovers) == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [3, pytest.param(GROUPS, marks=pytest.mark.slow)])
def test_idle_members_without_zookeeper(
    count: int,
    cluster: DevCluster,
    config: Configs,
    topic: Topics,
    load: Loads,
    group: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No bootstrap.servers and nothing to commit: no other request shows that the connection is dead."""
    name = topic(partitions=2)
    load(name, 2, per_second=200)
    settings = {"zookeeper_session_timeout_ms": 6000, "auto_commit_enable": "false", "consumer_timeout_ms": -1}
    with Cable(cluster.zookeeper.port) as cable, CutOff(cluster.zookeeper_connect, name, config) as groups:
        groups.add_many(count, group, partial(config, zookeeper_connect=f"127.0.0.1:{cable.port}", **settings))
        check("ZooKeeper mode, 6 s", groups.takeovers(cable.cut, 60), capsys)


@pytest.fixture
def strict_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that grants session timeouts of at most 10 s, for groups whose brokers are not registered in it."""
    server = ZooKeeperServer(tmp_path, extra={"maxSessionTimeout": 10_000})
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_shorter_granted_session_timeout(
    cluster: DevCluster,
    strict_zookeeper: ZooKeeperServer,
    config: Configs,
    topic: Topics,
    load: Loads,
    group: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = topic(partitions=2)
    load(name, 2, per_second=200)

    def configured(**more: object) -> ConsumerConfig:
        common = {"zookeeper_connect": strict_zookeeper.connect, "bootstrap_servers": cluster.bootstrap_servers}
        return config(**(common | {"auto_commit_enable": "false", "consumer_timeout_ms": -1} | more))

    with Cable(strict_zookeeper.port) as cable, CutOff(strict_zookeeper.connect, name, configured) as groups:
        proxied = {"zookeeper_connect": f"127.0.0.1:{cable.port}", "zookeeper_session_timeout_ms": 60_000}
        groups.add_many(GROUPS, group, partial(configured, **proxied))
        check("60 s requested, 10 s granted", groups.takeovers(cable.cut, 60), capsys)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_member_that_waits_for_silent_brokers(
    cluster: DevCluster, config: Configs, topic: Topics, load: Loads, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bootstrap servers are cut off first; records still arrive from the brokers' own addresses."""
    name = topic(partitions=2)
    load(name, 2, per_second=200)
    with ExitStack() as stack:
        cable = stack.enter_context(Cable(cluster.zookeeper.port))
        silent = [stack.enter_context(Cable(cluster.brokers[i % 2].endpoint.port)) for i in range(8)]
        settings = {
            "bootstrap_servers": ",".join(f"127.0.0.1:{one.port}" for one in silent),
            "zookeeper_connect": f"127.0.0.1:{cable.port}",
            "metadata_max_age_ms": 2000,
            "zookeeper_session_timeout_ms": 6000,
            "consumer_timeout_ms": -1,
        }
        groups = stack.enter_context(CutOff(cluster.zookeeper_connect, name, config))
        groups.add_many(GROUPS, group, partial(config, **settings))
        for one in silent:
            one.cut()
            stack.callback(one.mend)

        def cut() -> None:
            groups.wait_for_deliveries(600)  # the members poll the brokers in the meantime
            cable.cut()

        check("8 silent bootstrap servers, 6 s", groups.takeovers(cut, 60), capsys)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_follower_without_leader(
    cluster: DevCluster,
    config: Configs,
    topic: Topics,
    load: Loads,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The follower responds to pings and reads for 20 s after it has lost the leader, which expires its sessions."""
    name = topic(partitions=2)
    load(name, 2, per_second=200)
    with Ensemble(tmp_path) as ensemble:
        leader, follower = ensemble.leader, ensemble.follower

        def configured(**more: object) -> ConsumerConfig:
            common = {"zookeeper_connect": leader.connect, "bootstrap_servers": cluster.bootstrap_servers}
            return config(**(common | {"zookeeper_session_timeout_ms": 6000, "consumer_timeout_ms": -1} | more))

        with CutOff(leader.connect, name, configured) as groups:
            separated = {"zookeeper_connect": follower.connect, "auto_commit_enable": "false"}
            groups.add_many(GROUPS, group, partial(configured, **separated))
            takeovers = groups.takeovers(lambda: ensemble.separate(follower, leader), 60)
            check("a follower cut off from the leader, 6 s", takeovers, capsys)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", ["silent coordinator", "coordinator with 20 bytes/s", "silent host"])
def test_member_that_waits_for_its_coordinator(
    fault: str,
    cluster: DevCluster,
    config: Configs,
    topic: Topics,
    group: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Offsets are committed to Kafka; the coordinator, or all servers at once, send nothing any more, or too slowly.

    The application is slow, so that records remain in the queue.
    """
    name = topic(partitions=2)
    for partition in range(2):
        produce(cluster.admin, name, partition, numbers(0, 20_000))
    with ExitStack() as stack:
        zookeeper = stack.enter_context(Cable(cluster.zookeeper.port))
        brokers = [stack.enter_context(Cable(server.endpoint.port)) for server in cluster.brokers]
        for server, cable in zip(cluster.brokers, brokers, strict=True):
            advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{cable.port}"
            stack.enter_context(settings(server, cluster.folder, advertised))
        end_offsets(cluster, name, 2)  # the leaders are known at their new addresses
        common = {
            "zookeeper_connect": cluster.zookeeper_connect,
            "bootstrap_servers": "",
            "zookeeper_session_timeout_ms": 6000,
            "consumer_timeout_ms": -1,
        }

        def configured(**more: object) -> ConsumerConfig:
            return config(**(common | more))

        groups = stack.enter_context(CutOff(cluster.zookeeper_connect, name, configured))
        committing = {
            "zookeeper_connect": f"127.0.0.1:{zookeeper.port}",
            "offsets_storage": "kafka",
            "dual_commit_enabled": False,
            "auto_commit_interval_ms": 500,
        }
        groups.add_many(GROUPS, group, partial(configured, **committing), pause=0.005)

        def cut() -> None:
            for cable in brokers:
                if fault == "coordinator with 20 bytes/s":
                    cable.bytes_per_s = 20
                else:
                    cable.cut()
            if fault != "silent host":
                groups.wait_for_deliveries(400)  # commits wait for the coordinator in the meantime
            zookeeper.cut()

        try:
            check(f"{fault}, 6 s", groups.takeovers(cut, 60), capsys)
        finally:
            for cable in (*brokers, zookeeper):
                cable.bytes_per_s = 0
                cable.mend()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_jvm_member_for_comparison(
    cluster: DevCluster,
    config: Configs,
    topic: Topics,
    load: Loads,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Print the same figures of a member of Kafka 1.1.1 that is cut off in the same way; they are not checked."""
    name = topic(partitions=2)
    load(name, 2, per_second=200)
    delivered_at: list[float] = []
    stopped = threading.Event()

    def sample(jvm: ChildConsumer) -> None:
        while not stopped.wait(0.02):
            delivered_at.extend([time.monotonic()] * (len(jvm.values) - len(delivered_at)))

    with Cable(cluster.zookeeper.port) as cable, CutOff(cluster.zookeeper_connect, name, config) as groups:
        properties = {
            "group.id": group,
            "consumer.id": "a",
            "zookeeper.connect": f"127.0.0.1:{cable.port}",
            "zookeeper.session.timeout.ms": 6000,
            "auto.commit.enable": "false",
            "auto.offset.reset": "smallest",
        }
        jvm = jvm_consumer("cut-off", tmp_path, properties, name)
        jvm.start()
        sampler = threading.Thread(target=sample, args=(jvm,), name="test-sampler", daemon=True)
        sampler.start()
        try:
            wait_for(lambda: len(delivered_at) > 100, 60, what="the JVM member reads")
            groups.add_rival(group)
            before = len(delivered_at)
            wait_for(lambda: len(delivered_at) > before + 100, what="the JVM member reads its remaining partition")
            cable.cut()
            cut_at = time.monotonic()
            [taken_at] = groups.times_of_takeover([group], 60)
            end = time.monotonic() + 10
            wait_for(lambda: time.monotonic() > end, what="deliveries after the takeover were recorded")
        finally:
            stopped.set()
            sampler.join()
            cable.mend()
            jvm.stop()
    with capsys.disabled():
        print(f"\n{describe('JVM 1.1.1, 6 s, until 10 s later', [takeover(delivered_at, taken_at, cut_at)])}")
