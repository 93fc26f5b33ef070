"""Append a topic to an Iceberg table exactly once.

With Spark 4.1: ``spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
examples/spark_iceberg.py localhost:2181 orders target``.

Iceberg stores the number of each batch in the snapshot that contains its data. If a batch is replayed after a failure,
Iceberg skips it.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import zkconsumer.spark


def main(zookeeper: str, topic: str, target: str) -> None:
    """Copy all records that the topic contains now. Run the program again to copy later records."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.appName("iceberg")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(Path(target) / "warehouse"))
        .getOrCreate()
    )
    zkconsumer.spark.register(spark)
    spark.sql(
        "CREATE TABLE IF NOT EXISTS lake.shop.orders (value STRING, partition INT, offset BIGINT, timestamp TIMESTAMP) "
        "USING iceberg PARTITIONED BY (days(timestamp))"
    )
    query = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "iceberg")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
        .writeStream.format("iceberg")
        .option("fanout-enabled", "true")  # a task writes to several days, and its records are not sorted by day
        .option("checkpointLocation", str(Path(target) / "checkpoint"))
        .trigger(availableNow=True)
        .toTable("lake.shop.orders")
    )
    query.awaitTermination()
    print(f"{spark.table('lake.shop.orders').count()} rows in {target}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
