"""A Spark stream into ``noop``, of this source or of Spark's own.

``python -m bench.spark_stream WHO CONF ZOOKEEPER BROKERS TOPIC RECORDS`` with CONF ``recommended`` or ``defaults``.
Runs the query once for each line of its input, and prints seconds of triggerExecution and addBatch as JSON. So two of
these, each with a JVM of its own as in real use, can take turns: in one JVM, what the compiler learns from one source
slows the other.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from typing import Any

from bench.topics import FETCH_BYTES

os.environ["PYSPARK_PYTHON"] = sys.executable


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
        **(zkconsumer.spark.recommended_conf() if conf == "recommended" else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    return spark


def ours(spark: Any, zookeeper: str, topic: str) -> Any:
    """Return a stream of this source."""
    return (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", f"bench-{uuid.uuid4().hex[:8]}")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .option("fetch.message.max.bytes", str(FETCH_BYTES))
        .load()
    )


def sparks_own(spark: Any, brokers: str, topic: str) -> Any:
    """Return a stream of Spark's own source; its executors check CRCs by default, too."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES))
        .load()
    )


def one_run(stream: Any, records: int) -> dict[str, float]:
    """Read everything that is there in one batch and return its times."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    rows = sum(batch["numInputRows"] for batch in batches)
    if rows != records:
        raise RuntimeError(f"{rows} rows, not {records}")
    times = {key: sum(b["durationMs"].get(key, 0) for b in batches) / 1000 for key in ("triggerExecution", "addBatch")}
    return {"records": rows, **times}


def main(who: str, conf: str, zookeeper: str, brokers: str, topic: str, records: int) -> None:
    """Run the query whenever a line comes."""
    spark = session(conf)
    for _ in sys.stdin:
        stream = ours(spark, zookeeper, topic) if who == "zkconsumer" else sparks_own(spark, brokers, topic)
        print(json.dumps(one_run(stream, records)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:6], int(sys.argv[6]))
