"""Append a topic to a Delta table exactly once.

With Spark 4.2: ``spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 examples/spark_delta.py localhost:2181
orders target``.

Delta stores the number of each batch in its transaction log, together with the data. If a batch is replayed after a
failure, Delta skips it.
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
        SparkSession.builder.appName("delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    zkconsumer.spark.register(spark)
    query = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "delta")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
        .writeStream.format("delta")
        .option("checkpointLocation", str(Path(target) / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(Path(target) / "orders"))
    )
    query.awaitTermination()
    print(f"{spark.read.format('delta').load(str(Path(target) / 'orders')).count()} rows in {target}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
