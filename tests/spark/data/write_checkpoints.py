"""Writes the data of one version of zkconsumer, see ``README.rst``: ``python write_checkpoints.py work target``.

Further arguments select the kinds of checkpoints, and omit all other data: ``... work target structured streams``.
"""

from __future__ import annotations

import gzip
import json
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dsl_stores
import jobs
import pyspark
import state_stores
from kazoo.client import KazooClient

import zkconsumer
from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.tools.cli import main as run_tool
from zkconsumer.topology import TopologyTestDriver

#: Of the topics of ``structured`` and ``dstreams``.
PARTITIONS, RECORDS, PER_BATCH = 2, 50, 20


def main(work: Path, target: Path, kinds: Sequence[str]) -> None:
    """Write the checkpoints, the state files and the exported offsets to ``target``.

    Args:
        kinds: kinds of checkpoints; if empty, all data is written.
    """
    target.mkdir(parents=True)
    version = target.name.removeprefix("checkpoints-")
    written: dict[str, Any] = {
        "zkconsumer": zkconsumer.__version__,
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
    }
    with DevCluster(brokers=2) as cluster:
        for kind in kinds or RUN:
            name = f"old-{kind}-{version}"
            settings = {
                "folder": str(work / kind),
                "topic": name,
                "group": name,
                "zookeeper": cluster.zookeeper_connect,
                "brokers": cluster.bootstrap_servers,
            }
            written[kind] = {**settings, **RUN[kind](cluster, settings), **read_znodes(cluster, name)}
            copy(work / kind, target / kind)
        if not kinds:
            export_offsets(cluster, f"old-exported-{version}", work, target / "exported-offsets")
    if not kinds:
        for name, module in (("topology", state_stores), ("dsl", dsl_stores)):
            write_state_file(module, work / name, target / name)
    (target / "written.json").write_text(json.dumps(written, indent=2) + "\n")


def run_structured(cluster: DevCluster, settings: Mapping[str, Any]) -> dict[str, int]:
    """Run the query until batch 1 is in progress, and kill it."""
    described = create_topic(cluster, settings["topic"])
    options = {
        "zookeeper.connect": settings["zookeeper"],
        "group.id": settings["group"],
        "subscribe": settings["topic"],
        "auto.offset.reset": "smallest",
        "maxOffsetsPerTrigger": str(PARTITIONS * PER_BATCH),
    }
    job = jobs.Job("structured", {**settings, "options": options}, java_home())
    job.hold("query", 1)
    job.wait_for("query", 1)
    job.kill()
    return described


def run_dstreams(cluster: DevCluster, settings: Mapping[str, Any]) -> dict[str, int]:
    """Run the context until batch 2 is in progress, and kill it."""
    described = create_topic(cluster, settings["topic"])
    rates = {
        "spark.streaming.kafka.maxRatePerPartition": PER_BATCH,
        "spark.streaming.receiver.maxRate": PARTITIONS * PER_BATCH,
    }
    job = jobs.Job("dstreams", {**settings, "rates": rates}, java_home())
    job.advance()
    job.wait_for("latest", 1)
    job.hold("latest", 2)
    job.advance()
    job.wait_for("latest", 2)
    wait_for_file(job.folder / "checkpoint" / "checkpoint-2000")
    job.kill()
    return described


def run_streams(cluster: DevCluster, settings: Mapping[str, Any]) -> dict[str, int]:
    """Run the application until batch 1 is in progress, and kill it."""
    prefix = settings["topic"]
    for topic, partitions in state_stores.TOPICS.items():
        cluster.create_topic(f"{prefix}-{topic}", partitions)
    jobs.produce(cluster.bootstrap_servers, prefix, state_stores.list_stored())
    described = {
        "records_per_partition": len(state_stores.STORED) // state_stores.PARTITIONS,
        "records_per_partition_and_batch": state_stores.PER_BATCH,
    }
    properties = {"zookeeper.connect": settings["zookeeper"]}
    job = jobs.Job("streams", {**settings, "properties": properties, "available_now": False}, java_home())
    job.hold("update", 1)
    job.wait_for("update", 1)
    wait_for_file(job.folder / "checkpoint" / "state" / "0" / "0" / "1.zip")
    job.kill()
    return described


#: Functions that run the applications, by kind of checkpoint.
RUN = {"structured": run_structured, "dstreams": run_dstreams, "streams": run_streams}


def wait_for_file(path: Path) -> None:
    """Wait for a file that another thread of the application writes."""
    while not path.exists():
        time.sleep(0.05)


def create_topic(cluster: DevCluster, name: str) -> dict[str, int]:
    """Create a topic with numbers as values, and return how many there are."""
    cluster.create_topic(name, PARTITIONS)
    for number in range(PARTITIONS):
        cluster.admin.produce(TopicPartition(name, number), numbered_batch(1000 * number, RECORDS, size=8))
    return {"records_per_partition": RECORDS, "records_per_partition_and_batch": PER_BATCH}


def read_znodes(cluster: DevCluster, name: str) -> dict[str, Any]:
    """Return the topics of an application, and the committed offsets of its group."""
    zk = KazooClient(cluster.zookeeper_connect)
    zk.start()
    try:
        topics = sorted(topic for topic in zk.get_children("/brokers/topics") if topic.startswith(name))
        offsets = f"/consumers/{name}/offsets"
        return {
            "topics": {
                topic: {
                    "partitions": len(zk.get_children(f"/brokers/topics/{topic}/partitions")),
                    "id": jobs.find_topic_id(zk, topic),
                }
                for topic in topics
            },
            "group_offsets": {
                topic: {
                    n: int(zk.get(f"{offsets}/{topic}/{n}")[0]) for n in sorted(zk.get_children(f"{offsets}/{topic}"))
                }
                for topic in sorted(zk.get_children(offsets))
            },
        }
    finally:
        zk.stop()
        zk.close()


def copy(folder: Path, target: Path) -> None:
    """Copy outputs and checkpoint.

    Checksums, the older of two checkpoints of a context, and changelogs are omitted. The RocksDB files have the content
    of the changelogs.
    """
    unneeded = shutil.ignore_patterns(".*", "checkpoint-1000*", "*.changelog")
    shutil.copytree(folder / "checkpoint", target / "checkpoint", ignore=unneeded)
    shutil.copy(folder / "seen", target / "seen")


def export_offsets(cluster: DevCluster, name: str, work: Path, target: Path) -> None:
    """Commit offsets of a group, and write the file of ``zkconsumer export-offsets``."""
    create_topic(cluster, name)
    properties = work / "consumer.properties"
    properties.write_text(f"zookeeper.connect={cluster.zookeeper_connect}\ngroup.id={name}\n")
    connect = ["--zkconnect", cluster.zookeeper_connect, "--group", name]
    assert run_tool(["update-offsets", "latest", str(properties), name]) == 0
    assert run_tool(["export-offsets", *connect, "--output-file", str(target)]) == 0


def write_state_file(module: Any, work: Path, target: Path) -> None:
    """Write a state file, the contents of its stores, and contents and output after further records."""
    target.mkdir()
    with TopologyTestDriver(module.build_topology(), module.CONFIG, state_file=work) as driver:
        module.store_records(driver)
        contents = {"stored": module.read_stores(driver)}
    write_compressed(target / "state.gz", work.read_bytes())
    with TopologyTestDriver(module.build_topology(), module.CONFIG, state_file=work) as driver:
        module.continue_records(driver)
        contents |= {"continued": module.read_stores(driver), "output": module.read_output(driver)}
    write_compressed(target / "contents.json.gz", json.dumps(contents).encode())


def write_compressed(path: Path, content: bytes) -> None:
    """Write a file with gzip, so that equal contents result in equal files."""
    path.write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
