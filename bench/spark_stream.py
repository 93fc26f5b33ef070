"""Spark streams of this source or of Spark's own.

``python -m bench.spark_stream WHO CONF ZOOKEEPER BROKERS`` with CONF ``recommended`` or ``defaults``. For each line of
its input, a case as JSON, runs the query once and prints its figures as JSON. So two of these, each with a JVM of its
own as in real use, can take turns: in one JVM, what the compiler learns from one source slows the other.

A case has ``kind`` and ``topic``. ``whole``: all ``records`` in one batch, into ``noop`` or, with ``windowed``, a count
by minute; ``columns`` narrows them, and ``peer`` are options of Spark's own source. ``batches``: ``count`` batches of
``size`` records. ``latency``: ``seconds`` of a topic that is written to, from a record's timestamp until its batch was
seen.
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
from typing import Any

from bench.topics import FETCH_BYTES

os.environ["PYSPARK_PYTHON"] = sys.executable

Case = dict[str, Any]
Place = tuple[str, ...]


def session(conf: str) -> Any:
    """Return a Spark session with both sources."""
    import zkconsumer.spark
    from zkconsumer.devcluster.jars import SPARKS_OWN, resolve
    from zkconsumer.devcluster.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.sql import SparkSession

    jars = [str(jar) for coordinate in SPARKS_OWN for jar in resolve(coordinate, transitive=False)]
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


def ours(spark: Any, where: Place, case: Case) -> Any:
    """Return a stream of this source."""
    reader = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", where[0])
        .option("group.id", f"bench-{uuid.uuid4().hex[:8]}")
        .option("subscribe", case["topic"])
        .option("fetch.message.max.bytes", str(FETCH_BYTES))
        .option("startingOffsets", "latest" if case["kind"] == "latency" else "earliest")
    )
    if "columns" in case:
        reader = reader.option("columns", case["columns"])
    return _limited(reader, case).load()


def sparks_own(spark: Any, where: Place, case: Case) -> Any:
    """Return a stream of Spark's own source; its executors check CRCs by default, too."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", where[1])
        .option("subscribe", case["topic"])
        .option("startingOffsets", "latest" if case["kind"] == "latency" else "earliest")
        .option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES))
        .options(**case.get("peer", {}))
    )
    frame = _limited(reader, case).load()
    return frame.select(*case["columns"].split(",")) if "columns" in case else frame


def _limited(reader: Any, case: Case) -> Any:
    return reader.option("maxOffsetsPerTrigger", str(case["size"])) if "size" in case else reader


def whole(stream: Any, case: Case) -> dict[str, float]:
    """Read everything that is there and return the times of the batches that had records."""
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
        raise RuntimeError(f"{rows} rows, not {case['records']}")
    times = {key: sum(b["durationMs"].get(key, 0) for b in batches) / 1000 for key in ("triggerExecution", "addBatch")}
    return {"records": rows, **times}


def batches(stream: Any, case: Case) -> dict[str, float]:
    """Return the median time of small batches, the first ones left out."""
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
    """Return percentiles of the milliseconds from a record's timestamp until its batch has been seen by the sink."""
    ages: Counter[int] = Counter()
    started = time.time()

    def see(frame: Any, number: int) -> None:
        del number
        counted = frame.selectExpr("unix_millis(timestamp) AS at").groupBy("at").count().collect()
        now = time.time()
        if now - started > case["seconds"] / 2:  # the first half warms up
            for at, count in counted:
                ages[int(now * 1000) - at] += count

    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.writeStream.foreachBatch(see).option("checkpointLocation", checkpoint).start()
        query.awaitTermination(case["seconds"])
        query.stop()
    total, reached, found = ages.total(), 0, {}
    for age, count in sorted(ages.items()):
        reached += count
        for share in (0.5, 0.99):
            if reached >= share * total:
                found.setdefault(f"p{share * 100:g}", float(age))
    return {"records": total, **found}


KINDS = {"whole": whole, "batches": batches, "latency": latency}


def main(who: str, conf: str, *where: str) -> None:
    """Run a case whenever one comes."""
    spark = session(conf)
    for line in sys.stdin:
        case = json.loads(line)
        stream = (ours if who == "zkconsumer" else sparks_own)(spark, where, case)
        print(json.dumps(KINDS[case["kind"]](stream, case)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
