"""Writes the checkpoints of one version of zkconsumer, see ``README.rst``."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jobs
import pyspark
from kazoo.client import KazooClient

import zkconsumer
from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.load import numbered_batch

PARTITIONS, RECORDS, PER_BATCH = 2, 50, 20


def main(work: Path, target: Path) -> None:
    """Run each application until its second batch is in progress, kill it, and copy its checkpoint to ``target``."""
    written: dict[str, Any] = {
        "zkconsumer": zkconsumer.__version__,
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
    }
    with DevCluster(brokers=2) as cluster:
        zk = KazooClient(cluster.zookeeper_connect)
        zk.start()
        for kind, start in (("structured", start_structured), ("dstreams", start_dstreams)):
            name = f"old-{kind}-{target.name.removeprefix('checkpoints-')}"
            cluster.create_topic(name, PARTITIONS)
            for number in range(PARTITIONS):
                records = numbered_batch(1000 * number, RECORDS, size=8)
                cluster.admin.produce(TopicPartition(name, number), records)
            settings = {
                "folder": str(work / kind),
                "topic": name,
                "group": name,
                "zookeeper": cluster.zookeeper_connect,
                "brokers": cluster.bootstrap_servers,
            }
            start(settings).kill()
            offsets = f"/consumers/{name}/offsets/{name}"
            written[kind] = {
                **settings,
                "partitions": PARTITIONS,
                "records_per_partition": RECORDS,
                "records_per_partition_and_batch": PER_BATCH,
                "topic_id": jobs.find_topic_id(zk, name),
                "group_offsets": {n: int(zk.get(f"{offsets}/{n}")[0]) for n in sorted(zk.get_children(offsets))},
            }
            copy(work / kind, target / kind)
        zk.stop()
        zk.close()
    (target / "written.json").write_text(json.dumps(written, indent=2) + "\n")


def start_structured(settings: Mapping[str, Any]) -> jobs.Job:
    """Return the application while batch 1 is in progress."""
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
    return job


def start_dstreams(settings: Mapping[str, Any]) -> jobs.Job:
    """Return the application while batch 2 is in progress."""
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
    while not (job.folder / "checkpoint" / "checkpoint-2000").exists():  # written by another thread
        time.sleep(0.05)
    return job


def copy(folder: Path, target: Path) -> None:
    """Copy outputs and checkpoint, without checksums and without the older of two checkpoints of a context."""
    unneeded = shutil.ignore_patterns(".*", "checkpoint-1000*")
    shutil.copytree(folder / "checkpoint", target / "checkpoint", ignore=unneeded)
    shutil.copy(folder / "seen", target / "seen")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
