"""Clusters of ZooKeeper and Kafka brokers: DevCluster, which this process starts, and ExistingCluster."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient

from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.process import free_port, is_listening
from zkconsumer.devcluster.servers import (
    Broker,
    ZooKeeperServer,
    is_kraft,
    kafka_jars,
    kraft_brokers,
    zookeeper_brokers,
)
from zkconsumer.errors import ConfigurationError
from zkconsumer.metadata.bootstrap import parse_bootstrap

DEFAULT_KAFKA = "3.9.2"

MAX_PORT = 65535


class _Client:
    """Operations of all clusters."""

    _admin: Admin | None = None

    @property
    def zookeeper_connect(self) -> str:
        """The old consumer's ``zookeeper.connect``, chroot included."""
        raise NotImplementedError

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated ``host:port`` of the brokers."""
        raise NotImplementedError

    @property
    def admin(self) -> Admin:
        """An ``Admin`` for the thread that started the cluster."""
        if self._admin is None:
            self._admin = self.new_admin()
        return self._admin

    def new_admin(self) -> Admin:
        """Return an ``Admin`` for another thread, which has to close it."""
        return Admin(parse_bootstrap(self.bootstrap_servers))

    def create_topic(self, topic: str, partitions: int = 1, **options: Any) -> str:
        """Create a topic, see ``Admin.create_topic``, and return its name."""
        self.admin.create_topic(topic, partitions, **options)
        return topic

    def _close_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class ExistingCluster(_Client):
    """A cluster that is already running, such as that of ``docker/compose.yaml``."""

    def __init__(self, zookeeper_connect: str, bootstrap_servers: str) -> None:
        self._zookeeper_connect = zookeeper_connect
        self._bootstrap_servers = bootstrap_servers

    def __enter__(self) -> ExistingCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close_admin()

    @property
    def zookeeper_connect(self) -> str:
        """``zookeeper.connect``, as passed to the constructor."""
        return self._zookeeper_connect

    @property
    def bootstrap_servers(self) -> str:
        """``bootstrap.servers``, as passed to the constructor."""
        return self._bootstrap_servers

    @property
    def consumer_properties(self) -> dict[str, str]:
        """Properties of a consumer. It finds the brokers through ZooKeeper."""
        return {"zookeeper.connect": self._zookeeper_connect}


class DevCluster(_Client):
    """ZooKeeper and Kafka brokers on loopback ports, as child processes.

    Kafka before 4.0 stores its metadata in ZooKeeper. Kafka 4.0 and later runs in KRaft mode, and ZooKeeper is only for
    consumer groups. Data is in a temporary directory, which ``stop`` deletes. The servers terminate with this process,
    even if it is killed.

    Args:
        brokers: number of brokers. Their ids start at 0.
        kafka: version of Kafka, such as ``3.9.2`` or ``4.3.0``.
        chroot: path in ZooKeeper for Kafka and the consumer groups, such as ``/kafka``.
        broker_config: additional properties of brokers.
        zookeeper_config: additional properties of ZooKeeper.
        zookeeper_options: options of ZooKeeper's JVM, such as ``-Djava.security.auth.login.config=...``.
        zookeeper_port: port of ZooKeeper; a free one by default.
        broker_port: port of the first broker; the others use the following ones. By default, all ports are free ones.
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
        zookeeper_port: int | None = None,
        broker_port: int | None = None,
    ) -> None:
        self.kafka = kafka
        self.brokers: list[Broker] = []
        self.zookeeper: ZooKeeperServer
        self._count = brokers
        self._chroot = chroot
        self._zookeeper_options = list(zookeeper_options)
        self._zookeeper_config = dict(zookeeper_config or {})
        self._broker_config = dict(broker_config or {})
        self._zookeeper_port = zookeeper_port
        self._broker_port = broker_port
        self._folder: Path | None = None

    def start(self) -> DevCluster:
        """Download missing jars, start all servers, and wait until they are ready.

        Raises:
            ConfigurationError: a selected port is invalid or in use.
            JarsUnavailableError: jars cannot be downloaded.
            ServerFailedError: a server does not start; the message has the end of its log.
        """
        self._check_ports()
        kafka_jars(self.kafka)
        self._folder = Path(tempfile.mkdtemp(prefix="zkconsumer-"))
        try:
            self.zookeeper = ZooKeeperServer(
                self._folder, self._zookeeper_options, self._zookeeper_config, self._zookeeper_port
            )
            self.zookeeper.start(wait=False)
            if is_kraft(self.kafka):  # its storage is formatted while ZooKeeper starts
                self.brokers = kraft_brokers(self._broker_ports(), self._folder, self.kafka, self._broker_config)
                self.zookeeper.wait_until_ready()
                self._make_chroot()
            else:
                self.zookeeper.wait_until_ready()
                self._make_chroot()
                ports = self._broker_ports()
                self.brokers = zookeeper_brokers(
                    ports, self._folder, self.kafka, self.zookeeper_connect, self._broker_config
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
        """Return an ``Admin`` for another thread, which has to close it."""
        return Admin([broker.endpoint for broker in self.brokers], self.zookeeper_connect)

    @property
    def folder(self) -> Path:
        """Directory of data and logs while the cluster runs."""
        assert self._folder is not None, "the cluster has not been started"
        return self._folder

    @property
    def zookeeper_connect(self) -> str:
        """The old consumer's ``zookeeper.connect``, chroot included."""
        return self.zookeeper.connect + self._chroot

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated ``host:port`` of all brokers."""
        return ",".join(str(broker.endpoint) for broker in self.brokers)

    @property
    def consumer_properties(self) -> dict[str, str]:
        """Properties of a consumer: the address of ZooKeeper, and in KRaft mode those of the brokers."""
        properties = {"zookeeper.connect": self.zookeeper_connect}
        if is_kraft(self.kafka):
            properties["bootstrap.servers"] = self.bootstrap_servers
        return properties

    def _selected_broker_ports(self) -> list[int]:
        first = self._broker_port
        return list(range(first, first + self._count)) if first else []

    def _broker_ports(self) -> list[int]:
        return self._selected_broker_ports() or [free_port() for _ in range(self._count)]

    def _check_ports(self) -> None:
        ports = [port for port in (self._zookeeper_port, *self._selected_broker_ports()) if port is not None]
        if len(set(ports)) < len(ports) or max(ports, default=0) > MAX_PORT:
            raise ConfigurationError(
                f"ports must be different and at most {MAX_PORT}, got {', '.join(map(str, ports))}"
            )
        for port in ports:
            if is_listening(port):
                raise ConfigurationError(
                    f"port {port} is in use; stop the program that uses it, or select another port"
                )

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
    """Raise SystemExit in the main thread on SIGTERM, so that ``with DevCluster()`` stops its servers."""

    def on_sigterm(_number: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_sigterm)
