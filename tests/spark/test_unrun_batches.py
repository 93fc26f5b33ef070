"""DStreams of ``KafkaUtils`` whose batches Spark did not run, and those that only windows read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::FutureWarning")]

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


def failing(folder: Path, is_planned: Callable[[int], bool]) -> Callable[[Any], Any]:
    """Return a function for ``transform`` that fails unless ``is_planned`` accepts the number of its call."""

    def plan(rdd: Any) -> Any:
        with (folder / "calls").open("a+") as file:
            file.write("call\n")
            file.flush()
            file.seek(0)
            call = len(file.readlines())
        if not (folder / "recovered").exists() and not is_planned(call):
            raise OSError("the other stream cannot be planned")
        return rdd

    return plan


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def writer(file: Path) -> Callable[[Any], None]:
    """Return a function for ``foreachRDD`` that appends the values of a batch to a file."""

    def write(rdd: Any) -> None:
        values = [value for _, value in rdd.collect()]
        with file.open("a") as out:
            out.writelines(f"{value}\n" for value in values)

    return write


def read(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
def test_batch_that_was_not_run_is_read_later(
    ssc: StreamingContext,
    streams: Streams,
    folder: Path,
    zkconsumer_cluster: Cluster,
    name: str,
    group: str,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    created = streams(ssc)
    for kind, stream in created.items():
        stream.foreachRDD(writer(folder / kind))
    created["group"].transform(failing(folder, lambda call: call not in (1, 3))).foreachRDD(lambda _rdd: None)
    ssc.start()
    wait_for(lambda: calls(folder) > 1, 30)
    produce(zkconsumer_cluster.admin, name, 0, numbers(20, 30))
    wait_until_equal(lambda: stored(zk, group, name), {0: "30"})
    # If the first batch fails again in the batch that has taken it over, it is read after the next one.
    orders = list(range(30)), [*range(20, 30), *range(20)]
    assert read(folder / "group") in orders, "records are committed only after they were read"
    wait_for(lambda: read(folder / "direct") in orders, what="each record is read once")
    assert "batch_rescheduled" in caplog.text
    assert "batch_failed" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("planned", [[2], [2, 3, 4]], ids=["not_rescheduled", "rescheduled"])
def test_recovered_context_reads_batch_that_was_not_run(
    spark: Any,
    streams: Streams,
    folder: Path,
    zkconsumer_cluster: Cluster,
    name: str,
    group: str,
    zk: KazooClient,
    planned: list[int],
) -> None:
    """Only some of the first batches are planned before the application is stopped. The first one is not run."""

    def create() -> StreamingContext:
        context = StreamingContext(spark.sparkContext, 0.5)
        created = streams(context)
        for kind, stream in created.items():
            stream.foreachRDD(writer(folder / kind))
        created["group"].transform(failing(folder, lambda call: call in planned)).foreachRDD(lambda _rdd: None)
        return context

    context = StreamingContext.getOrCreate(str(folder / "checkpoint"), create)
    context.start()
    wait_for(lambda: calls(folder) > max(planned) + 3, 30)
    context.stop(stopSparkContext=False)
    assert int(stored(zk, group, name)[0]) <= len(read(folder / "group"))
    wait_until_equal(lambda: members(zk, group), [])
    (folder / "recovered").touch()
    produce(zkconsumer_cluster.admin, name, 0, numbers(20, 30))

    context = StreamingContext.getOrCreate(str(folder / "checkpoint"), create)
    try:
        context.start()
        wait_until_equal(lambda: stored(zk, group, name), {0: "30"})
        assert set(read(folder / "group")) == set(range(30)), "records are committed only after they were read"
        wait_until_equal(lambda: set(read(folder / "direct")), set(range(30)))
    finally:
        context.stop(stopSparkContext=False)


@pytest.mark.slow
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
    assert "batch_rescheduled" not in caplog.text
