"""Benchmark topics: 5 million records of 100 bytes in 8 partitions, unless stated otherwise."""

from __future__ import annotations

import functools
import sys

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

RECORDS = 5_000_000
PARTITIONS = 8
VALUE_SIZE = 100

#: Maximum fetch size per partition, in bytes; the same for all clients.
FETCH_BYTES = 1 << 20

#: Records per batch: about as many as fit into the Java producer's default batch size, 16 KiB.
PER_BATCH = 140

CODECS = ("none", "lz4")


def fill(
    cluster: DevCluster, codec: str, records: int = RECORDS, *, size: int = VALUE_SIZE, partitions: int = PARTITIONS
) -> str:
    """Return the name of a topic with ``records`` records. The first call creates and fills the topic."""
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
