"""Tests with a ZooKeeper that loses its data or comes back from an older backup while clients are connected."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

import pytest
from helpers.aliases import Loads, Topics
from helpers.waiting import wait_for
from helpers.zookeeper import zookeeper_client

from zkconsumer import ConsumerConfig
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import ZooKeeperServer
from zkconsumer.errors import ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.health import HealthState
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.handler import AssignedPartition, PartitionHandler
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.planning.standalone_member import StandaloneMember
from zkconsumer.spark.streams.owner import ApplicationOwner
from zkconsumer.zookeeper.session import ZooKeeperSession

from .conftest import SESSION_TIMEOUT_MS
from .ensemble import Ensemble
from .faults import Member, wait_until_all_is_read

Members = Callable[..., Member]


class OwnZooKeeper:
    """A ZooKeeper server for groups; the brokers are registered in another one.

    Args:
        directory: directory of the server.
        chroot: chroot of its clients, which is created by ``start``.
    """

    def __init__(self, directory: Path, chroot: str) -> None:
        self._data = directory / "zookeeper-data"
        self._backup = directory / "backup"
        self._chroot = chroot
        self._server = ZooKeeperServer(directory)
        self.connect = self._server.connect + chroot

    def start(self) -> None:
        """Start the server, and create the chroot."""
        self._server.start()
        with zookeeper_client(self._server.connect) as client:
            client.ensure_path(self._chroot or "/")

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the server."""
        self._server.kill()

    def back_up(self) -> None:
        """Copy the data while the server is stopped."""
        self._server.stop()
        shutil.copytree(self._data, self._backup)
        self._server.start()

    def lose_transactions(self, kind: str) -> None:
        """Restart the server without its data (``empty``) or with the data of the backup."""
        self._commit_transactions()
        self._server.kill()
        shutil.rmtree(self._data)
        if kind != "empty":
            shutil.copytree(self._backup, self._data)
        self._server.start()

    def _commit_transactions(self) -> None:
        """Commit transactions, so that the restarted server is behind all clients."""
        with zookeeper_client(self._server.connect) as client:
            for _ in range(200):
                client.create("/other", b"", ephemeral=True)
                client.delete("/other")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[..., OwnZooKeeper]]:
    """Start a ZooKeeper with a chroot: ``own("/kafka")``."""
    made: list[OwnZooKeeper] = []

    def start(chroot: str = "") -> OwnZooKeeper:
        made.append(OwnZooKeeper(tmp_path, chroot))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("chroot", ["", "/some/chroot"])
@pytest.mark.parametrize("kind", ["empty", "restored", "restored with the session"])
def test_member_rejoins_after_ensemble_lost_transactions(
    kind: str,
    chroot: str,
    own: Callable[..., OwnZooKeeper],
    cluster: DevCluster,
    member: Members,
    load: Loads,
    topic: Topics,
) -> None:
    zookeeper = own(chroot)
    if kind == "restored":
        zookeeper.back_up()
    name = topic(partitions=4)
    writer = load(name, 4)
    brokers = ",".join(str(broker.endpoint) for broker in cluster.brokers)
    one = member({name: 1}, zookeeper_connect=zookeeper.connect, bootstrap_servers=brokers)
    one.wait_for_more(500)
    if kind == "restored with the session":  # the znodes of the session exist until it expires
        zookeeper.back_up()
        one.wait_for_more(500)
    session = one.core.session.session_id
    zookeeper.lose_transactions(kind)
    wait_for(lambda: one.core.session.session_id not in (0, session), what="a new session")
    one.wait_for_more(500)
    wait_for(lambda: one.connector.health.state is HealthState.HEALTHY, what="a healthy consumer")
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, [one])
    group = one.core.config.group_id
    committed = [f"/consumers/{group}/offsets/{name}/{partition}" for partition in range(4)]
    with zookeeper_client(zookeeper.connect) as client:
        wait_for(lambda: all(map(client.exists, committed)), what="the offsets are committed")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_lock_of_application_is_lost_with_ensemble(own: Callable[..., OwnZooKeeper]) -> None:
    """The application ends with an error, and can be started again."""
    zookeeper = own()
    config = ConsumerConfig.from_dict(
        {"zookeeper.connect": zookeeper.connect, "group.id": "g", "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS}
    )
    owners = [ApplicationOwner(config) for _ in range(2)]
    try:
        owners[0].acquire()
        assert owners[0].find_loss() is None
        zookeeper.lose_transactions("empty")
        wait_for(owners[0].find_loss, what="the loss of the lock")
        owners[1].acquire()
        assert owners[1].find_loss() is None
    finally:
        for owner in owners:
            owner.close()


class QueryHandler(PartitionHandler):
    """The planner's side of a query, which only records the failures."""

    release_timeout_s = 0.0

    def __init__(self, failures: list[ZkConsumerError]) -> None:
        self._failures = failures

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Ignore the partitions."""

    def on_partitions_revoked(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int]:
        """Return no offsets."""
        return {}

    def on_partitions_lost(self) -> None:
        """Do nothing."""

    def on_lease_expired(self) -> None:
        """Do nothing."""

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return no offsets."""
        return {}

    def take_resets(self) -> Set[TopicPartition]:
        """Return no partitions."""
        return frozenset()

    def fail(self, error: ZkConsumerError) -> None:
        """Record the failure."""
        self._failures.append(error)


@pytest.fixture
def standalone(
    own: Callable[..., OwnZooKeeper], cluster: DevCluster, topic: Topics, config: Callable[..., ConsumerConfig]
) -> Iterator[tuple[StandaloneMember, OwnZooKeeper, list[ZkConsumerError]]]:
    """The member of a query with ``membership=none`` that commits offsets to its own ZooKeeper, and its failures."""
    zookeeper = own("/chroot")
    brokers = ",".join(str(broker.endpoint) for broker in cluster.brokers)
    failures: list[ZkConsumerError] = []

    member = StandaloneMember(
        config(zookeeper_connect=zookeeper.connect, bootstrap_servers=brokers),
        Subscription(topics=(topic(),)),
        QueryHandler(failures),
        has_offsets=True,
        unavailable_timeout_s=20.0,
    )
    member.start()
    yield member, zookeeper, failures
    member.close()


Standalone = tuple[StandaloneMember, OwnZooKeeper, list[ZkConsumerError]]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_standalone_member_commits_after_ensemble_lost_data(standalone: Standalone) -> None:
    member, zookeeper, failures = standalone
    [partition] = member.assignment
    assert member.commit({partition: 3}) == {partition: 3}
    zookeeper.lose_transactions("empty")

    def has_committed() -> bool:
        try:
            return member.commit({partition: 5}) == {partition: 5}
        except ZooKeeperUnavailableError:
            return False

    wait_for(has_committed, what="a commit in a new session")
    assert not failures


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_standalone_member_fails_if_connection_thread_ends(
    standalone: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not wait for a session that nothing re-establishes."""
    member, zookeeper, failures = standalone
    assert member._session is not None

    def fail(*_arguments: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(member._session._client._connection, "_connect_attempt", fail)
    zookeeper.kill()
    wait_for(lambda: failures, what="the failure of the query")
    assert "terminated with an unexpected error" in str(failures[0])
    with pytest.raises(ZkConsumerError, match="terminated with an unexpected error"):
        member.commit({})


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_session_survives_servers_without_quorum(tmp_path: Path) -> None:
    """Servers without a quorum reject all sessions, which do not expire in the meantime."""
    with Ensemble(tmp_path) as ensemble:
        hosts = ",".join(server.connect for server in ensemble.servers)
        session = ZooKeeperSession(hosts, session_timeout_s=2.0, connection_timeout_s=20.0)
        session.start()
        try:
            former = session.session_id
            session.znodes.create_ephemeral("/mine", b"")
            stopped = [server for server in ensemble.servers if server.connect != f"127.0.0.1:{ensemble.leader.port}"]
            for server in stopped:
                server.kill()
            wait_for(lambda: not session.is_connected, what="the loss of the quorum")
            wait_for(lambda: session._client.has_outlived_session, what="the session timeout")
            for server in stopped:
                server.start(wait=False)
            wait_for(lambda: session.is_connected, 60, what="a quorum")
            assert session.session_id == former
            assert session.znodes.exists("/mine")
        finally:
            session.close()
