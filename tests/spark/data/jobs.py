"""The applications whose checkpoints are stored here, see ``README.rst``: ``python jobs.py structured '{"folder":
...}'``.

They run with any version of zkconsumer, so they use only its public names. All their files are in ``folder``, which the
environment variable ``JOB_FOLDER`` also contains. Each output of a batch is a line of JSON in the file ``seen``, and
blocks while there is a file ``hold-<output>-<batch>``.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

warnings.simplefilter("ignore", FutureWarning)

SPARK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}

#: Settings that Spark needs before it reads a checkpoint. The tests decompress zstd themselves.
SUBMIT = "--master local[2] --driver-memory 600m --conf spark.io.compression.codec=zstd pyspark-shell"


def find_topic_id(zk: KazooClient, topic: str) -> str:
    """Return the id of a topic as checkpoints contain it, empty if ZooKeeper has no such topic."""
    path = f"/brokers/topics/{topic}"
    if not zk.exists(path):
        return ""
    data, node = zk.get(path)
    text = json.loads(data).get("topic_id")  # since Kafka 2.8
    return f"zk-{node.czxid}" + (f",id-{uuid.UUID(bytes=base64.urlsafe_b64decode(text + '=='))}" if text else "")


def write_line(folder: str, line: list[Any]) -> None:
    """Append an output to ``seen``, then block while its file ``hold-...`` exists."""
    with Path(folder, "seen").open("a") as file:
        file.write(json.dumps(line) + "\n")
    while Path(folder, f"hold-{line[0]}-{line[1]}").exists():
        time.sleep(0.1)


def produce(brokers: str, prefix: str, records: Iterable[Any]) -> None:
    """Write records of the job ``streams`` to its topics; see ``state_stores.InputRecord``."""
    from confluent_kafka import Producer

    from zkconsumer.topology import serdes

    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})  # keeps the order
    for record in records:
        producer.produce(
            f"{prefix}-{record.topic}",
            serdes.LONG.serialize("", record.value),
            serdes.STRING.serialize("", record.key),
            record.partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(60) == 0


def start_session(name: str) -> Any:
    """Return a Spark session in which the source is registered."""
    from pyspark.sql import SparkSession

    import zkconsumer.spark

    builder = SparkSession.builder.appName(name)
    for key, value in {**zkconsumer.spark.recommended_conf(), **SPARK}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    return spark


def structured(settings: dict[str, Any]) -> None:
    """Run a query.

    Each line of ``seen`` contains ``query``, the number of the batch, the ranges, and the values of the records.
    """
    spark, folder = start_session("structured"), settings["folder"]

    def on_batch(frame: Any, number: int) -> None:
        offsets: dict[int, list[int]] = {}
        records = frame.select("partition", "offset", "value").collect()
        for partition, offset, _value in records:
            offsets.setdefault(partition, []).append(offset)
        ranges = [[partition, min(found), max(found) + 1] for partition, found in sorted(offsets.items())]
        write_line(folder, ["query", number, ranges, sorted(value.decode() for _, _, value in records)])

    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
    writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", f"{folder}/checkpoint")
    writer.start().awaitTermination()


def dstreams(settings: dict[str, Any]) -> None:
    """Run two streams of a context. The context is recovered if there is a checkpoint.

    The context has a manual clock. Each line of standard input advances it by one batch.

    Each line of ``seen`` has one of two forms. The first contains ``group`` or ``direct``, the number of the batch, the
    ranges, and the values of the records. The second contains ``latest``, the number of the batch, and for each
    partition the number of records so far, and offset and value of the last one.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.streaming import StreamingContext

    from zkconsumer.spark.kafka_utils import KafkaMessageAndMetadata, KafkaUtils

    folder = settings["folder"]

    def noted(output: str, value: Callable[[Any], str]) -> Callable[[datetime, Any], None]:
        def note(at: datetime, rdd: Any) -> None:
            ranges = [[r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
            write_line(folder, [output, round(at.timestamp()), ranges, sorted(map(value, rdd.collect()))])

        return note

    def note_latest(at: datetime, rdd: Any) -> None:
        found = [[p, count, last.offset, last.message] for p, (count, last) in sorted(rdd.collectAsMap().items())]
        write_line(folder, ["latest", round(at.timestamp()), found])

    State = tuple[int, KafkaMessageAndMetadata]

    def update(new: list[KafkaMessageAndMetadata], state: State | None) -> State | None:
        if not new:
            return state
        return (state[0] if state else 0) + len(new), max(new, key=lambda message: message.offset)

    def create() -> StreamingContext:
        conf = SparkConf().setAppName("dstreams").setAll(list(SPARK.items()))
        # Batches are at 1 s, 2 s and so on. A recovered context continues at the time of its checkpoint. With the
        # system clock it would first run a batch for each second since then.
        conf.set("spark.streaming.clock", "org.apache.spark.util.ManualClock")
        for name, most in settings["rates"].items():
            conf.set(name, str(most))
        ssc = StreamingContext(SparkContext(conf=conf), 1)
        params, topic = {"auto.offset.reset": "smallest"}, settings["topic"]
        group = KafkaUtils.createStream(ssc, settings["zookeeper"], settings["group"], {topic: 1}, dict(params))
        group.foreachRDD(noted("group", lambda pair: pair[1]))
        direct = KafkaUtils.createDirectStream(
            ssc,
            [topic],
            {**params, "metadata.broker.list": settings["brokers"]},
            messageHandler=lambda message: message,
        )
        direct.foreachRDD(noted("direct", lambda message: message.message))
        keyed = direct.transform(lambda rdd: rdd.map(lambda message: (message.partition, message)))
        latest = keyed.updateStateByKey(update)
        latest.checkpoint(1)
        latest.foreachRDD(note_latest)
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create)
    ssc.start()
    clock = ssc._jssc.ssc().scheduler().clock()
    for _line in sys.stdin:
        clock.advance(1000)
    ssc.awaitTermination()


def streams(settings: dict[str, Any]) -> None:
    """Run a ``StreamsApp`` with the topology of ``state_stores``.

    The line ``["update", 1]`` of ``seen`` is written at the end of batch 1; see ``state_stores.UpdateStores``.
    """
    import state_stores

    from zkconsumer.spark import QuerySettings, StreamsApp

    query = QuerySettings(
        available_now=settings["available_now"],
        max_records_per_task=2 * state_stores.PER_BATCH,  # from two topics
        partitions=1,  # so that no task of an interrupted batch has written its state
        tick_interval_ms=1,  # so that each batch has a tick
        trigger_ms=100,
    )
    topology = state_stores.build_topology(settings["topic"])
    config = replace(state_stores.CONFIG, application_id=settings["group"])
    checkpoint = f"{settings['folder']}/checkpoint"
    StreamsApp(topology, config, start_session("streams"), checkpoint, settings["properties"], query).run()


class Job:
    """An application in a separate process.

    Args:
        settings: settings of the application; ``folder`` is created if needed.
    """

    def __init__(self, kind: str, settings: Mapping[str, Any], java_home: Path) -> None:
        self.folder = Path(settings["folder"])
        (self.folder / "temporary").mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind, json.dumps(settings)],
            cwd=self.folder,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home),
                "JOB_FOLDER": str(self.folder),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": SUBMIT,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
                "SPARK_LOCAL_DIRS": str(self.folder / "temporary"),
                "TMPDIR": str(self.folder / "temporary"),
            },
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def advance(self) -> None:
        """Advance the clock of ``dstreams`` by one batch."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def hold(self, output: str, batch: int) -> None:
        """Block the application after it has written an output."""
        (self.folder / f"hold-{output}-{batch}").touch()

    def release(self, output: str, batch: int) -> None:
        """Continue a blocked output."""
        (self.folder / f"hold-{output}-{batch}").unlink()

    def seen(self) -> list[list[Any]]:
        """Return the lines that were written so far."""
        file = self.folder / "seen"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait_for(self, output: str, batch: int, timeout: float = 120) -> list[list[Any]]:
        """Wait for an output of a batch, and return the lines so far.

        Raises:
            AssertionError: the application ended, or ``timeout`` seconds passed.
        """
        deadline = time.monotonic() + timeout
        while not any(line[:2] == [output, batch] for line in self.seen()):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                end = "; application terminated" if ended else ""
                raise AssertionError(f"no output {output!r} of batch {batch}{end}:\n{self._read_log()}")
            time.sleep(0.05)
        return self.seen()

    def finish(self, timeout: float = 120) -> None:
        """Wait until the application has ended.

        Raises:
            AssertionError: the application failed, or did not end within ``timeout`` seconds.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the application did not end:\n{self._read_log()}") from None
        assert code == 0, self._read_log()

    def _read_log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]

    def kill(self) -> None:
        """Kill the Python process and the JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()


if __name__ == "__main__":
    {"structured": structured, "dstreams": dstreams, "streams": streams}[sys.argv[1]](json.loads(sys.argv[2]))
