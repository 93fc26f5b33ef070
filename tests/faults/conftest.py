"""A cluster for these tests alone, since they kill, pause and restart its servers.

It takes the place of the ``zkconsumer_cluster`` of all other tests, so the fixtures in ``tests/conftest.py`` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from support import PATIENCE, Load, start_zookeeper, wait_for

from zkconsumer import ConsumerConfig
from zkconsumer.broker import protocol
from zkconsumer.devcluster import Admin, DevCluster
from zkconsumer.devcluster.servers import Broker
from zkconsumer.errors import RetriableError, ZkConsumerError

from .faults import Member

#: Milliseconds after which ZooKeeper takes a silent member for dead; short, since tests wait for it.
SESSION_TIMEOUT_MS = 2000


@pytest.fixture(scope="package")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """ZooKeeper and two brokers that stop at once."""
    with DevCluster(
        brokers=2, broker_config={"zookeeper.session.timeout.ms": 2000, "controlled.shutdown.enable": "false"}
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(zkconsumer_cluster: DevCluster) -> Iterator[DevCluster]:
    """The cluster, with all its servers alive before and after the test."""
    yield zkconsumer_cluster
    heal(zkconsumer_cluster)


@pytest.fixture
def zk(cluster: DevCluster) -> Iterator[KazooClient]:
    """A connection for looking at znodes; each test has its own, since most upset ZooKeeper."""
    client = KazooClient(
        cluster.zookeeper_connect, timeout=30, connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1}
    )
    client.start(timeout=PATIENCE)
    yield client
    cluster.zookeeper.resume()
    start_zookeeper(cluster)
    client.stop()
    client.close()


@pytest.fixture
def config(config: Callable[..., ConsumerConfig]) -> Callable[..., ConsumerConfig]:
    """Members whose session ends soon and whose offsets are stored often."""
    defaults = {"zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS, "auto_commit_interval_ms": 100}
    return lambda **settings: config(**(defaults | settings))


@pytest.fixture
def member(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., Member]]:
    """Start members that read in threads of their own: ``member({topic: 1}, consumer_id="a")``."""
    started: list[Member] = []

    def start(
        topics: dict[str, int],
        *,
        pause: float = 0.0,
        forgives: tuple[type[ZkConsumerError], ...] = (),
        **settings: object,
    ) -> Member:
        of = config(**{"consumer_timeout_ms": -1} | settings)
        started.append(Member(of, topics, pause=pause, forgives=forgives))
        return started[-1]

    yield start
    for one in started:
        one.leave()


@pytest.fixture
def load(cluster: DevCluster) -> Iterator[Callable[..., Load]]:
    """Write into topics all the time: ``load(topic, partitions=4)``."""
    started: list[Load] = []

    def start(topic: str, partitions: int, **options: float) -> Load:
        started.append(Load(cluster, topic, partitions, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def heal(cluster: DevCluster) -> None:
    """Let all servers run again, and wait until the brokers are registered."""
    servers = (cluster.zookeeper, *cluster.brokers)
    for server in servers:
        server.resume()
    start_zookeeper(cluster)
    client = KazooClient(cluster.zookeeper.connect)
    client.start(timeout=PATIENCE)
    try:
        for broker in cluster.brokers:
            if not broker.is_running:
                if client.exists(f"/brokers/ids/{broker.node}"):
                    client.delete(f"/brokers/ids/{broker.node}")
                broker.start()
        wait_for(lambda: len(client.get_children("/brokers/ids")) == len(cluster.brokers), what="all are registered")
    finally:
        client.stop()
        client.close()
    with cluster.new_admin() as admin:
        wait_for(lambda: all(knows_all(cluster, admin, broker) for broker in cluster.brokers), what="all know all")


def knows_all(cluster: DevCluster, admin: Admin, broker: Broker) -> bool:
    """Whether a broker has heard from the controller that all are alive."""
    try:
        answer = admin._channel(broker.endpoint).request(protocol.metadata_request([]))
    except RetriableError:
        return False
    return len(answer.brokers) == len(cluster.brokers) and answer.controller_id >= 0
