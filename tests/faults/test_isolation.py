"""Tests that a partition which is not read, or cannot be fetched, does not block others."""

from __future__ import annotations

import time
from collections.abc import Callable

from helpers.reading import Reader
from helpers.waiting import wait_for

from zkconsumer import TopicPartition, ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch

PARTITIONS, BATCHES, BATCH, SIZE = 8, 30, 500, 200

#: Maximum bytes per fetch and partition, so that each partition needs about twenty fetches.
FETCH = 200_000


def fill(cluster: DevCluster, name: str) -> int:
    """Write the same records to all partitions; return the number of records per partition."""
    for number in range(BATCHES):
        content = numbered_batch(number * BATCH, BATCH, size=SIZE)
        for partition in range(PARTITIONS):
            cluster.admin.produce(TopicPartition(name, partition), content)
    return BATCHES * BATCH


def test_unread_stream_neither_blocks_others_nor_grows(
    cluster: DevCluster, consumer: Callable[..., ZookeeperConsumerConnector], topic: Callable[..., str]
) -> None:
    name = topic(partitions=PARTITIONS)
    records = fill(cluster, name)
    took = {}
    for unread in (0, 1):
        one = consumer(group_id=f"{name}-{unread}", fetch_message_max_bytes=FETCH, consumer_timeout_ms=-1)
        started = time.monotonic()
        streams = one.create_message_streams({name: PARTITIONS})[name]
        readers = [Reader(stream) for stream in streams[unread:]]
        wait_for(lambda: sum(len(r.seen) for r in readers) == records * len(readers))
        took[unread] = time.monotonic() - started
        waiting = sorted(values["Value"] for name, values in one.metrics.items() if name.name == "FetchQueueSize")
        one.shutdown()
        for reader in readers:
            reader.finish()
            assert [m.offset for m in reader.seen] == list(range(records))
    assert len(waiting) == PARTITIONS
    assert waiting[-1] <= 3, "the offset reset and two chunks, each of which FETCH limits"
    assert set(waiting[:-1]) == {0}
    assert took[1] < 2 * took[0] + 1, took
