"""A Spark query and a plain consumer share a consumer group, under load.

The demo starts ZooKeeper and two brokers, produces two million numbered records, and starts a query that reads them. A
plain consumer then joins the group and leaves it again, while a steady load continues. At the end the demo checks that
every number was read.

Run it with ``make demo``. It takes about a minute.
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
BULK_RECORDS = 2_000_000
RECORDS_PER_SECOND = 50_000
VALUE_SIZE = 100

TIMEOUT_S = 120
PROGRESS_INTERVAL_S = 2

os.environ["PYSPARK_PYTHON"] = sys.executable

STARTED = time.monotonic()


def log(text: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


class Counter:
    """Counts the values that were read. Several threads use it.

    Attributes:
        total: number of numbers that were read, including duplicates.
        lines: number of log lines that were read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_read: Any = np.zeros(BULK_RECORDS, bool)  # by number
        self.total = 0
        self.lines = 0

    def add(self, values: Any) -> None:
        """Count a column of values, each of which is a number or a log line."""
        text = pc.cast(values, pa.string())
        is_number = pc.match_substring_regex(text, f"^[0-9]{{{VALUE_SIZE}}}$")
        numbers = pc.cast(pc.filter(text, is_number), pa.int64()).to_numpy(zero_copy_only=False)
        with self._lock:
            if len(numbers) and numbers.max() >= len(self._is_read):
                self._is_read = np.append(self._is_read, np.zeros(int(numbers.max()) + RECORDS_PER_SECOND, bool))
            self._is_read[numbers] = True
            self.total += len(numbers)
            self.lines += len(values) - len(numbers)

    def missing(self, produced: int) -> int:
        """Return the number of missing values among the first ``produced`` numbers."""
        with self._lock:
            return produced - int(self._is_read[:produced].sum())


class Load(threading.Thread):
    """Produces numbers, first in bulk and then at a steady rate. Then it also produces the log lines of the servers."""

    def __init__(self, cluster: DevCluster) -> None:
        super().__init__(name="demo-load")
        self.produced = 0
        self.lines = 0
        self.bulk_done = threading.Event()
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._cluster = cluster
        self._log_positions: dict[Path, int] = {}

    def run(self) -> None:
        """Produce until stopped."""
        try:
            with self._cluster.new_admin() as admin:
                while self.produced < BULK_RECORDS and not self._stopped.is_set():
                    self._produce_numbers(admin, BULK_RECORDS // PARTITIONS // 25)
                self.bulk_done.set()
                per_round = RECORDS_PER_SECOND // PARTITIONS // 10
                due = time.monotonic()
                while not self._stopped.wait(max(0.0, due - time.monotonic())):
                    due += per_round * PARTITIONS / RECORDS_PER_SECOND
                    self._produce_numbers(admin, per_round)
                    self._produce_log_lines(admin)
        except BaseException as error:
            self.error = error
            self.bulk_done.set()

    def stop(self) -> None:
        """Stop producing."""
        self._stopped.set()
        self.join(30)

    def _produce_numbers(self, admin: Any, count: int) -> None:
        for partition in range(PARTITIONS):
            admin.produce(TopicPartition(TOPIC, partition), numbered_batch(self.produced, count, size=VALUE_SIZE))
            self.produced += count

    def _produce_log_lines(self, admin: Any) -> None:
        for path in self._cluster.folder.glob("*.log"):
            position = self._log_positions.get(path, 0)
            with path.open("rb") as file:
                file.seek(position)
                text = file.read()
            complete = text[: text.rfind(b"\n") + 1]
            self._log_positions[path] = position + len(complete)
            lines = [line for line in complete.splitlines() if line]
            if lines:
                partition = sum(path.name.encode()) % PARTITIONS
                admin.produce(TopicPartition(TOPIC, partition), batch(lines))
                self.lines += len(lines)


class PlainConsumer(threading.Thread):
    """A plain consumer in the same group."""

    def __init__(self, properties: dict[str, str], counter: Counter) -> None:
        super().__init__(name="demo-plain-consumer")
        self.error: BaseException | None = None
        self.records = 0
        self._counter = counter
        self._consumer = create_consumer(
            ConsumerConfig.from_dict({**properties, "group.id": GROUP, "auto.commit.interval.ms": 1000})
        )

    def run(self) -> None:
        """Consume until shut down."""
        try:
            [stream] = self._consumer.create_message_streams({TOPIC: 1})[TOPIC]
            for record_batch in stream.batches():
                self._counter.add(record_batch.column("value"))
                self.records += record_batch.num_rows
        except ClosedError:
            pass
        except BaseException as error:
            self.error = error

    @property
    def lag(self) -> dict[int, int]:
        """Lag of each owned partition, in records."""
        return {partition: lag for (_, partition), lag in self._consumer.lag.items() if lag >= 0}

    def leave(self) -> None:
        """Leave the group."""
        self._consumer.shutdown()
        self.join(30)


class GroupInspector:
    """Reads the znodes of the group."""

    def __init__(self, zookeeper_connect: str) -> None:
        self._zk = KazooClient(zookeeper_connect)
        self._zk.start()
        self._root = f"/consumers/{GROUP}"

    def close(self) -> None:
        """Disconnect."""
        self._zk.stop()
        self._zk.close()

    def owners(self) -> dict[int, str]:
        """Return the owner of each partition."""
        return self._read(f"{self._root}/owners/{TOPIC}")

    def offsets(self) -> dict[int, str]:
        """Return the committed offset of each partition."""
        return self._read(f"{self._root}/offsets/{TOPIC}")

    def print(self, phase: str) -> None:
        """Print the znodes."""
        log(f"znodes of the group, {phase}:")
        ids = self._zk.get_children(f"{self._root}/ids") if self._zk.exists(f"{self._root}/ids") else []
        for consumer_id in sorted(ids):
            print(f"    ids/{consumer_id}  {self._zk.get(f'{self._root}/ids/{consumer_id}')[0].decode()}")
        offsets = self.offsets()
        for partition, owner in self.owners().items():
            print(f"    owners/{TOPIC}/{partition} = {owner}   offsets/{TOPIC}/{partition} = {offsets.get(partition)}")

    def check(self, phase: str, members: int) -> None:
        """Raise an error unless the members own all partitions."""
        owners = self.owners()
        found = {owner.rpartition("-")[0] for owner in owners.values()}
        if len(found) != members or len(owners) != PARTITIONS:
            raise ZkConsumerError(
                f"{phase}: {len(found)} members own {len(owners)} partitions; "
                f"expected {members} members and {PARTITIONS} partitions"
            )

    def _read(self, path: str) -> dict[int, str]:
        values = {}
        if self._zk.exists(path):
            for child in sorted(self._zk.get_children(path), key=int):
                try:
                    values[int(child)] = self._zk.get(f"{path}/{child}")[0].decode()
                except Exception:  # the owner has just released the partition
                    continue
        return values


class Query:
    """The Spark query, in the same group."""

    def __init__(self, spark: Any, zookeeper_connect: str, checkpoint: str, counter: Counter) -> None:
        self._counter = counter
        self._batches: list[tuple[int, float]] = []  # number of records, and seconds to load them
        stream = (
            spark.readStream.format("zkconsumer")
            .option("zookeeper.connect", zookeeper_connect)
            .option("group.id", GROUP)
            .option("subscribe", TOPIC)
            .option("auto.offset.reset", "smallest")
            .option("maxOffsetsPerTrigger", BULK_RECORDS)  # a batch must fit into the driver's memory
            .load()
        )
        writer = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", checkpoint)
        self._query = writer.start()

    def _on_batch(self, frame: Any, _number: int) -> None:
        started = time.monotonic()
        values = frame.select("value").toArrow().column("value")
        self._counter.add(values)
        self._batches.append((len(values), time.monotonic() - started))

    @property
    def largest_batch(self) -> tuple[int, float]:
        """Number of records of the largest batch, and the seconds to load them into Python."""
        return max(self._batches)

    @property
    def lag(self) -> dict[int, int]:
        """Lag of each owned partition after the last batch, in records."""
        progress = self._query.lastProgress
        if not progress or not progress["sources"][0].get("latestOffset"):
            return {}
        source = progress["sources"][0]
        log_ends = as_object(source["latestOffset"])["latest"].get(TOPIC, {})
        ranges = as_object(source["endOffset"])["ranges"].get(TOPIC, {})
        return {int(p): max(0, end - ranges[p][1]) for p, end in log_ends.items() if p in ranges}

    def check(self) -> None:
        """Raise the error of the query if it has failed."""
        if self._query.exception() is not None:
            raise self._query.exception()

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()


def start_spark() -> Any:
    """Return a Spark session with the data source."""
    import zkconsumer.spark

    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("zkconsumer-demo")
    settings = {
        **zkconsumer.spark.recommended_conf(),
        # With Unix domain sockets, pyspark prints a traceback (BrokenPipeError) for each idle worker that it closes.
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # it would be mixed with the lines of the demo
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


def as_object(offset: Any) -> Any:
    """Return an offset of a progress report as a JSON object; Spark may report it as text."""
    return json.loads(offset) if isinstance(offset, str) else offset


class Demo:
    """The steps of the demo, on a running cluster."""

    def __init__(self, cluster: DevCluster, checkpoint: str) -> None:
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._counter = Counter()
        self._load = Load(cluster)
        self._group = GroupInspector(cluster.zookeeper_connect)
        self._plain: PlainConsumer | None = None
        self._spark: Any = None
        self._query: Query | None = None
        self._last_progress = (time.monotonic(), 0)  # time, and numbers read

    def run(self) -> bool:
        """Run all steps, and return whether every number was read."""
        self._load.start()
        self._spark = start_spark()
        self._wait_for_bulk()
        self._query = Query(self._spark, self._cluster.zookeeper_connect, self._checkpoint, self._counter)
        log("the Spark query has started; it is a member of the group with one thread")
        self._last_progress = (time.monotonic(), 0)
        self._read_bulk()
        self._observe("the query is the only member", 10, members=1)
        self._plain = PlainConsumer(self._cluster.consumer_properties, self._counter)
        self._plain.start()
        self._observe("a plain consumer has joined", 14, members=2)
        self._plain.leave()
        self._observe("the plain consumer has left", 10, members=1)
        return self._finish()

    def close(self) -> None:
        """Stop the load, the consumers and Spark."""
        if self._load.is_alive():
            self._load.stop()
        if self._plain is not None and self._plain.is_alive():
            self._plain.leave()
        if self._query is not None:
            self._query.stop()
        if self._spark is not None:
            self._spark.stop()
        self._group.close()

    def _wait_for_bulk(self) -> None:
        if not self._load.bulk_done.wait(TIMEOUT_S):
            produced = self._load.produced
            raise ZkConsumerError(f"only {produced:,} of {BULK_RECORDS:,} records were produced within {TIMEOUT_S} s")
        self._check()
        log(f"produced {BULK_RECORDS:,} numbered records to topic {TOPIC!r}")
        log(f"producing {RECORDS_PER_SECOND:,} records/s from now on")

    def _read_bulk(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._counter.total < BULK_RECORDS:
            if time.monotonic() > deadline:
                raise ZkConsumerError(f"the query has read only {self._counter.total:,} records in {TIMEOUT_S} s")
            self._show_progress()

    def _observe(self, phase: str, seconds: float, members: int) -> None:
        """Show the progress for ``seconds``, then print and check the owners of the partitions."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._show_progress()
        self._group.print(phase)
        self._group.check(phase, members)

    def _show_progress(self) -> None:
        time.sleep(PROGRESS_INTERVAL_S)
        self._check()
        assert self._query is not None
        now, total = time.monotonic(), self._counter.total
        last_time, last_total = self._last_progress
        rate = (total - last_total) / max(1e-9, now - last_time)
        self._last_progress = now, total
        lag = self._query.lag | (self._plain.lag if self._plain is not None else {})
        lags = " ".join(f"{partition}:{records}" for partition, records in sorted(lag.items())) or "unknown"
        log(f"{total:>9,} numbers  {rate:>9,.0f} records/s  {self._counter.lines} log lines  lag by partition {lags}")

    def _check(self) -> None:
        """Raise the error of a thread or of the query."""
        if self._query is not None:
            self._query.check()
        for thread in (self._load, self._plain):
            if thread is not None and thread.error is not None:
                raise thread.error

    def _finish(self) -> bool:
        """Stop the load, wait until all numbers are read, and print the result."""
        assert self._query is not None
        self._load.stop()
        self._check()
        produced = self._load.produced
        deadline = time.monotonic() + 30
        while (missing := self._counter.missing(produced)) and time.monotonic() < deadline:
            self._check()
            time.sleep(0.5)
        duration = time.monotonic() - STARTED
        records, seconds = self._query.largest_batch
        log(f"largest batch: {records:,} records in {seconds:.2f} s, {records / seconds:,.0f} records/s into Python")
        total = self._counter.total
        log(f"{produced:,} numbers produced, {total:,} read, {total - produced + missing:,} of them duplicates")
        log(f"{self._plain.records if self._plain else 0:,} records read by the plain consumer")
        log(f"{self._load.lines} log lines produced, {self._counter.lines} read")
        if missing:
            log(f"FAILED: {missing:,} numbers were not read")
            return False
        log(f"OK: every number was read; {produced / duration:,.0f} records/s over {duration:.0f} s")
        return True


def main() -> int:
    """Run the demo, and return the exit code."""
    raise_on_sigterm()
    print("Starting ZooKeeper and two brokers. The first start downloads their jars.", flush=True)
    with DevCluster(brokers=2) as cluster, tempfile.TemporaryDirectory() as checkpoint:
        log(f"ZooKeeper at {cluster.zookeeper_connect}, brokers at {cluster.bootstrap_servers}")
        cluster.create_topic(TOPIC, PARTITIONS)
        demo = Demo(cluster, checkpoint)
        try:
            return 0 if demo.run() else 1
        finally:
            demo.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except ZkConsumerError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)
