"""ZooKeeper and Kafka broker processes, configured with small heaps and loopback addresses."""

from __future__ import annotations

import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.devcluster.jars import classpath, pins, resolve_all
from zkconsumer.devcluster.java import java
from zkconsumer.devcluster.process import ServerProcess, free_port, is_listening
from zkconsumer.errors import ZkConsumerError
from zkconsumer.message import Endpoint

ZOOKEEPER_HEAP = "128m"
BROKER_HEAP = "512m"

#: The logging backend of all servers, which precedes their jars on the class path.
_LOGGING = ("org.apache.logging.log4j:log4j-slf4j2-impl:2.25.4", "org.apache.logging.log4j:log4j-1.2-api:2.25.4")

#: ZooKeeper, and the jars that its server requires although they are not dependencies of ZooKeeper's client.
_ZOOKEEPER = (
    "org.apache.zookeeper:zookeeper:3.9.5",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)

#: Log4j configuration of a server; the system property ``zkconsumer.log`` sets the log file.
LOG4J = """
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:zkconsumer.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
# Brokers log each request that uses a deprecated API version, which slows down Kafka's old consumer considerably.
logger.requests.name = kafka.request.logger
logger.requests.level = off
"""


def logging_jars() -> list[Path]:
    """Return the logging backend jars for servers and tools."""
    return resolve_all(_LOGGING)


def zookeeper_jars() -> list[Path]:
    """Return the jars of a ZooKeeper server."""
    return resolve_all(_ZOOKEEPER)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as a tuple of integers, for comparisons."""
    return tuple(int(part) for part in version.split("."))


def kafka_coordinate(version: str) -> str:
    """Return the Maven coordinate of a broker: the Scala 2.11 build before Kafka 2.4, else the Scala 2.13 build."""
    scala = "2.13" if numbers(version) >= (2, 4) else "2.11"
    return f"org.apache.kafka:kafka_{scala}:{version}"


def pinned_versions() -> list[str]:
    """Return the Kafka versions whose jars have pinned checksums, in ascending order."""
    versions = [pin.rpartition(":")[2] for pin in pins() if pin.startswith("org.apache.kafka:kafka_")]
    return sorted(versions, key=numbers)


def kafka_jars(version: str) -> list[Path]:
    """Return the jars of a Kafka version, which contain the broker and, before 2.0, the old consumer and its tools."""
    return resolve_all(_kafka_coordinates(version))


def download_missing_jars(version: str) -> None:
    """Download the jars of a cluster with a Kafka version that are not cached yet.

    Raises:
        JarsUnavailableError: see ``jars.resolve``.
    """
    resolve_all([*_kafka_coordinates(version), *_ZOOKEEPER, *_LOGGING])


def _kafka_coordinates(version: str) -> list[str]:
    needs_jaxb = (0, 10, 1) <= numbers(version) < (1,)  # which Java 11 removed
    return [kafka_coordinate(version), *(["javax.xml.bind:jaxb-api:2.3.0"] if needs_jaxb else [])]


def is_kraft(version: str) -> bool:
    """Return whether brokers of a version run in KRaft mode (4.0 and later)."""
    return numbers(version) >= (4,)


def java_command(
    heap: str,
    jars: Sequence[Path],
    main: str,
    *arguments: str,
    log: Path | None = None,
    java_options: Sequence[str] = (),
) -> list[str]:
    """Return the command line of a server or tool.

    Args:
        heap: minimum and maximum heap size, such as ``128m``.
        main: name of the main class.
        log: log file; its directory is also used for temporary files.
    """
    options = [f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", *java_options]
    if log is not None:
        # The JVM's temporary files are deleted with this directory, even if the JVM is killed.
        options += [f"-Djava.io.tmpdir={log.parent}", "-XX:-UsePerfData"]
        settings = log.parent / "log4j2.properties"
        settings.write_text(LOG4J)
        options += [f"-Dlog4j2.configurationFile={settings}", f"-Dzkconsumer.log={log}"]
    return [java(), *options, "-cp", classpath([*logging_jars(), *jars]), main, *arguments]


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Write a Java properties file without escaping, and return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


ZOOKEEPER_PROPERTIES: dict[str, object] = {
    "tickTime": 500,  # the minimum session timeout is twice this value
    "maxSessionTimeout": 60000,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
}


BROKER_PROPERTIES: dict[str, object] = {
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.partitions": 1,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.hours": 876_000,  # record timestamps may be decades old
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "message.max.bytes": 16 << 20,
    "replica.fetch.max.bytes": 16 << 20,
    "controlled.shutdown.enable": "true",
}


class ZooKeeperServer(ServerProcess):
    """A standalone ZooKeeper server."""

    def __init__(
        self,
        folder: Path,
        java_options: Sequence[str] = (),
        extra: Mapping[str, object] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        settings = write_properties(
            folder / "zookeeper.properties",
            {
                "dataDir": folder / "zookeeper-data",
                "clientPort": self.port,
                "clientPortAddress": "127.0.0.1",
                **ZOOKEEPER_PROPERTIES,
                **(extra or {}),
            },
        )
        command = java_command(
            ZOOKEEPER_HEAP,
            zookeeper_jars(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(settings),
            log=folder / "zookeeper.log",
            java_options=java_options,
        )
        super().__init__("zookeeper", command, folder, self._is_ready)

    @property
    def connect(self) -> str:
        """The value of ``zookeeper.connect`` for clients."""
        return f"127.0.0.1:{self.port}"

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as sock:
                sock.sendall(b"srvr")
                return b"Mode:" in sock.recv(4096)
        except OSError:
            return False


class BrokerServer(ServerProcess):
    """A Kafka broker.

    Args:
        node: broker id.
    """

    def __init__(self, node: int, port: int, folder: Path, version: str, properties: Mapping[str, object]) -> None:
        self.node = node
        self.endpoint = Endpoint("127.0.0.1", port, numbers(version) >= (0, 10))
        settings = write_properties(folder / f"broker-{node}.properties", properties)
        command = java_command(
            BROKER_HEAP,
            kafka_jars(version),
            "kafka.Kafka",
            str(settings),
            log=folder / f"broker-{node}.log",
        )
        self._zookeeper = str(properties.get("zookeeper.connect", ""))
        super().__init__(f"broker-{node}", command, folder, self._is_ready)

    def start(self, *, wait: bool = True) -> None:
        """Start the broker; in ZooKeeper mode, first wait up to 30 s for its previous session to expire.

        The broker would exit if it were started earlier.
        """
        if self.log.exists() and self._zookeeper and not self.is_running:
            client = KazooClient(self._zookeeper)
            client.start(timeout=10)
            try:
                deadline = time.monotonic() + 30
                while client.exists(f"/brokers/ids/{self.node}") and time.monotonic() < deadline:
                    time.sleep(0.05)
            finally:
                client.stop()
                client.close()
        super().start(wait=wait)

    def _is_ready(self) -> bool:
        if not is_listening(self.endpoint.port):
            return False
        channel = Connecting("zkconsumer-devcluster", 5.0, PLAINTEXT).channel(self.endpoint)
        try:
            channel.connect()
        except ZkConsumerError:
            return False
        finally:
            channel.close()
        return True


def _listener(version: str, port: int) -> dict[str, object]:
    if numbers(version) >= (0, 9):
        return {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    return {"host.name": "127.0.0.1", "port": port}


def zookeeper_brokers(
    ports: Sequence[int], folder: Path, version: str, zookeeper_connect: str, extra: Mapping[str, object]
) -> list[BrokerServer]:
    """Create brokers in ZooKeeper mode, one per port. They are not started."""
    brokers = []
    for node, port in enumerate(ports):
        properties = {
            **BROKER_PROPERTIES,
            "broker.id": node,
            **_listener(version, port),
            "zookeeper.connect": zookeeper_connect,
            "zookeeper.session.timeout.ms": 6000,
            "log.dirs": folder / f"broker-{node}-data",
            **extra,
        }
        brokers.append(BrokerServer(node, port, folder, version, properties))
    return brokers


def kraft_brokers(ports: Sequence[int], folder: Path, version: str, extra: Mapping[str, object]) -> list[BrokerServer]:
    """Create brokers in KRaft mode, one per port, and format their storage. They are not started.

    The first broker is also the controller.
    """
    controller = free_port()
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    brokers = []
    for node, port in enumerate(ports):
        properties = {
            **BROKER_PROPERTIES,
            "node.id": node,
            "process.roles": "broker,controller" if node == 0 else "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}"
            + (f",CONTROLLER://127.0.0.1:{controller}" if node == 0 else ""),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "log.dirs": folder / f"broker-{node}-data",
            **extra,
        }
        brokers.append(BrokerServer(node, port, folder, version, properties))
        format_storage = java_command(
            "128m",
            kafka_jars(version),
            "kafka.tools.StorageTool",
            *("format", f"--cluster-id={cluster_id}", "-c", str(folder / f"broker-{node}.properties")),
            log=folder / "format.log",
        )
        done = subprocess.run(format_storage, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ZkConsumerError(f"could not format the storage of broker {node}: {done.stdout}{done.stderr}")
    return brokers
