"""Clusters of ZooKeeper and Kafka brokers: ``DevCluster`` starts one, ``ExistingCluster`` connects to a running one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient

from zkconsumer.checked_arguments import check_arguments_as
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.data_directory import DataDirectory, delete_abandoned
from zkconsumer.devcluster.process import free_port, is_listening
from zkconsumer.devcluster.servers import (
    BrokerServer,
    ZooKeeperServer,
    download_missing_jars,
    is_kraft,
    kraft_brokers,
    zookeeper_brokers,
)
from zkconsumer.errors import ConfigurationError
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.signals import Exit, FirstSignal, handle_end_signals

DEFAULT_KAFKA = "3.9.2"

MAX_PORT = 65535


class _Client:
    """Operations that all clusters support."""

    _admin: Admin | None = None

    @property
    def zookeeper_connect(self) -> str:
        """The value of ``zookeeper.connect``, including the chroot."""
        raise NotImplementedError

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers, as ``host:port,...``."""
        raise NotImplementedError

    @property
    def admin(self) -> Admin:
        """The cluster's ``Admin``, created on first use. Only one thread may use it; see ``new_admin``."""
        if self._admin is None:
            self._admin = self.new_admin()
        return self._admin

    def new_admin(self) -> Admin:
        """Return a new ``Admin`` for use in another thread; the caller must close it."""
        return Admin(parse_bootstrap(self.bootstrap_servers))

    def create_topic(self, topic: str, partitions: int = 1, **options: Any) -> str:
        """Create a topic and return its name; see ``Admin.create_topic``."""
        self.admin.create_topic(topic, partitions, **options)
        return topic

    def _close_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class ExistingCluster(_Client):
    """A cluster that is already running, for example one started with ``docker/compose.yaml``."""

    @check_arguments_as(ConfigurationError)
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
        """Consumer properties for this cluster. Brokers are discovered through ZooKeeper."""
        return {"zookeeper.connect": self._zookeeper_connect}


class DevCluster(_Client):
    """A development cluster: ZooKeeper and Kafka brokers as child processes, on loopback ports.

    Kafka before 4.0 stores its metadata in ZooKeeper. Kafka 4.0 and later runs in KRaft mode; ZooKeeper is then used
    only by consumer groups. Data is stored in a temporary directory, which ``stop`` deletes. The servers terminate with
    this process, even if it is killed; the data of killed processes is deleted when the next cluster starts.

    Args:
        brokers: number of brokers; broker ids start at 0.
        kafka: Kafka version, such as ``3.9.2`` or ``4.4.0``.
        chroot: ZooKeeper chroot of the brokers and consumer groups, such as ``/kafka``.
        broker_config: additional broker properties.
        zookeeper_config: additional ZooKeeper properties.
        zookeeper_options: JVM options of ZooKeeper, such as ``-Djava.security.auth.login.config=...``.
        zookeeper_port: ZooKeeper port; a free port by default.
        broker_port: port of the first broker; further brokers use consecutive ports. By default, all brokers use free
            ports.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range.
    """

    @check_arguments_as(ConfigurationError)
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
        self.brokers: list[BrokerServer] = []
        self.zookeeper: ZooKeeperServer
        self._count = brokers
        self._chroot = chroot
        self._zookeeper_options = list(zookeeper_options)
        self._zookeeper_config = dict(zookeeper_config or {})
        self._broker_config = dict(broker_config or {})
        self._zookeeper_port = zookeeper_port
        self._broker_port = broker_port
        self._directory: DataDirectory | None = None

    def start(self) -> DevCluster:
        """Download missing jars, start all servers, and wait until they are ready.

        Raises:
            ConfigurationError: a selected port is invalid or in use, Java 17 or later was not found, or the cache
                directory is not writable.
            JarsUnavailableError: a package of the ``cluster`` extra is not installed, the jars cannot be downloaded, or
                their checksums differ from the pinned ones.
            ServerFailedError: a server did not start; the message contains the end of its log.
        """
        self._check_ports()
        download_missing_jars(self.kafka)
        delete_abandoned()
        try:
            self._directory = DataDirectory()
            self.zookeeper = ZooKeeperServer(
                self.folder, self._zookeeper_options, self._zookeeper_config, self._zookeeper_port
            )
            self.zookeeper.start(wait=False)
            if is_kraft(self.kafka):  # format the brokers' storage while ZooKeeper starts
                self.brokers = kraft_brokers(self._broker_ports(), self.folder, self.kafka, self._broker_config)
                self.zookeeper.wait_until_ready()
                self._make_chroot()
            else:
                self.zookeeper.wait_until_ready()
                self._make_chroot()
                ports = self._broker_ports()
                self.brokers = zookeeper_brokers(
                    ports, self.folder, self.kafka, self.zookeeper_connect, self._broker_config
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
        if self._directory is not None:
            self._directory.delete()

    def __enter__(self) -> DevCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def new_admin(self) -> Admin:
        """Return a new ``Admin`` for use in another thread; the caller must close it."""
        return Admin([broker.endpoint for broker in self.brokers], self.zookeeper_connect)

    @property
    def folder(self) -> Path:
        """Directory that contains the data and logs of the running cluster."""
        assert self._directory is not None, "the cluster has not been started"
        return self._directory.path

    @property
    def zookeeper_connect(self) -> str:
        """The value of ``zookeeper.connect``, including the chroot."""
        return self.zookeeper.connect + self._chroot

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, as ``host:port,...``."""
        return ",".join(str(broker.endpoint) for broker in self.brokers)

    @property
    def consumer_properties(self) -> dict[str, str]:
        """Consumer properties for this cluster: the ZooKeeper address and, in KRaft mode, the broker addresses."""
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
            raise ConfigurationError(f"ports must be distinct and at most {MAX_PORT}, got {', '.join(map(str, ports))}")
        for port in ports:
            if is_listening(port):
                raise ConfigurationError(f"port {port} is already in use; select another port")

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
    """Raise SystemExit on SIGTERM, SIGHUP or Ctrl-C, so that ``with DevCluster()`` stops its servers.

    The exit code is 128 plus the number of the signal. Later signals do not interrupt the cleanup. Signals that are
    ignored stay ignored.
    """
    handle_end_signals(FirstSignal(lambda number: Exit(128 + number)))
