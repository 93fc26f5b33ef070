"""The topics of the benchmarks: 5 million records of 100 bytes in 8 partitions, unless stated otherwise."""

from __future__ import annotations

import functools
import sys

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

RECORDS = 5_000_000
PARTITIONS = 8
VALUE_SIZE = 100

#: Maximum bytes per partition and fetch; the same for all clients.
FETCH_BYTES = 1 << 20

#: Records per batch of the log: about as many as fit into the 16 KiB of a Java producer.
PER_BATCH = 140

CODECS = ("none", "lz4")


def fill(
    cluster: DevCluster, codec: str, records: int = RECORDS, *, size: int = VALUE_SIZE, partitions: int = PARTITIONS
) -> str:
    """Return the name of a topic with these records; the first call creates and fills it."""
    return _fill(cluster, codec, records, size, partitions)


@functools.cache
def _fill(cluster: DevCluster, codec: str, records: int, size: int, partitions: int) -> str:
    topic = cluster.create_topic(f"bench-{codec}-{size}-{partitions}-{records}", partitions)
    print(f"filling {topic} with {records:,} records", file=sys.stderr, flush=True)
    per_batch = max(1, PER_BATCH * VALUE_SIZE // size)
    produced = 0
    while produced < records:
        for partition in range(partitions):
            count = min(per_batch, records - produced)
            if not count:
                break
            data = numbered_batch(produced, count, size=size, codec=codec)
            cluster.admin.produce(TopicPartition(topic, partition), data)
            produced += count
    return topic
