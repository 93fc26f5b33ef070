"""Read a range of a topic once: ``python examples/spark_batch.py localhost:2181 orders``.

The query does not join a group or commit offsets. ``startingOffsets`` and ``endingOffsets`` also accept JSON with
offsets per partition; ``startingTimestamp`` and ``endingTimestamp`` select records by time.
"""

import os
import sys

from pyspark.sql import SparkSession, functions

import zkconsumer.spark


def main(zookeeper: str, topic: str) -> None:
    """Show the number of records and the last offset of each partition."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.appName("batch").getOrCreate()
    zkconsumer.spark.register(spark)
    records = (
        spark.read.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    totals = functions.count("*").alias("records"), functions.max("offset").alias("last offset")
    records.groupBy("partition").agg(*totals).orderBy("partition").show()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
