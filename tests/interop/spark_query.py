"""A streaming query that writes the values it reads to standard output; started by ``jvm.spark_query``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession

import zkconsumer.spark
from zkconsumer.config.consumer_config import read_properties


def main(properties: str, topic: str, folder: str) -> None:
    """Run the query until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings = {
        **zkconsumer.spark.recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("zkconsumer-interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    source = spark.readStream.format("zkconsumer").option("subscribe", topic).options(**read_properties(properties))
    query = (
        source.load()
        .writeStream.foreachBatch(write_values)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    while not stopping.wait(0.1):
        if query.exception() is not None:
            raise query.exception()
    query.stop()
    spark.stop()


def write_values(batch: Any, _number: int) -> None:
    """Write the values of a small batch in one call."""
    values = batch.select("value").toArrow().column("value").to_pylist()
    lines = b"".join(value + b"\n" for value in values)
    while lines:
        lines = lines[os.write(sys.stdout.fileno(), lines) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
