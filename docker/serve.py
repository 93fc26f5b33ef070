"""Entry point of the image, which runs ZooKeeper or a Kafka broker, for development and tests.

The broker connects to ZooKeeper by its service name in ``compose.yaml``. Data is deleted with the container.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from zkconsumer.devcluster.cluster import DEFAULT_KAFKA
from zkconsumer.devcluster.jars import resolve, spark_jars
from zkconsumer.devcluster.servers import (
    BROKER_HEAP,
    BROKER_PROPERTIES,
    ZOOKEEPER_HEAP,
    java_command,
    kafka_coordinate,
    write_properties,
)

_FOLDER = Path("/var/lib/zkconsumer")

_ZOOKEEPER = {
    "dataDir": _FOLDER / "zookeeper-data",
    "clientPort": 2181,
    "tickTime": 500,  # the minimum session timeout is 1 s
    "maxSessionTimeout": 60000,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
}

_KAFKA = {
    **BROKER_PROPERTIES,
    "broker.id": 0,
    "listeners": "PLAINTEXT://0.0.0.0:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",  # the published port
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": 6000,
    "log.dirs": _FOLDER / "kafka-data",
}


def zookeeper() -> list[str]:
    """Write the configuration of ZooKeeper, and return its command line."""
    settings = write_properties(_FOLDER / "zookeeper.properties", _ZOOKEEPER)
    jars = sorted(spark_jars().glob("*.jar"))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return java_command(ZOOKEEPER_HEAP, jars, main, str(settings), log=_standard_output())


def kafka() -> list[str]:
    """Write the configuration of the broker, and return its command line."""
    settings = write_properties(_FOLDER / "kafka.properties", _KAFKA)
    jars = resolve(kafka_coordinate(DEFAULT_KAFKA))
    return java_command(BROKER_HEAP, jars, "kafka.Kafka", str(settings), log=_standard_output())


def _standard_output() -> Path:
    """Return a log file that is a link to standard output."""
    log = _FOLDER / "server.log"
    log.unlink(missing_ok=True)  # from an earlier run of this container
    log.symlink_to("/dev/stdout")
    return log


def main() -> None:
    """Replace this process with the server that the argument names."""
    commands = {"zookeeper": zookeeper, "kafka": kafka}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: serve.py {' | '.join(commands)}")
    command = commands[sys.argv[1]]()
    os.execv(command[0], command)  # the server then receives the signal of docker stop


if __name__ == "__main__":
    main()
