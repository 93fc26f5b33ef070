"""The whole way once: a cluster, a group of a Spark query and a plain consumer, and every number seen.

Run it with ``make demo``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.cluster import raise_on_sigterm
from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.load import batch, numbered_batch
from zkconsumer.errors import ClosedError, ZkConsumerError

TOPIC, GROUP, PARTITIONS = "demo", "demo", 8
BULK = 2_000_000
STEADY_PER_SECOND = 50_000
VALUE_SIZE = 100

PHASES = ((10, "the query alone"), (14, "a plain consumer has joined"), (10, "the plain consumer has left"))

os.environ["PYSPARK_PYTHON"] = sys.executable


def say(text: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


STARTED = time.monotonic()


class Seen:
    """Which numbers were seen, and how often in all. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = np.zeros(BULK, bool)
        self.total = 0
        self.lines = 0

    def add(self, numbers: Any, lines: int) -> None:
        """Count numbers, and lines of logs."""
        with self._lock:
            if len(numbers) and numbers.max() >= len(self._numbers):
                self._numbers = np.append(self._numbers, np.zeros(int(numbers.max()) + STEADY_PER_SECOND, bool))
            self._numbers[numbers] = True
            self.total += len(numbers)
            self.lines += lines

    def missing(self, produced: int) -> int:
        """Return how many of the first ``produced`` numbers were not seen."""
        with self._lock:
            return produced - int(self._numbers[:produced].sum())


class Load(threading.Thread):
    """Produces: the bulk, then a steady load of numbers, and the lines that the servers log."""

    def __init__(self, cluster: DevCluster) -> None:
        super().__init__(name="demo-load")
        self.produced = 0
        self.lines = 0
        self.bulk_done = threading.Event()
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._cluster = cluster
        self._logs: dict[Path, int] = {}

    def run(self) -> None:
        """Produce until told to stop."""
        try:
            with self._cluster.new_admin() as admin:
                while self.produced < BULK and not self.stopping.is_set():
                    self._numbers(admin, BULK // PARTITIONS // 25)
                self.bulk_done.set()
                per_round = STEADY_PER_SECOND // PARTITIONS // 10
                due = time.monotonic()
                while not self.stopping.wait(max(0.0, due - time.monotonic())):
                    due += per_round * PARTITIONS / STEADY_PER_SECOND
                    self._numbers(admin, per_round)
                    self._log_lines(admin)
        except BaseException as error:
            self.error = error
            self.bulk_done.set()

    def _numbers(self, admin: Any, count: int) -> None:
        for partition in range(PARTITIONS):
            admin.produce(TopicPartition(TOPIC, partition), numbered_batch(self.produced, count, size=VALUE_SIZE))
            self.produced += count

    def _log_lines(self, admin: Any) -> None:
        for path in self._cluster.folder.glob("*.log"):
            with path.open("rb") as file:
                file.seek(self._logs.get(path, 0))
                text = file.read()
            complete = text[: text.rfind(b"\n") + 1]
            self._logs[path] = self._logs.get(path, 0) + len(complete)
            lines = [line for line in complete.splitlines() if line]
            if lines:
                partition = sum(path.name.encode()) % PARTITIONS
                admin.produce(TopicPartition(TOPIC, partition), batch(lines))
                self.lines += len(lines)


def count_values(seen: Seen, values: Any) -> None:
    """Count a column of values: numbers, and the lines between them."""
    text = pc.cast(values, pa.string())
    is_number = pc.match_substring_regex(text, f"^[0-9]{{{VALUE_SIZE}}}$")
    numbers = pc.cast(pc.filter(text, is_number), pa.int64()).to_numpy(zero_copy_only=False)
    seen.add(numbers, len(values) - len(numbers))


class PlainConsumer(threading.Thread):
    """A plain consumer in the same group."""

    def __init__(self, properties: dict[str, str], seen: Seen) -> None:
        super().__init__(name="demo-plain-consumer")
        self.error: BaseException | None = None
        self.records = 0
        self._seen = seen
        self._consumer = create_consumer(
            ConsumerConfig.from_dict({**properties, "group.id": GROUP, "auto.commit.interval.ms": 1000})
        )

    def run(self) -> None:
        """Consume until shut down."""
        try:
            [stream] = self._consumer.create_message_streams({TOPIC: 1})[TOPIC]
            for record_batch in stream.batches():
                count_values(self._seen, record_batch.column("value"))
                self.records += record_batch.num_rows
        except ClosedError:
            pass
        except BaseException as error:
            self.error = error

    @property
    def lag(self) -> dict[int, int]:
        """Partition to records that are not fetched yet."""
        return {partition: lag for (_, partition), lag in self._consumer.lag.items() if lag >= 0}

    def leave(self) -> None:
        """Shut down."""
        self._consumer.shutdown()
        self.join(30)


class Group:
    """Shows the znodes of the group."""

    def __init__(self, zookeeper_connect: str) -> None:
        self._zk = KazooClient(zookeeper_connect)
        self._zk.start()
        self._root = f"/consumers/{GROUP}"

    def close(self) -> None:
        """Disconnect."""
        self._zk.stop()
        self._zk.close()

    def owners(self) -> dict[int, str]:
        """Return partition to owner."""
        return self._read(f"{self._root}/owners/{TOPIC}")

    def offsets(self) -> dict[int, str]:
        """Return partition to offset."""
        return self._read(f"{self._root}/offsets/{TOPIC}")

    def _read(self, path: str) -> dict[int, str]:
        found = {}
        if self._zk.exists(path):
            for child in sorted(self._zk.get_children(path), key=int):
                try:
                    found[int(child)] = self._zk.get(f"{path}/{child}")[0].decode()
                except Exception:  # an owner left meanwhile
                    continue
        return found

    def show(self, step: str) -> None:
        """Print the znodes."""
        say(f"znodes of the group, {step}:")
        ids = self._zk.get_children(f"{self._root}/ids") if self._zk.exists(f"{self._root}/ids") else []
        for consumer_id in sorted(ids):
            print(f"    ids/{consumer_id}  {self._zk.get(f'{self._root}/ids/{consumer_id}')[0].decode()}")
        offsets = self.offsets()
        for partition, owner in self.owners().items():
            print(f"    owners/{TOPIC}/{partition} = {owner}   offsets/{TOPIC}/{partition} = {offsets.get(partition)}")


def start_spark() -> Any:
    """Return a Spark session that knows the source."""
    import zkconsumer.spark

    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("zkconsumer-demo")
    settings = {
        **zkconsumer.spark.recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    return spark


def show_progress(query: Any, plain: PlainConsumer | None, seen: Seen, before: tuple[float, int]) -> tuple[float, int]:
    """Print where the group is; returns the time and the count for the next rate."""
    now, total = time.monotonic(), seen.total
    rate = (total - before[1]) / max(1e-9, now - before[0])
    lags: dict[int, int] = {}
    progress = query.lastProgress
    if progress and progress["sources"][0].get("latestOffset"):
        source = progress["sources"][0]
        latest = as_json(source["latestOffset"])["latest"].get(TOPIC, {})
        ends = as_json(source["endOffset"])["ranges"].get(TOPIC, {})
        lags = {int(p): max(0, end - ends[p][1]) for p, end in latest.items() if p in ends}
    if plain is not None:
        lags |= plain.lag
    shown = " ".join(f"{partition}:{lag}" for partition, lag in sorted(lags.items())) or "-"
    say(f"{total:>9,} numbers  {rate:>9,.0f} records/s  {seen.lines} log lines  lag per partition {shown}")
    return now, total


def as_json(value: Any) -> Any:
    """Return what a progress report holds as text or as an object."""
    return json.loads(value) if isinstance(value, str) else value


def check(*threads: Any) -> None:
    """Raise what a thread met."""
    for thread in threads:
        if thread is not None and thread.error is not None:
            raise thread.error


def main() -> int:
    """Run the demo; returns 0 where every number was seen."""
    raise_on_sigterm()
    print("Starting ZooKeeper and two brokers; the first time their jars are downloaded.", flush=True)
    with DevCluster(brokers=2) as cluster, tempfile.TemporaryDirectory() as checkpoint:
        say(f"ZooKeeper at {cluster.zookeeper_connect}, brokers at {cluster.bootstrap_servers}")
        cluster.create_topic(TOPIC, PARTITIONS)
        seen, load, group = Seen(), Load(cluster), Group(cluster.zookeeper_connect)
        plain: PlainConsumer | None = None
        spark = query = None
        try:
            load.start()
            spark = start_spark()
            if not load.bulk_done.wait(120):
                raise ZkConsumerError(f"only {load.produced:,} of {BULK:,} records could be produced within 120 s")
            check(load)
            say(f"{BULK:,} numbered records are in topic {TOPIC!r}; {STEADY_PER_SECOND:,} a second follow")
            stream = (
                spark.readStream.format("zkconsumer")
                .option("zookeeper.connect", cluster.zookeeper_connect)
                .option("group.id", GROUP)
                .option("subscribe", TOPIC)
                .option("auto.offset.reset", "smallest")
                .load()
            )
            first_batch: list[tuple[int, float]] = []

            def on_batch(frame: Any, _number: int) -> None:
                begun = time.monotonic()
                values = frame.select("value").toArrow().column("value")
                count_values(seen, values)
                first_batch.append((len(values), time.monotonic() - begun))

            query = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint).start()
            say("the Spark query has started; as one thread id of the group it gets what the range assignor gives one")
            before = (time.monotonic(), 0)
            deadline = time.monotonic() + 120
            while seen.total < BULK:
                if time.monotonic() > deadline:
                    raise ZkConsumerError(f"the query has read only {seen.total:,} records within 120 s")
                time.sleep(2)
                if query.exception() is not None:
                    raise query.exception()
                check(load)
                before = show_progress(query, plain, seen, before)
            for seconds, step in PHASES:
                if step.endswith("joined"):
                    plain = PlainConsumer(cluster.consumer_properties, seen)
                    plain.start()
                elif plain is not None:
                    plain.leave()
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    time.sleep(2)
                    if query.exception() is not None:
                        raise query.exception()
                    check(load, plain)
                    before = show_progress(query, plain, seen, before)
                group.show(step)
                owners = {owner.rpartition("-")[0] for owner in group.owners().values()}
                expected = 2 if step.endswith("joined") else 1
                if len(owners) != expected or len(group.owners()) != PARTITIONS:
                    raise ZkConsumerError(f"{step}: partitions have {len(owners)} owners, {expected} expected")
            load.stopping.set()
            load.join(30)
            check(load, plain)
            deadline = time.monotonic() + 30
            while seen.missing(load.produced) and time.monotonic() < deadline:
                time.sleep(0.5)
                if query.exception() is not None:
                    raise query.exception()
            took = time.monotonic() - STARTED
            missing = seen.missing(load.produced)
            records, seconds = max(first_batch)
            say(
                f"largest batch: {records:,} records in {seconds:.2f} s, {records / seconds:,.0f} records/s into Python"
            )
            again = seen.total - load.produced + missing
            say(
                f"{load.produced:,} numbers produced, {seen.total:,} seen, {again:,} of them again; "
                f"{plain.records if plain else 0:,} by the plain consumer; "
                f"{load.lines} log lines produced, {seen.lines} seen"
            )
            if missing:
                say(f"FAILED: {missing} numbers are missing")
                return 1
            say(f"OK: every number was seen; {load.produced / took:,.0f} records/s over all of {took:.0f} s")
            return 0
        finally:
            load.stopping.set()
            if plain is not None and plain.is_alive():
                plain.leave()
            if query is not None:
                query.stop()
            if spark is not None:
                spark.stop()
            load.join(30)
            group.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except ZkConsumerError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)
