"""The members of the demo's consumer group: a Spark query, and a plain consumer in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from examples.demo.ctrl_c import CtrlC
from examples.demo.record_count import Chunk, RecordCount
from zkconsumer.devcluster.java import java_home
from zkconsumer.errors import ZkConsumerError

QUERY, PLAIN = "Spark query", "plain process"


class SparkQuery:
    """The Spark session, and a query that aggregates each batch.

    Args:
        folder: directory for Spark's files.
        ctrl_c: Ctrl-C handler, which is reinstalled because PySpark replaces it.
    """

    def __init__(self, folder: Path, ctrl_c: CtrlC) -> None:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        import zkconsumer.spark

        settings: dict[str, Any] = {
            **zkconsumer.spark.recommended_conf(),
            "spark.python.unix.domain.socket.enabled": "false",  # a Unix domain socket fails if its path is too long
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "2",
        }
        conf = SparkConf().setMaster("local[2]").setAppName("demo").setAll(list(settings.items()))
        context = SparkContext(conf=conf)
        ctrl_c.handle()  # before the session, whose creation takes seconds
        self._spark = SparkSession(context)
        self._folder = folder
        self._query: Any = None
        zkconsumer.spark.register(self._spark)

    def start(self, options: Mapping[str, Any], count: RecordCount) -> None:
        """Start the query.

        Args:
            options: source options.
            count: counter to which the records of each batch are added.
        """
        from pyspark.sql import functions as f

        # The last digits are sufficient, and cheaper to convert than the whole value.
        number = f.substring("value", -12, 12).cast("string").cast("long")
        sums = f.min("offset"), f.max("offset") + 1, f.count("*"), f.sum(number)

        def aggregate(frame: Any, _batch: int) -> None:
            for row in frame.groupBy("partition").agg(*sums).collect():
                count.add(QUERY, Chunk(*row))

        stream = self._spark.readStream.format("zkconsumer").options(**options).load()
        writer = stream.writeStream.foreachBatch(aggregate)
        self._query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def rates(self) -> list[float]:
        """Return the throughput of each finished, non-empty batch, in records per second."""
        return [
            1000 * progress["numInputRows"] / progress["durationMs"]["triggerExecution"]
            for progress in self._query.recentProgress
            if progress["numInputRows"]
        ]

    def check(self) -> None:
        """Raise the query's error if the query failed."""
        if self._query is not None and self._query.exception() is not None:
            raise self._query.exception()

    def stop(self) -> None:
        """Stop the query and Spark."""
        self._query.stop()
        self._spark.stop()


class PlainProcess:
    """A process that runs ``plain_consumer.py``."""

    def __init__(self, zookeeper_connect: str, group: str, topic: str, count: RecordCount) -> None:
        self.error: BaseException | None = None
        self._count = count
        program = Path(__file__).with_name("plain_consumer.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), zookeeper_connect, group, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # the demo handles Ctrl-C
        )
        self._reader = threading.Thread(target=self._read, name="demo-plain-process", daemon=True)
        self._reader.start()

    def leave(self) -> None:
        """Make the process leave the group, and wait until it exits."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join(30)
        self._process.wait(30)

    def _read(self) -> None:
        try:
            for line in self._process.stdout or ():
                self._count.add(PLAIN, Chunk(*json.loads(line)))
            if self._process.wait():
                raise ZkConsumerError(f"the plain process exited with code {self._process.returncode}")
        except BaseException as error:
            self.error = error


class Owners:
    """Reads the owner of each partition from ZooKeeper."""

    def __init__(self, zookeeper_connect: str, group: str, topic: str, partitions: int) -> None:
        self._zk = KazooClient(zookeeper_connect)
        self._zk.start()
        self._paths = {number: f"/consumers/{group}/owners/{topic}/{number}" for number in range(partitions)}
        self._query_id = ""

    def close(self) -> None:
        """Close the ZooKeeper connection."""
        self._zk.stop()
        self._zk.close()

    def read(self) -> dict[int, str]:
        """Return the owner of each partition; partitions without an owner are omitted.

        The first owner found is the query, because it joins the group first.
        """
        owners = {}
        for number, path in self._paths.items():
            try:
                owner, _stat = cast(tuple[bytes, object], self._zk.get(path))
            except NoNodeError:  # the partition is moving to another member
                continue
            member = owner.decode().rpartition("-")[0]
            self._query_id = self._query_id or member
            owners[number] = QUERY if member == self._query_id else PLAIN
        return owners
