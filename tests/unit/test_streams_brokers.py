"""Removal of brokers, including all configured ones, while an application is running; with fake brokers."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import FakeBroker, FakeCluster

from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.errors import BrokerUnavailableError, UnsupportedBrokerError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.internal_topics import InternalTopics
from zkconsumer.spark.streams.markers import GlobalTick, TopicEnds
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.servers_file import ServersFile, read_servers
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.spark.streams.ticks import TickReader
from zkconsumer.topology import ApplicationConfig, Topology

PARTITION = TopicPartition("t", 0)
TXN_OFFSET_COMMIT = 28


def prepare(broker: FakeBroker) -> None:
    broker.partition_counts = {"t": 1}
    broker.newest[TXN_OFFSET_COMMIT] = 3


class Application:
    """The parts of an application that send requests, or pass brokers to other processes."""

    def __init__(self, configured: list[Endpoint]) -> None:
        servers = ",".join(map(str, configured))
        self.cluster = ApplicationCluster(
            {"bootstrap.servers": servers, "group.id": "g", "socket.timeout.ms": "5000", "metadata.max.age.ms": "1"}
        )
        self.cluster.describe()
        self.path = self.cluster.open_servers_file()
        self.ticks = self.open_ticks()
        self.tick = self.ticks.initialOffset()
        self.access = self.cluster.open()
        self.coordinator = self.access.__enter__().coordinator()

    def close(self) -> None:
        self.access.__exit__(None, None, None)
        self.ticks.stop()
        self.cluster.close()

    def open_ticks(self) -> TickReader:
        declared = {
            "properties": self.cluster.complete(self.cluster.properties),
            "brokers": [broker[:2] for broker in self.cluster.brokers],
            "partitions": [PARTITION],
        }
        return TickReader({"keys": "[7]", "intervalMs": "1", "global": json.dumps(declared)})

    def plan_tick(self, reader: TickReader) -> None:
        """Plan a tick. The brokers that it contains are those of the end offset lookup."""
        start, limit = self.tick, reader.getDefaultReadLimit()
        end = reader.latestOffset(start, limit)
        while end == start:
            end = reader.latestOffset(start, limit)
        self.tick = end
        [partition] = reader.partitions(start, end)
        [(_, _, _, _, _, blob, _)] = reader.read(partition)
        connect(list(GlobalTick.decode(blob.decode()).brokers))

    def restart_ticks(self) -> None:
        reader = self.open_ticks()
        try:
            self.plan_tick(reader)
        finally:
            reader.stop()

    @property
    def uses(self) -> dict[str, Callable[[], object]]:
        """Operations of an application that use brokers, by name."""
        return {
            "describe": self.cluster.describe,
            "find topics": lambda: self.cluster.find_topics({"t"}),
            "check transactions": lambda: self.cluster.check_transactions(self.cluster.brokers),
            "read committed": lambda: self.coordinator.fetch_offsets([PARTITION]),
            "plan ticks": lambda: self.plan_tick(self.ticks),
            "restart ticks": self.restart_ticks,
            "restart sources": lambda: connect(parse_bootstrap(self.cluster.properties["bootstrap.servers"])),
            "create clients": lambda: connect(parse_bootstrap(self.cluster.client_settings()["bootstrap.servers"])),
            "create tasks": lambda: connect(parse_bootstrap(read_servers(self.path) or "missing:1")),
        }


def connect(brokers: list[Endpoint]) -> None:
    """Connect with the given brokers only, as a new process does."""
    with closing(BootstrapCluster(brokers, plaintext(5))) as cluster:
        assert cluster.partitions(["t"]) == {"t": [0]}
    with closing(LeaderLookup(plaintext(5))) as lookup:
        assert lookup.leaders(brokers, [PARTITION])


def test_brokers_can_be_removed_in_any_order(record_property: Callable[[str, object], None]) -> None:
    """After the first response, at least one broker of the last response is always running."""
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    for number in range(4):
        _replace_brokers(random.Random(seed + number), f"seed {seed + number}")


def _replace_brokers(rng: random.Random, label: str) -> None:
    with closing(FakeCluster(3, prepare)) as fakes:
        configured = [broker.endpoint for broker in rng.sample(fakes.brokers, rng.randint(1, 2))]
        with closing(Application(configured)) as application:
            for _ in range(6):
                for use in application.uses.values():
                    use()
                fakes.replace_some(rng, application.cluster.describe)
                application.plan_tick(application.ticks)
                for name in rng.sample(sorted(application.uses), len(application.uses)):
                    try:
                        application.uses[name]()
                    except BrokerUnavailableError:
                        # A leader or coordinator may have been removed; the next call looks it up again.
                        try:
                            application.uses[name]()
                        except BrokerUnavailableError as error:
                            raise AssertionError(f"{label}: {name}") from error


@pytest.fixture
def fakes() -> Iterator[FakeCluster]:
    with closing(FakeCluster(3, prepare)) as made:
        yield made


def test_restarted_query_uses_the_same_cluster(fakes: FakeCluster) -> None:
    topology = Topology().add_source("source", "t").add_sink("sink", "out", "source")
    properties = {"bootstrap.servers": str(fakes.brokers[0].endpoint)}
    query: Any = TopologyQuery(
        topology, ApplicationConfig(application_id="app"), None, "c", properties, QuerySettings()
    )
    query._open_cluster().describe()
    fakes.remove(fakes.brokers[0])
    assert query._open_cluster().describe().partition_counts == {"t": 1}
    assert query.find_new_topics(is_due=True) == ["t"]


def test_transactions_are_checked_on_running_brokers(fakes: FakeCluster) -> None:
    cluster = ApplicationCluster({"bootstrap.servers": str(fakes.brokers[0].endpoint), "group.id": "g"})
    cluster.describe()
    for _ in range(2):
        fakes.remove(fakes.brokers[0])
        cluster.check_transactions(cluster.brokers)
    fakes.brokers[0].newest[TXN_OFFSET_COMMIT] = 2
    with pytest.raises(UnsupportedBrokerError, match="exactly_once_v2"):
        cluster.check_transactions(cluster.brokers)
    fakes.brokers[0].close()
    with pytest.raises(BrokerUnavailableError):
        cluster.check_transactions(cluster.brokers)


def test_empty_broker_list_keeps_previous_brokers(fakes: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks could not write their output without brokers."""
    cluster = ApplicationCluster({"bootstrap.servers": str(fakes.brokers[0].endpoint), "group.id": "g"})
    cluster.describe()
    before, file = cluster.brokers, cluster.open_servers_file()
    try:
        monkeypatch.setattr(BootstrapCluster, "brokers", lambda _: [])
        with pytest.raises(BrokerUnavailableError, match="no broker is registered"):
            cluster.describe()
        assert cluster.brokers == before
        assert read_servers(file) == ",".join(sorted(map(str, before)))
    finally:
        cluster.close()


def test_admin_client_is_replaced_if_the_brokers_change() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1"}
    topics = InternalTopics(lambda: client, "app", [], 0)
    first = topics._admin
    assert topics._admin is first
    client["bootstrap.servers"] = "127.0.0.1:2"
    assert topics._admin is not first


def test_servers_file_exists_while_it_is_open() -> None:
    file = ServersFile()
    file.write("a:1")
    path = file.open("b:2")
    assert [read_servers(path), file.open("c:3")] == ["b:2", path]
    file.write("d:4")
    assert read_servers(path) == "d:4"
    file.close()
    assert not Path(path).exists()
    assert read_servers(path) is None


def test_servers_file_that_cannot_be_written_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ServersFile()
    with closing(file):
        path = file.open("a:1")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
        file.write("b:2")
        assert read_servers(path) == "a:1"
    assert "servers_file_not_written" in caplog.text


def test_failed_write_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(ServersFile()) as file:
        path = Path(file.open("a:1"))
        with pytest.raises(UnicodeEncodeError):
            file.write("\udc80")
        path.unlink()
        path.mkdir()  # cannot be replaced with a file
        file.write("b:2")
        assert list(tmp_path.iterdir()) == [path]
        path.rmdir()


def test_files_of_processes_that_no_longer_exist_are_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        pass
    kept = [tmp_path / f"zkconsumer-servers-{one}" for one in ("1-a", "x-a", "old", f"{os.getpid()}-a", f"{9**40}-a")]
    for path in (*kept, tmp_path / f"zkconsumer-servers-{ended.pid}-a"):
        path.touch()
    with closing(ServersFile()) as file:
        opened = Path(file.open("a:1"))
        assert set(tmp_path.iterdir()) == {*kept, opened}


@pytest.mark.parametrize(("max_age_ms", "interval_ms"), [(1, 1_000), (5_000, 5_000), (86_400_000, 3_600_000)])
def test_metadata_refresh_interval_is_limited(max_age_ms: int, interval_ms: int) -> None:
    properties = {"bootstrap.servers": "a:1", "group.id": "g", "metadata.max.age.ms": str(max_age_ms)}
    settings = ApplicationCluster(properties).client_settings()
    assert settings["topic.metadata.refresh.interval.ms"] == interval_ms


def test_ticks_of_equal_brokers_are_equal() -> None:
    ends = TopicEnds({PARTITION: 5}, {"t": "id"})
    a, b = Endpoint("a", 1), Endpoint("b", 1, has_api_versions=True)
    encoded = GlobalTick(ends, [a, b]).encode()
    assert encoded == GlobalTick(ends, [b, a]).encode()
    assert GlobalTick.decode(encoded) == (ends, [a, Endpoint("b", 1)])
    assert TopicEnds.decode(encoded) == ends
