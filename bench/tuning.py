"""``python -m bench.tuning``: memory of a consumer with full queues, for several settings.

Each setting is measured in its own process, with a stream that returns one Arrow batch and is not read afterwards. The
baseline is the resident memory of a consumer that read a topic with one record.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid

import psutil

from bench.child_processes import stopping_children
from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch

PARTITIONS = 16
MIB = 1 << 20

#: Maximum size of the free buffers that a consumer keeps for reuse, in bytes; see ``zkconsumer.broker.buffers``.
MAX_FREE_BYTES = 16 * MIB

#: Consumer properties of each measurement.
SETTINGS: tuple[dict[str, int], ...] = (
    {},
    {"queued.max.message.chunks": 1},
    {"queued.max.message.chunks": 10},
    {"fetch.message.max.bytes": 256 * 1024},
    {"queued.max.bytes": 8 * MIB},
    {"queued.max.bytes": 8 * MIB, "fetch.max.bytes": 4 * MIB},
)


def measure(zookeeper: str, topic: str, settings: dict[str, int]) -> int:
    """Return the resident memory in bytes once it no longer grows."""
    properties = {"group.id": f"tuning-{uuid.uuid4().hex[:8]}", "zookeeper.connect": zookeeper}
    config = ConsumerConfig.from_dict({**properties, "auto.offset.reset": "smallest", **settings})
    with create_consumer(config) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        next(stream.batches())
        process, last = psutil.Process(), 0
        while (now := process.memory_info().rss) > last:
            last = now
            time.sleep(3)
    return last


def main() -> None:
    """Print the memory used with each setting, and the result of the formula in ``docs/tuning.rst``."""
    with DevCluster(brokers=2) as cluster:
        cluster.create_topic("small")
        cluster.admin.produce(TopicPartition("small", 0), numbered_batch(0, 1))
        cluster.create_topic("large", PARTITIONS)
        for number in range(PARTITIONS):
            for first in range(0, 160_000, 5_000):
                cluster.admin.produce(TopicPartition("large", number), numbered_batch(first, 5_000))
        base = _run(cluster.zookeeper_connect, "small", {})
        print(f"base: {base / MIB:.0f} MiB")
        for settings in SETTINGS:
            used = _run(cluster.zookeeper_connect, "large", settings) - base
            config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z", **settings})
            queued = min(
                config.queued_max_bytes,
                PARTITIONS * config.queued_max_message_chunks * config.fetch_message_max_bytes,
            )
            in_flight = 2 * min(config.fetch_max_bytes, PARTITIONS // 2 * config.fetch_message_max_bytes)
            limit = queued + in_flight + MAX_FREE_BYTES + 2 * MIB
            print(f"{settings}: {used / MIB:.0f} MiB, formula {limit / MIB:.0f} MiB", flush=True)


def _run(zookeeper: str, topic: str, settings: dict[str, int]) -> int:
    command = [sys.executable, "-m", "bench.tuning", zookeeper, topic, json.dumps(settings)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(measure(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
    else:
        with stopping_children():
            main()
