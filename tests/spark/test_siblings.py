"""Several sources of one group in one query or streaming context: they divide the partitions between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, stored
from kazoo.client import KazooClient
from pyspark.streaming import StreamingContext

from zkconsumer.spark.kafka_utils import KafkaUtils

from .queries import Query, is_committing, repetitions

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore::FutureWarning")]

PARTITIONS = 4

Unions = Callable[..., Query]

#: The pairs that the batches of the streaming contexts have read.
FOUND: list[tuple[Any, str]] = []


def collect(rdd: Any) -> None:
    """Add the pairs of a batch to ``FOUND``. Checkpoints contain the name of this function."""
    FOUND.extend(rdd.collect())


def has_read(count: int) -> bool:
    """Return whether the batches have read at least ``count`` records."""
    return len(FOUND) >= count


def has_checkpoint_after(folder: Path, time_s: float) -> bool:
    """Return whether Spark has written the checkpoint of a batch after ``time_s`` (Unix time)."""
    return any(int(path.name.removeprefix("checkpoint-")) > time_s * 1_000 for path in folder.glob("checkpoint-*[0-9]"))


@pytest.fixture
def filled(zkconsumer_cluster: Cluster, topic: Topics) -> Callable[[int, int], str]:
    """Write the records with these offsets to each partition of a topic, and return its name."""
    name = topic(partitions=PARTITIONS)

    def fill(start: int, end: int) -> str:
        for partition in range(PARTITIONS):
            produce(zkconsumer_cluster.admin, name, partition, numbers(start, end))
        return name

    return fill


@pytest.fixture
def union(spark: Any, options: Callable[..., dict[str, str]], checkpoint: Path) -> Iterator[Unions]:
    """Start a query on the union of several sources of one group."""
    queries = []

    def start(name: str, sources: int, settings: dict[str, str], **arguments: Any) -> Query:
        wanted = options(name, **settings)
        frames = [spark.readStream.format("zkconsumer").options(**wanted).load() for _ in range(sources)]
        queries.append(Query(reduce(lambda one, other: one.union(other), frames), checkpoint, **arguments))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()
    wait_for(lambda: not is_committing(spark), 30, what="the listener has committed the last batches")


@pytest.mark.parametrize(
    ("sources", "settings"),
    [
        pytest.param(2, {}, id="2"),
        pytest.param(3, {}, id="3", marks=pytest.mark.slow),
        pytest.param(6, {}, id="6", marks=pytest.mark.slow),
        pytest.param(2, {"ignoreUnsubscribedTopics": "false"}, id="2-unsubscribed", marks=pytest.mark.slow),
    ],
)
def test_sources_of_query_read_each_record_once(
    sources: int,
    settings: dict[str, str],
    union: Unions,
    filled: Callable[[int, int], str],
    zk: KazooClient,
    group: str,
) -> None:
    name, ends = filled(0, 50), dict.fromkeys(range(PARTITIONS), 100)
    first = union(name, sources, settings)
    first.wait_for_records(50 * PARTITIONS)
    assert len(members(zk, group)) == sources
    # A query that is stopped before the end of its batch repeats the batch.
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(PARTITIONS), "50"))
    first.stop()
    filled(50, 100)
    second = union(name, sources, settings, trigger={"availableNow": True})
    second.finish()

    assert repetitions([first.offsets, second.offsets], ends) == 0
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(PARTITIONS), "100"))


@pytest.mark.parametrize("streams", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_streams_of_context_read_each_record_once(
    streams: int,
    spark: Any,
    zkconsumer_cluster: Cluster,
    filled: Callable[[int, int], str],
    folder: Path,
    zk: KazooClient,
    group: str,
) -> None:
    """Also after a recovery from a checkpoint, whose streams must be assigned the same partitions."""
    name = filled(0, 50)

    def create() -> StreamingContext:
        # On a busy machine, a batch of all streams takes longer than half a second, and later batches wait for it.
        context = StreamingContext(spark.sparkContext, 2)
        context.checkpoint(str(folder))
        settings = {"auto.offset.reset": "smallest", "zookeeper.sync.time.ms": "200"}
        kafka = [
            KafkaUtils.createStream(context, zkconsumer_cluster.zookeeper_connect, group, {name: 1}, dict(settings))
            for _ in range(streams)
        ]
        context.union(*kafka).foreachRDD(collect)
        return context

    FOUND.clear()
    for end in (50, 100):
        if end > 50:
            filled(end - 50, end)
        context = StreamingContext.getOrCreate(str(folder), create)
        try:
            context.start()
            wait_for(partial(has_read, end * PARTITIONS), 60, what=f"offsets below {end}")
            assert len(members(zk, group)) == streams
            wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(PARTITIONS), str(end)))
            # Spark runs batches again that had not finished when it wrote the checkpoint.
            wait_for(partial(has_checkpoint_after, folder, time.time()), 60, what="a checkpoint after these batches")
        finally:
            context.stop(stopSparkContext=False)
        wait_until_equal(lambda: members(zk, group), [])

    assert Counter(int(value) for _, value in FOUND) == dict.fromkeys(range(100), PARTITIONS)
