"""Write the jars and the configuration of ZooKeeper and Kafka for the image: ``python server_files.py VERSION FOLDER``.

The settings are those of the development cluster. ``entrypoint.sh`` adds those that depend on the container.
"""

import shutil
import sys
from pathlib import Path

from zkconsumer.devcluster import servers


def main(version: str, folder: Path) -> None:
    """Copy the jars and write the properties."""
    folders = {
        "logging": servers.logging_jars(),
        "zookeeper": servers.zookeeper_jars(),
        "kafka": servers.kafka_jars(version),
    }
    for name, jars in folders.items():
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
