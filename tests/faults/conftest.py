"""A separate cluster for the fault tests, because they kill, pause and restart its servers.

It overrides the fixture ``zkconsumer_cluster``, so the fixtures in ``tests/conftest.py`` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from helpers.producing import Load
from helpers.teardown import started
from helpers.waiting import wait_for
from helpers.zookeeper import RECONNECTING, start_zookeeper, zookeeper_client
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig
from zkconsumer.broker import protocol
from zkconsumer.devcluster import Admin, DevCluster
from zkconsumer.devcluster.servers import BrokerServer
from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.health import HealthListener

from .faults import Member

#: Session timeout in milliseconds; short, because tests wait for sessions to expire.
SESSION_TIMEOUT_MS = 2000

#: Session timeout in milliseconds of members that fail to join. The error must be the expected one, and not that the
#: session was lost on a busy machine.
GIVE_UP_MS = 4000


@pytest.fixture(scope="package")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """Start ZooKeeper and two brokers that shut down without delay."""
    with DevCluster(
        brokers=2, broker_config={"zookeeper.session.timeout.ms": 2000, "controlled.shutdown.enable": "false"}
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(zkconsumer_cluster: DevCluster) -> Iterator[DevCluster]:
    """Return the cluster; after the test all servers are running again."""
    yield zkconsumer_cluster
    heal(zkconsumer_cluster)


@pytest.fixture
def zk(cluster: DevCluster) -> Iterator[KazooClient]:
    """Return a ZooKeeper connection; each test has its own, because most tests disturb ZooKeeper."""
    with zookeeper_client(cluster.zookeeper_connect, **RECONNECTING) as client:
        yield client
        cluster.zookeeper.resume()
        start_zookeeper(cluster)


@pytest.fixture
def config(config: Callable[..., ConsumerConfig]) -> Callable[..., ConsumerConfig]:
    """Configure members with a short session timeout and a short commit interval."""
    defaults = {"zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS, "auto_commit_interval_ms": 100}
    return lambda **settings: config(**(defaults | settings))


@pytest.fixture
def member(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., Member]]:
    """Start members that read in separate threads: ``member({topic: 1}, consumer_id="a")``."""

    def make(
        topics: dict[str, int],
        *,
        pause: float = 0.0,
        ignored_errors: tuple[type[ZkConsumerError], ...] = (),
        health_listener: HealthListener | None = None,
        **settings: object,
    ) -> Member:
        of = config(**{"consumer_timeout_ms": -1} | settings)
        return Member(of, topics, pause=pause, ignored_errors=ignored_errors, health_listener=health_listener)

    with started(make, Member.leave) as start:
        yield start


@pytest.fixture
def load(cluster: DevCluster) -> Iterator[Callable[..., Load]]:
    """Produce to topics continuously: ``load(topic, partitions=4)``."""
    with started(partial(Load, cluster), Load.stop) as start:
        yield start


def heal(cluster: DevCluster) -> None:
    """Resume or start all servers, and wait until the brokers have registered."""
    servers = (cluster.zookeeper, *cluster.brokers)
    for server in servers:
        server.resume()
    start_zookeeper(cluster)
    with zookeeper_client(cluster.zookeeper.connect) as client:
        for broker in cluster.brokers:
            if not broker.is_running:
                if client.exists(f"/brokers/ids/{broker.node}"):
                    client.delete(f"/brokers/ids/{broker.node}")
                broker.start()
        wait_for(
            lambda: len(client.get_children("/brokers/ids")) == len(cluster.brokers), what="brokers have registered"
        )
    with cluster.new_admin() as admin:
        wait_for(
            lambda: all(knows_all(cluster, admin, broker) for broker in cluster.brokers), what="brokers know each other"
        )


def knows_all(cluster: DevCluster, admin: Admin, broker: BrokerServer) -> bool:
    """Whether the controller has informed a broker that all brokers are alive."""
    try:
        answer = admin._channel(broker.endpoint).request(protocol.metadata_request([]))
    except RetriableError:
        return False
    return len(answer.brokers) == len(cluster.brokers) and answer.controller_id >= 0
