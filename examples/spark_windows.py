"""Sum JSON orders per minute, and write the sums to Parquet.

``python examples/spark_windows.py localhost:2181 orders target``. Each value is JSON such as
``{"customer": "a", "amount": 12.5, "time": "2026-11-26T10:00:00Z"}``. A restarted query restores its offsets
and open windows from the checkpoint. Spark's file sink ignores a batch that it already wrote.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import zkconsumer.spark


def main(zookeeper: str, topic: str, target: str) -> None:
    """Process all records that the topic contains now. Run the program again to process later records."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.appName("windows").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    zkconsumer.spark.register(spark)
    records = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "windows")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .option("columns", "value")
        .load()
    )
    parsed = records.select(
        f.from_json(f.col("value").cast("string"), "customer string, amount double, time timestamp").alias("order")
    )
    sums = (
        parsed.select("order.*")
        .where("time IS NOT NULL")  # drops malformed JSON, and orders without a valid time
        .withWatermark("time", "10 minutes")
        .groupBy(f.window("time", "1 minute"), "customer")
        .agg(f.sum("amount").alias("amount"))
        .select("window.start", "customer", "amount")
    )
    query = (
        sums.writeStream.format("parquet")
        .option("path", str(Path(target) / "data"))
        .option("checkpointLocation", str(Path(target) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for row in spark.read.parquet(str(Path(target) / "data")).orderBy("start", "customer").collect():
        print(row.start, row.customer, row.amount)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
