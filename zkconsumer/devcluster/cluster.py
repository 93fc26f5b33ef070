"""DevCluster: a ZooKeeper and some brokers that live as long as this object."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient

from zkconsumer.broker.cluster import parse_bootstrap
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.servers import (
    Broker,
    ZooKeeperServer,
    is_kraft,
    kafka_jars,
    kraft_brokers,
    zookeeper_brokers,
)

DEFAULT_KAFKA = "3.9.2"


class _Client:
    """What can be done with any cluster: topics and records."""

    _admin: Admin | None = None

    @property
    def zookeeper_connect(self) -> str:
        """The old consumer's ``zookeeper.connect``, chroot included."""
        raise NotImplementedError

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the brokers, with commas."""
        raise NotImplementedError

    @property
    def admin(self) -> Admin:
        """Topics and records; for the thread that started the cluster."""
        if self._admin is None:
            self._admin = self.new_admin()
        return self._admin

    def new_admin(self) -> Admin:
        """Return an ``Admin`` for another thread, which closes it."""
        return Admin(parse_bootstrap(self.bootstrap_servers))

    def create_topic(self, topic: str, partitions: int = 1, **options: Any) -> str:
        """Create a topic, see ``Admin.create_topic``; returns its name."""
        self.admin.create_topic(topic, partitions, **options)
        return topic

    def _close_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class ExistingCluster(_Client):
    """A cluster that somebody else runs, e.g. the one of ``docker/compose.yaml``."""

    def __init__(self, zookeeper_connect: str, bootstrap_servers: str) -> None:
        self._zookeeper_connect = zookeeper_connect
        self._bootstrap_servers = bootstrap_servers

    def __enter__(self) -> ExistingCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close_admin()

    @property
    def zookeeper_connect(self) -> str:
        """As it was given."""
        return self._zookeeper_connect

    @property
    def bootstrap_servers(self) -> str:
        """As it was given."""
        return self._bootstrap_servers

    @property
    def consumer_properties(self) -> dict[str, str]:
        """What a consumer has to set; brokers are found through ZooKeeper."""
        return {"zookeeper.connect": self._zookeeper_connect}


class DevCluster(_Client):
    """ZooKeeper and Kafka brokers on free loopback ports, as children of this process.

    Kafka before 4.0 keeps its metadata in that ZooKeeper; from 4.0 on it runs in KRaft mode, and the
    ZooKeeper beside it is for consumer groups. Nothing survives: data lies in a temporary folder, and the
    servers die with this process, even by SIGKILL.

    Args:
        brokers: how many; their ids count from 0.
        kafka: the version, e.g. ``3.9.2`` or ``4.3.0``.
        chroot: part of the ZooKeeper tree for Kafka and the groups, e.g. ``/kafka``.
        broker_config: further broker properties.
        zookeeper_config: further properties of ZooKeeper.
        zookeeper_options: options of ZooKeeper's JVM, such as ``-D...`` for a login.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        kafka: str = DEFAULT_KAFKA,
        chroot: str = "",
        broker_config: Mapping[str, object] | None = None,
        zookeeper_options: Sequence[str] = (),
        zookeeper_config: Mapping[str, object] | None = None,
    ) -> None:
        self.kafka = kafka
        self.brokers: list[Broker] = []
        self.zookeeper: ZooKeeperServer
        self._count = brokers
        self._chroot = chroot
        self._zookeeper_options = list(zookeeper_options)
        self._zookeeper_config = dict(zookeeper_config or {})
        self._broker_config = dict(broker_config or {})
        self._folder: Path | None = None

    def start(self) -> DevCluster:
        """Resolve what is missing, start all servers and wait until they serve.

        Raises:
            JarsUnavailableError: a coordinate cannot be resolved.
            ServerFailedError: a server does not come up; the end of its log is in the text.
        """
        kafka_jars(self.kafka)
        self._folder = Path(tempfile.mkdtemp(prefix="zkconsumer-"))
        try:
            self.zookeeper = ZooKeeperServer(self._folder, self._zookeeper_options, self._zookeeper_config)
            self.zookeeper.start(wait=False)
            if is_kraft(self.kafka):
                self.brokers = kraft_brokers(self._count, self._folder, self.kafka, self._broker_config)
                self.zookeeper.wait_until_ready()
                self._make_chroot()
            else:
                self.zookeeper.wait_until_ready()
                self._make_chroot()
                self.brokers = zookeeper_brokers(
                    self._count, self._folder, self.kafka, self.zookeeper_connect, self._broker_config
                )
            for broker in self.brokers:
                broker.start(wait=False)
            for broker in self.brokers:
                broker.wait_until_ready()
            self.admin.wait_for_brokers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all servers and delete their data."""
        self._close_admin()
        for server in (*self.brokers, getattr(self, "zookeeper", None)):
            if server is not None:
                server.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> DevCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def new_admin(self) -> Admin:
        """Return an ``Admin`` for another thread, which closes it."""
        return Admin([broker.endpoint for broker in self.brokers], self.zookeeper_connect)

    @property
    def folder(self) -> Path:
        """Where data and logs lie while the cluster runs."""
        assert self._folder is not None, "the cluster is not started"
        return self._folder

    @property
    def zookeeper_connect(self) -> str:
        """The old consumer's ``zookeeper.connect``, chroot included."""
        return self.zookeeper.connect + self._chroot

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of all brokers, with commas."""
        return ",".join(str(broker.endpoint) for broker in self.brokers)

    @property
    def consumer_properties(self) -> dict[str, str]:
        """What a consumer of this cluster has to set: where ZooKeeper is, and in KRaft mode the brokers."""
        properties = {"zookeeper.connect": self.zookeeper_connect}
        if is_kraft(self.kafka):
            properties["bootstrap.servers"] = self.bootstrap_servers
        return properties

    def _make_chroot(self) -> None:
        if self._chroot:
            client = KazooClient(self.zookeeper.connect)
            client.start(timeout=10)
            try:
                client.ensure_path(self._chroot)
            finally:
                client.stop()
                client.close()


def raise_on_sigterm() -> None:
    """Let SIGTERM unwind the main thread, so that ``with DevCluster()`` stops its servers."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
