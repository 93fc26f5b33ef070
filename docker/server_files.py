"""Write the jars and the configuration of ZooKeeper and Kafka for the image: ``python server_files.py VERSION FOLDER``.

The settings are those of the development cluster. ``entrypoint.sh`` adds those that depend on the container.
"""

import shutil
import sys
from pathlib import Path

from zkconsumer.devcluster import servers
from zkconsumer.devcluster.jars import spark_jars

#: Jars of ZooKeeper, which are part of pyspark. Kafka 4 contains no ZooKeeper.
ZOOKEEPER_JARS = ("zookeeper-*", "netty-*", "metrics-core-*", "commons-io-*", "snappy-java-*", "audience-annotations-*")


def main(version: str, folder: Path) -> None:
    """Copy the jars and write the properties."""
    zookeeper = [jar for pattern in ZOOKEEPER_JARS for jar in spark_jars().glob(f"{pattern}.jar")]
    kafka = servers.kafka_jars(version)
    for name, jars in (("logging", servers.logging_jars()), ("zookeeper", zookeeper), ("kafka", kafka)):
        target = folder / name
        target.mkdir(parents=True)
        for jar in jars:
            shutil.copy(jar, target)
    config = folder / "config"
    config.mkdir()
    servers.write_properties(config / "kafka.properties", servers.BROKER_PROPERTIES)
    servers.write_properties(config / "zookeeper.properties", servers.ZOOKEEPER_PROPERTIES)
    (config / "log4j2.properties").write_text(servers.LOG4J)
    (config / "version").write_text(version)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
