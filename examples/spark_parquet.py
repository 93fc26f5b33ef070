"""Write each batch to Parquet exactly once: ``python examples/spark_parquet.py localhost:2181 orders target``.

A batch that is replayed after a failure contains the same records. Each batch has its own directory, which a replay
overwrites.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import zkconsumer.spark


def main(zookeeper: str, topic: str, target: str) -> None:
    """Copy all records that the topic contains now. Run the program again to copy later records."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.appName("parquet").getOrCreate()
    zkconsumer.spark.register(spark)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(Path(target) / "data" / f"batch={number}"))

    query = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "parquet")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(Path(target) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{spark.read.parquet(str(Path(target) / 'data')).count()} rows in {target}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
