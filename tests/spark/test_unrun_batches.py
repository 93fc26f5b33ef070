"""DStreams of ``KafkaUtils`` that only windows read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.streaming import StreamingContext
from support import numbers, produce, stored, wait_until_equal

from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.spark.kafka_utils import KafkaUtils

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::FutureWarning")]

Cluster = DevCluster | ExistingCluster
Topics = Callable[..., str]
Streams = Callable[[StreamingContext], dict[str, Any]]

RESET = {"auto.offset.reset": "smallest"}


@pytest.fixture
def ssc(spark: Any) -> Iterator[StreamingContext]:
    """A streaming context with a batch interval of 500 ms."""
    context = StreamingContext(spark.sparkContext, 0.5)
    yield context
    context.stop(stopSparkContext=False)


@pytest.fixture
def name(zkconsumer_cluster: Cluster, topic: Topics) -> str:
    """A topic with 20 records."""
    created = topic()
    produce(zkconsumer_cluster.admin, created, 0, numbers(0, 20))
    return created


@pytest.fixture
def streams(zkconsumer_cluster: Cluster, name: str, group: str) -> Streams:
    """Create a stream of the group, and one without a group."""

    def create(context: StreamingContext) -> dict[str, Any]:
        zookeeper, brokers = zkconsumer_cluster.zookeeper_connect, zkconsumer_cluster.bootstrap_servers
        return {
            "group": KafkaUtils.createStream(context, zookeeper, group, {name: 1}, dict(RESET)),
            "direct": KafkaUtils.createDirectStream(context, [name], {**RESET, "metadata.broker.list": brokers}),
        }

    return create


def writer(file: Path) -> Callable[[Any], None]:
    """Return a function for ``foreachRDD`` that appends the values of a batch to a file."""

    def write(rdd: Any) -> None:
        values = [value for _, value in rdd.collect()]
        with file.open("a") as out:
            out.writelines(f"{value}\n" for value in values)

    return write


def read(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_stream_of_windows_reads_each_record_once(
    ssc: StreamingContext,
    streams: Streams,
    folder: Path,
    zkconsumer_cluster: Cluster,
    name: str,
    group: str,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark requests the batch times of a window when the window is due. It submits no jobs at the earlier times."""
    for kind, stream in streams(ssc).items():
        stream.window(2.0, 2.0).foreachRDD(writer(folder / kind))
    ssc.start()
    for end in (20, 30, 40):
        wait_until_equal(lambda end=end: read(folder / "direct"), list(range(end)))  # type: ignore[misc]
        wait_until_equal(lambda end=end: stored(zk, group, name), {0: str(end)})  # type: ignore[misc]
        assert read(folder / "group") == list(range(end))
        produce(zkconsumer_cluster.admin, name, 0, numbers(end, end + 10))
    assert "batch_failed" not in caplog.text
