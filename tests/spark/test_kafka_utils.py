"""``KafkaUtils`` as in pyspark 2.4: the upstream tests, and further behavior that applications rely on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient
from pyspark.streaming import StreamingContext

from zkconsumer.devcluster.java import java_home
from zkconsumer.spark.dstreams import kafka_utils
from zkconsumer.spark.dstreams.follower import follow
from zkconsumer.spark.dstreams.sources import Source
from zkconsumer.spark.kafka_utils import (
    Broker,
    KafkaUtils,
    OffsetRange,
    TopicAndPartition,
)

from .spark2 import EXAMPLES, example

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::FutureWarning")]


#: The records of the upstream tests.
LETTERS = [b"a"] * 3 + [b"b"] * 5 + [b"c"] * 10


@pytest.fixture
def ssc(spark: Any, topic: Topics, group: str) -> Iterator[StreamingContext]:
    """A streaming context with a batch interval of 500 ms, which stops before topics and groups are deleted."""
    context = StreamingContext(spark.sparkContext, 0.5)
    yield context
    context.stop(stopSparkContext=False)


@pytest.fixture
def params(zkconsumer_cluster: Cluster) -> dict[str, str]:
    return {"metadata.broker.list": zkconsumer_cluster.bootstrap_servers, "auto.offset.reset": "smallest"}


@pytest.fixture
def letters(zkconsumer_cluster: Cluster, topic: Topics) -> str:
    """A topic with the records of the upstream tests."""
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, LETTERS)
    return name


def collected(stream: Any) -> list[Any]:
    """Return a list to which the elements of each batch are appended."""
    found: list[Any] = []
    stream.foreachRDD(lambda _time, rdd: found.extend(rdd.collect()))
    return found


def pairs(count: int = 18) -> list[tuple[None, str]]:
    return [(None, value.decode()) for value in LETTERS[:count]]


# ---- the upstream tests --------------------------------------------------------------------------------


def test_kafka_stream(ssc: StreamingContext, letters: str, zkconsumer_cluster: Cluster, group: str) -> None:
    stream = KafkaUtils.createStream(
        ssc, zkconsumer_cluster.zookeeper_connect, group, {letters: 1}, {"auto.offset.reset": "smallest"}
    )
    found = collected(stream)
    ssc.start()
    wait_until_equal(lambda: found, pairs(), 30)


def test_kafka_direct_stream(ssc: StreamingContext, letters: str, params: dict[str, str]) -> None:
    found = collected(KafkaUtils.createDirectStream(ssc, [letters], params))
    ssc.start()
    wait_until_equal(lambda: found, pairs(), 30)


def test_kafka_direct_stream_from_offset(ssc: StreamingContext, letters: str, params: dict[str, str]) -> None:
    stream = KafkaUtils.createDirectStream(ssc, [letters], params, {TopicAndPartition(letters, 0): 16})
    found = collected(stream)
    ssc.start()
    wait_until_equal(lambda: found, pairs()[16:], 30)


def test_kafka_rdd(spark: Any, letters: str, params: dict[str, str]) -> None:
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(letters, 0, 0, 18)])
    assert rdd.collect() == pairs()


def test_kafka_rdd_with_leaders(spark: Any, letters: str, params: dict[str, str]) -> None:
    host, _, port = params["metadata.broker.list"].split(",")[0].rpartition(":")
    leaders = {TopicAndPartition(letters, 0): Broker(host, int(port))}  # may not be the leader
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(letters, 0, 0, 18)], leaders)
    assert rdd.collect() == pairs()


@pytest.mark.slow
def test_kafka_rdd_get_offset_ranges(spark: Any, letters: str, params: dict[str, str]) -> None:
    ranges = [OffsetRange(letters, 0, 0, 3), OffsetRange(letters, 0, 3, 8)]
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, ranges)
    assert rdd.offsetRanges() == ranges
    assert rdd.glom().map(len).collect() == [3, 5]


def test_kafka_direct_stream_foreach_get_offset_ranges(
    ssc: StreamingContext, letters: str, params: dict[str, str]
) -> None:
    found: list[OffsetRange] = []
    stream = KafkaUtils.createDirectStream(ssc, [letters], params)
    stream.foreachRDD(lambda _time, rdd: found.extend(rdd.offsetRanges()))
    ssc.start()
    wait_for(lambda: found, 30)
    assert found[0] == OffsetRange(letters, 0, 0, 18)


def test_kafka_direct_stream_transform_get_offset_ranges(
    ssc: StreamingContext, letters: str, params: dict[str, str]
) -> None:
    found: list[OffsetRange] = []

    def take_note(rdd: Any) -> Any:
        found.extend(rdd.offsetRanges())
        return rdd

    stream = KafkaUtils.createDirectStream(ssc, [letters], params)
    elements = collected(stream.transform(take_note).map(lambda pair: pair[1]).transform(lambda rdd: rdd.filter(bool)))
    ssc.start()
    wait_until_equal(lambda: elements, [value for _, value in pairs()], 30)
    assert found[0] == OffsetRange(letters, 0, 0, 18)


def test_kafka_rdd_message_handler(spark: Any, letters: str, params: dict[str, str]) -> None:
    rdd = KafkaUtils.createRDD(
        spark.sparkContext,
        params,
        [OffsetRange(letters, 0, 2, 4)],
        messageHandler=lambda m: (m.topic, m.partition, m.offset, m.key, m.message),
    )
    assert rdd.collect() == [(letters, 0, 2, None, "a"), (letters, 0, 3, None, "b")]


@pytest.mark.slow
def test_kafka_direct_stream_message_handler(ssc: StreamingContext, letters: str, params: dict[str, str]) -> None:
    stream = KafkaUtils.createDirectStream(ssc, [letters], params, messageHandler=lambda m: (m.offset, m.message))
    found = collected(stream)
    ssc.start()
    wait_until_equal(lambda: found, [(offset, value) for offset, (_, value) in enumerate(pairs())], 30)


# ---- beyond the upstream tests --------------------------------------------------------------------------------


def test_create_stream_joins_group_and_commits(
    ssc: StreamingContext,
    zkconsumer_cluster: Cluster,
    topic: Topics,
    group: str,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(Source, "forget_before", lambda _, time_ms: forgotten.append(time_ms))
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    for number in range(4):
        produce(admin, name, number, numbers(0, 10))
    given = {"auto.offset.reset": "smallest"}
    with caplog.at_level("INFO", "zkconsumer.spark"):
        stream = KafkaUtils.createStream(ssc, zkconsumer_cluster.zookeeper_connect, group, {name: 2}, given)
    assert "stream_created" in caplog.text
    assert group in caplog.text
    assert given["group.id"] == group, "as in Spark 2.4, the arguments are added to kafkaParams"
    found = collected(stream)
    ssc.start()
    wait_for(lambda: len(found) == 40, 30)
    assert len(set(owners(zk, group, name).values())) == 2
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(4), "10"))
    wait_for(lambda: forgotten, what="batches that windows do not need any more are forgotten")
    assert time.time() * 1000 - 600_000 < max(forgotten) < time.time() * 1000
    assert "batch_completion_failed" not in caplog.text
    ssc.stop(stopSparkContext=False)
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}))


@pytest.mark.slow
def test_two_children_of_stream_see_all_records(
    ssc: StreamingContext, letters: str, zkconsumer_cluster: Cluster, group: str
) -> None:
    stream = KafkaUtils.createStream(
        ssc, zkconsumer_cluster.zookeeper_connect, group, {letters: 1}, {"auto.offset.reset": "smallest"}
    )
    first, second = collected(stream.map(lambda pair: pair[1])), collected(stream.window(1.0, 0.5).count())
    ssc.start()
    wait_until_equal(lambda: first, [value for _, value in pairs()], 30)
    wait_for(lambda: 18 in second, 30)


def test_failed_batch_is_not_committed(
    ssc: StreamingContext, letters: str, zkconsumer_cluster: Cluster, group: str, zk: KazooClient
) -> None:
    stream = KafkaUtils.createStream(
        ssc, zkconsumer_cluster.zookeeper_connect, group, {letters: 1}, {"auto.offset.reset": "smallest"}
    )
    tried: list[int] = []

    def refuse(rdd: Any) -> None:
        tried.append(rdd.count())
        raise OSError("the sink is full")

    stream.foreachRDD(refuse)
    ssc.start()
    with pytest.raises(Exception, match="the sink is full"):
        ssc.awaitTermination(30)
    wait_for(lambda: len(tried) > 3, 30)
    assert stored(zk, group, letters) == {0: "0"}


@pytest.mark.slow
def test_configured_rates_are_kept(
    spark: Any, topic: Topics, params: dict[str, str], zkconsumer_cluster: Cluster
) -> None:
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 100))
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.streaming.kafka.maxRatePerPartition", "20")
    context = StreamingContext(spark.sparkContext, 0.5)
    try:
        sizes: list[int] = []
        KafkaUtils.createDirectStream(context, [name], params).foreachRDD(lambda rdd: sizes.append(rdd.count()))
        context.start()
        wait_for(lambda: sum(sizes) >= 50, 30)
        assert max(sizes) == 10
    finally:
        context.stop(stopSparkContext=False)
        conf.remove("spark.streaming.kafka.maxRatePerPartition")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ssc: KafkaUtils.createStream(ssc, "z", "g", ["t"]), "topics should be dict"),  # type: ignore[arg-type]
        (lambda ssc: KafkaUtils.createStream(ssc, "z", "g", {"t": 1}, ["x"]), "kafkaParams should be dict"),  # type: ignore[arg-type]
        (lambda ssc: KafkaUtils.createDirectStream(ssc, "t", {}), "topics should be list"),  # type: ignore[arg-type]
        (lambda ssc: KafkaUtils.createDirectStream(ssc, ["t"], {}), "Must specify metadata.broker.list or"),
        (lambda ssc: KafkaUtils.createRDD(ssc.sparkContext, {}, "r"), "offsetRanges should be list"),  # type: ignore[arg-type]
        (
            lambda ssc: KafkaUtils.createDirectStream(ssc, ["t"], {}, {TopicAndPartition("u", 0): 1}),
            "The specified topics: t do not equal to the topic from offsets: u",
        ),
    ],
)
def test_wrong_arguments_raise_errors_of_original(ssc: StreamingContext, call: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        call(ssc)


def test_offset_ranges_outside_log_are_rejected(spark: Any, letters: str, params: dict[str, str]) -> None:
    for start, until, said in ((5, 4, "Beginning offset 5 is after"), (0, 19, "Offsets not available on leader")):
        with pytest.raises(Exception, match=said):
            KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(letters, 0, start, until)])


@pytest.mark.slow
def test_back_pressure_reduces_rate(spark: Any, topic: Topics, zkconsumer_cluster: Cluster, group: str) -> None:
    name = topic()
    for _ in range(10):
        produce(zkconsumer_cluster.admin, name, 0, numbers(0, 1000))
    settings = {"spark.streaming.backpressure.enabled": "true", "spark.streaming.backpressure.initialRate": "2000"}
    conf = spark.sparkContext._jsc.sc().conf()
    for key, value in settings.items():
        conf.set(key, value)
    context = StreamingContext(spark.sparkContext, 0.5)
    try:
        sizes: list[int] = []

        def slowly(rdd: Any) -> None:
            sizes.append(rdd.count())
            time.sleep(1)

        KafkaUtils.createStream(
            context, zkconsumer_cluster.zookeeper_connect, group, {name: 1}, {"auto.offset.reset": "smallest"}
        ).foreachRDD(slowly)
        context.start()
        wait_for(lambda: any(0 < size < 900 for size in sizes), 40)
        assert next(size for size in sizes if size) == 1000, "half a second of the initial rate"
    finally:
        context.stop(stopSparkContext=False)
        for key in settings:
            conf.remove(key)


@pytest.mark.slow
def test_recovered_context_continues_at_checkpoint(
    tmp_path: Path, topic: Topics, group: str, params: dict[str, str], zkconsumer_cluster: Cluster
) -> None:
    """A driver is killed under load. The next one loses no records, and replays the same batch."""
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    settings = {
        "folder": str(tmp_path),
        "zookeeper": zkconsumer_cluster.zookeeper_connect,
        "brokers": params["metadata.broker.list"],
        "group": group,
        "topic": name,
    }
    script, seen = Path(__file__).parent / "drivers" / "dstream.py", tmp_path / "seen"
    drivers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, str(script), json.dumps(settings)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            drivers.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def batches() -> list[tuple[str, int, list[list[int]]]]:
        lines = seen.read_text().splitlines() if seen.exists() else []
        return [(kind, at, ranges) for kind, at, _, ranges in map(json.loads, lines)]

    def read(kind: str) -> set[tuple[int, int]]:
        return {
            (partition, offset)
            for its_kind, _, ranges in batches()
            if its_kind == kind
            for partition, start, until in ranges
            for offset in range(start, until)
        }

    def write(first: int, end: int) -> None:
        for number in range(2):
            produce(admin, name, number, numbers(first, end))

    def wait_until_read(end: int) -> None:
        wanted = {(number, offset) for number in range(2) for offset in range(end)}

        def done() -> bool:
            assert drivers[-1].poll() is None, (tmp_path / "log").read_text()[-3000:]
            return read("group") == read("direct") == wanted

        wait_for(done, 90, what=f"both streams have read up to {end}")

    try:
        write(0, 50)
        start()
        wait_until_read(50)
        write(50, 80)
        wait_until_read(80)
        drivers[-1].kill()
        drivers[-1].wait()
        write(80, 100)
        start()
        wait_until_read(100)
        write(100, 120)
        wait_until_read(120)
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
    by_time: dict[tuple[str, int], list[list[int]]] = {}
    for kind, at, ranges in batches():
        assert by_time.setdefault((kind, at), ranges) == ranges


@contextlib.contextmanager
def run_with_shim(script: Path, folder: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Run an unchanged old script until the end of the block; yields a function that returns its output so far."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONUNBUFFERED": "1",
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] --conf spark.local.dir={folder} --conf spark.ui.enabled=false "
        "--conf spark.driver.host=127.0.0.1 --driver-memory 600m pyspark-shell",
    }
    command = [sys.executable, "-m", "zkconsumer.spark.shim", str(script), *arguments]
    with (folder / "out").open("wb") as out, (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, env=environment)

    def printed() -> str:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        return (folder / "out").read_text()

    try:
        yield printed
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_unchanged_script_counts_words(tmp_path: Path, topic: Topics, zkconsumer_cluster: Cluster) -> None:
    name, admin, output = topic(partitions=2), zkconsumer_cluster.admin, tmp_path / "counts"
    script = Path(__file__).parent / "drivers" / "old_wordcount.py"
    expected: dict[str, int] = {}
    with run_with_shim(script, tmp_path, zkconsumer_cluster.zookeeper_connect, name, str(output)) as printed:
        for round_ in range(3):
            for number in range(2):
                words = [f"w{(7 * round_ + number + n) % 10} w{n}" for n in range(20)]
                for word in " ".join(words).split():
                    expected[word] = expected.get(word, 0) + 1
                produce(admin, name, number, [words_.encode() for words_ in words])

        def counted() -> bool:
            printed()
            lines = output.read_text().splitlines() if output.exists() else []
            return dict(line.split() for line in lines) == {word: str(count) for word, count in expected.items()}

        wait_for(counted, 90, what=f"the counts are {expected}")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_scripts_of_spark_2_run_unchanged(
    name: str, tmp_path: Path, topic: Topics, zkconsumer_cluster: Cluster, zk: KazooClient
) -> None:
    topic_name, admin = topic(partitions=2), zkconsumer_cluster.admin
    of_group = "/consumers/spark-streaming-consumer"  # hard-coded in the script
    is_direct = name.startswith("direct")
    at = zkconsumer_cluster.bootstrap_servers if is_direct else zkconsumer_cluster.zookeeper_connect
    with run_with_shim(example(name), tmp_path, at, topic_name) as printed:
        # Both scripts start at the end of the log, so they must be running before records are written.
        wait_for(lambda: "Time: " in printed(), 90, what="the first batch has run")
        if not is_direct:
            wait_for(lambda: zk.exists(f"{of_group}/offsets/{topic_name}/1"), 60, what="it has joined")
        for number in range(2):
            for _ in range(5):
                produce(admin, topic_name, number, [f"word{n % 5} word{n % 3}".encode() for n in range(300)])
        expected = {f"word{n}": 10 * (60 + (100 if n < 3 else 0)) for n in range(5)}

        def counts() -> dict[str, int]:
            found: dict[str, int] = {}
            for word, count in re.findall(r"^\('(\w+)', (\d+)\)$", printed(), re.MULTILINE):
                found[word] = found.get(word, 0) + int(count)
            return found

        wait_for(lambda: counts() == expected, 90, what=f"the counts are {expected}")
    if not is_direct:
        wait_for(lambda: not zk.get_children(f"{of_group}/ids"), 60, what="it has left")
        zk.delete(of_group, recursive=True)


@pytest.mark.slow
def test_stream_stops_reading_after_failed_batch(
    ssc: StreamingContext, spark: Any, zkconsumer_cluster: Cluster, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))

    def stream_of(context: StreamingContext) -> Any:
        settings = {"auto.offset.reset": "smallest"}
        return KafkaUtils.createStream(context, zkconsumer_cluster.zookeeper_connect, group, {name: 1}, settings)

    sizes: list[int] = []

    def refuse(rdd: Any) -> None:
        sizes.append(rdd.count())
        if sizes[-1]:
            raise OSError("the sink is full")

    stream_of(ssc).foreachRDD(refuse)
    ssc.start()
    with pytest.raises(Exception, match="the sink is full"):
        ssc.awaitTermination(30)
    produce(admin, name, 0, numbers(10, 20))
    batches = len(sizes)
    wait_for(lambda: len(sizes) >= batches + 4, 30)
    assert sum(sizes) == 10, "later records would be read again after a restart"
    assert stored(zk, group, name) == {0: "0"}
    ssc.stop(stopSparkContext=False)
    restarted = StreamingContext(spark.sparkContext, 0.5)
    try:
        found = collected(stream_of(restarted))
        restarted.start()
        wait_until_equal(lambda: [int(value) for _, value in found], list(range(20)), 30)
    finally:
        restarted.stop(stopSparkContext=False)


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_batches_completed_before_the_follower_are_committed(
    ssc: StreamingContext,
    letters: str,
    zkconsumer_cluster: Cluster,
    group: str,
    zk: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,
) -> None:
    """A recovered context replays interrupted batches before the follower is added."""
    succeeded: list[int] = []

    def follow_later(source: Any) -> None:
        if len(succeeded) > 1:
            follow(source)

    monkeypatch.setattr(kafka_utils, "follow", follow_later)
    stream = KafkaUtils.createStream(
        ssc, zkconsumer_cluster.zookeeper_connect, group, {letters: 1}, {"auto.offset.reset": "smallest"}
    )

    def first_output(rdd: Any) -> None:
        if fails and rdd.count():
            raise OSError("the sink is full")

    stream.foreachRDD(first_output)
    stream.foreachRDD(lambda rdd: succeeded.append(rdd.count()))
    ssc.start()
    wait_for(lambda: len(succeeded) > 6, 30)
    assert sum(succeeded) == 18
    if fails:
        assert stored(zk, group, letters) == {0: "0"}
    else:
        wait_until_equal(lambda: stored(zk, group, letters), {0: "18"})
