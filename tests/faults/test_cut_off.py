"""No record is delivered after another member owns its partition, whatever the cut-off member waits for.

Each of the slow tests has twenty groups behind the same proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import Load

from zkconsumer import ConsumerConfig
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import ZooKeeperServer

from .cut_off import CutOff, Takeover, describe
from .faults import Cable

Configs = Callable[..., ConsumerConfig]
Loads = Callable[..., Load]
Topics = Callable[..., str]

#: Number of groups in each slow test.
GROUPS = 20


def check(name: str, takeovers: list[Takeover], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the figures, and check that nothing was delivered after a takeover."""
    with capsys.disabled():
        print(f"\n{describe(name, takeovers)}")
    assert sum(one.after for one in takeovers) == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_idle_members_without_zookeeper(
    cluster: DevCluster, config: Configs, topic: Topics, load: Loads, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No bootstrap.servers and nothing to commit: no other request shows that the connection is dead."""
    name = topic(partitions=2)
    load(name, 2, per_second=200)
    settings = {"zookeeper_session_timeout_ms": 6000, "auto_commit_enable": "false", "consumer_timeout_ms": -1}
    with Cable(cluster.zookeeper.port) as cable, CutOff(cluster.zookeeper_connect, name, config) as groups:
        for number in range(GROUPS):
            groups.add(
                config(
                    group_id=f"{group}-{number}",
                    consumer_id="a",
                    zookeeper_connect=f"127.0.0.1:{cable.port}",
                    **settings,
                )
            )
        groups.wait_for_deliveries()
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

    def settings(**more: object) -> ConsumerConfig:
        common = {"zookeeper_connect": strict_zookeeper.connect, "bootstrap_servers": cluster.bootstrap_servers}
        return config(**(common | {"auto_commit_enable": "false", "consumer_timeout_ms": -1} | more))

    with Cable(strict_zookeeper.port) as cable, CutOff(strict_zookeeper.connect, name, settings) as groups:
        for number in range(GROUPS):
            groups.add(
                settings(
                    group_id=f"{group}-{number}",
                    consumer_id="a",
                    zookeeper_connect=f"127.0.0.1:{cable.port}",
                    zookeeper_session_timeout_ms=60_000,
                )
            )
        groups.wait_for_deliveries()
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
        for number in range(GROUPS):
            groups.add(config(group_id=f"{group}-{number}", consumer_id="a", **settings))
        groups.wait_for_deliveries()
        for one in silent:
            one.cut()
            stack.callback(one.mend)

        def cut() -> None:
            groups.wait_for_deliveries(600)  # the members poll the brokers in the meantime
            cable.cut()

        check("8 silent bootstrap servers, 6 s", groups.takeovers(cut, 60), capsys)
