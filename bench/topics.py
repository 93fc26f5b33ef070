"""Benchmark topics: 5 million records of 100 bytes in 8 partitions, unless stated otherwise."""

from __future__ import annotations

import functools
import sys
import time

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

RECORDS = 5_000_000
PARTITIONS = 8
VALUE_SIZE = 100

#: Records of 100 bytes per batch: about as many as fit into the Java producer's default batch size, 16 KiB.
PER_BATCH = 140

CODECS = ("none", "lz4")


def fill(
    cluster: DevCluster,
    codec: str = "none",
    records: int = RECORDS,
    *,
    size: int = VALUE_SIZE,
    partitions: int = PARTITIONS,
    key_size: int = 0,
    headers: int = 0,
) -> str:
    """Return the name of a topic with ``records`` records. The first call creates and fills the topic."""
    return _fill(cluster, codec, records, size, partitions, key_size, headers)


@functools.cache
def _fill(
    cluster: DevCluster, codec: str, records: int, size: int, partitions: int, key_size: int, headers: int
) -> str:
    shape = "-".join(map(str, (codec, size, partitions, records, key_size, headers)))
    topic = cluster.create_topic(f"bench-{shape}", partitions)
    print(f"filling {topic} with {records:,} records", file=sys.stderr, flush=True)
    per_batch = max(1, PER_BATCH * VALUE_SIZE // size)
    produced = 0
    while produced < records:
        for partition in range(partitions):
            count = min(per_batch, records - produced)
            if not count:
                break
            if key_size or headers:
                data = _keyed_batch(count, size, key_size, headers)
            else:
                data = numbered_batch(produced, count, size=size, codec=codec)
            cluster.admin.produce(TopicPartition(topic, partition), data)
            produced += count
    return topic


@functools.cache
def _keyed_batch(count: int, size: int, key_size: int, headers: int) -> bytes:
    """Return an uncompressed batch of equal records with keys or headers."""
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    pairs = [(f"header-{number}", b"0" * 16) for number in range(headers)]
    for offset in range(count):
        builder.append(offset, int(time.time() * 1000), b"k" * key_size or None, b"0" * size, pairs)
    return bytes(builder.build())
