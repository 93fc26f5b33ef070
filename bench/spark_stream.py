"""Runs Spark queries with zkconsumer's source or with Spark's own Kafka source.

``python -m bench.spark_stream SOURCE CONF ZOOKEEPER BROKERS`` reads cases from standard input, one JSON object per
line. SOURCE is ``zkconsumer``, ``spark-sql-kafka-0-10`` or ``floor`` (see ``bench.floor``); CONF is ``recommended`` or
``defaults``. For each case, it runs the query once and prints the figures as JSON. The benchmark alternates between
such processes, because JIT optimizations for one source would slow down the other source in the same JVM.

A case has a ``kind`` and a ``topic``:

- ``whole``: reads all ``records`` in one batch and writes them to ``noop``; with ``windowed``, counts them per minute.
  ``columns`` selects columns in the source, ``selects`` in the query, and ``peer`` contains options for Spark's own
  source. The floor does not read the topic; its values have ``value_size`` bytes.
- ``batches``: runs ``count`` batches of ``size`` records.
- ``start``: reads the topic like ``whole``, and measures how long the query takes to plan its first batch and to end.
- ``latency``: reads a topic for ``seconds`` while records are produced, and measures the time from a record's timestamp
  until its batch has been processed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from datetime import datetime
from typing import Any

from bench.plain import FETCH_BYTES

os.environ["PYSPARK_PYTHON"] = sys.executable

Case = dict[str, Any]
Servers = tuple[str, ...]


def session(conf: str) -> Any:
    """Return a Spark session in which both sources are available."""
    import zkconsumer.spark
    from zkconsumer.devcluster.jars import resolve_sparks_source
    from zkconsumer.devcluster.java import java_home
    from zkconsumer.spark.compat import VERSION

    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.sql import SparkSession

    jars = [str(jar) for jar in resolve_sparks_source(VERSION)]
    settings = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        **(zkconsumer.spark.recommended_conf() if conf == "recommended" else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    return spark


def zkconsumer_stream(spark: Any, servers: Servers, case: Case) -> Any:
    """Return a stream from zkconsumer's source."""
    reader = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", servers[0])
        .option("group.id", f"bench-{uuid.uuid4().hex[:8]}")
        .option("subscribe", case["topic"])
        .option("fetch.message.max.bytes", str(FETCH_BYTES))
        .option("startingOffsets", "latest" if case["kind"] == "latency" else "earliest")
    )
    if "columns" in case:
        reader = reader.option("columns", case["columns"])
    return _limited(reader, case).load()


def kafka_stream(spark: Any, servers: Servers, case: Case) -> Any:
    """Return a stream from Spark's own source, which also checks CRCs."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers[1])
        .option("subscribe", case["topic"])
        .option("startingOffsets", "latest" if case["kind"] == "latency" else "earliest")
        .option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES))
        .options(**case.get("peer", {}))
    )
    frame = _limited(reader, case).load()
    return frame.select(*case["columns"].split(",")) if "columns" in case else frame


def floor_stream(spark: Any, servers: Servers, case: Case) -> Any:
    """Return a stream of ready Arrow batches with as many records as the topic has."""
    from bench.floor import COLUMNS, FloorSource

    del servers
    spark.dataSource.register(FloorSource)
    reader = spark.readStream.format("floor").option("topic", case["topic"]).option("records", str(case["records"]))
    reader = reader.option("size", str(case["value_size"]))
    return reader.option("columns", case.get("columns", ",".join(COLUMNS))).load()


STREAMS = {"zkconsumer": zkconsumer_stream, "spark-sql-kafka-0-10": kafka_stream, "floor": floor_stream}


def _limited(reader: Any, case: Case) -> Any:
    return reader.option("maxOffsetsPerTrigger", str(case["size"])) if "size" in case else reader


def whole(stream: Any, case: Case) -> dict[str, float]:
    """Read the whole topic, and return the record count and the total batch times."""
    if "selects" in case:
        stream = stream.select(case["selects"])
    if case.get("windowed"):
        from pyspark.sql import functions as f

        stream = stream.withWatermark("timestamp", "1 minute").groupBy(f.window("timestamp", "1 minute")).count()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = writer.outputMode("update").start() if case.get("windowed") else writer.start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    rows = sum(batch["numInputRows"] for batch in batches)
    if rows != case["records"]:
        raise RuntimeError(f"expected {case['records']} rows, got {rows}")
    times = {key: sum(b["durationMs"].get(key, 0) for b in batches) / 1000 for key in ("triggerExecution", "addBatch")}
    return {"records": rows, **times}


def start(stream: Any, _case: Case) -> dict[str, float]:
    """Return the seconds until the first batch was planned, and the seconds from the last batch to the end."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        started = time.time()
        query = writer.start()
        query.awaitTermination()
        ended = time.time()
        progress = query.recentProgress
    times = [(datetime.fromisoformat(one["timestamp"]).timestamp(), one) for one in progress]
    first_at, first = times[0]
    last_at, last = next((at, one) for at, one in reversed(times) if one["numInputRows"])
    planned = first_at + first["durationMs"]["latestOffset"] / 1000
    return {"planned": planned - started, "end": ended - last_at - last["durationMs"]["triggerExecution"] / 1000}


def batches(stream: Any, case: Case) -> dict[str, float]:
    """Return the median batch duration in milliseconds, excluding the first third of the batches as warm-up."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        while len(progress := [p for p in query.recentProgress if p["numInputRows"]]) < case["count"]:
            if query.exception() is not None:
                raise query.exception()
            time.sleep(0.05)
        query.stop()
    taken = [one["durationMs"]["triggerExecution"] for one in progress[case["count"] // 3 :]]
    return {"milliseconds": statistics.median(taken)}


def latency(stream: Any, case: Case) -> dict[str, float]:
    """Return percentiles of the time from a record's timestamp until the sink processed its batch, in milliseconds."""
    ages: Counter[int] = Counter()
    started = time.time()

    def count_ages(frame: Any, number: int) -> None:
        del number
        counted = frame.selectExpr("unix_millis(timestamp) AS at").groupBy("at").count().collect()
        now = time.time()
        if now - started > case["seconds"] / 2:  # the first half is warm-up
            for at, count in counted:
                ages[int(now * 1000) - at] += count

    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.writeStream.foreachBatch(count_ages).option("checkpointLocation", checkpoint).start()
        query.awaitTermination(case["seconds"])
        query.stop()
    total, cumulated, percentiles = ages.total(), 0, {}
    for age, count in sorted(ages.items()):
        cumulated += count
        for share in (0.5, 0.99):
            if cumulated >= share * total:
                percentiles.setdefault(f"p{share * 100:g}", float(age))
    return {"records": total, **percentiles}


KINDS = {"whole": whole, "start": start, "batches": batches, "latency": latency}


def main(source: str, conf: str, *servers: str) -> None:
    """Run the cases from standard input."""
    spark = session(conf)
    for line in sys.stdin:
        case = json.loads(line)
        stream = STREAMS[source](spark, servers, case)
        print(json.dumps(KINDS[case["kind"]](stream, case)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
