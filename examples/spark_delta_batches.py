"""Write each batch to two Delta tables exactly once, with ``foreachBatch``.

With Spark 4.2: ``spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 examples/spark_delta_batches.py
localhost:2181 orders target``.

Spark replays a batch that failed or whose program was killed, with the same records. ``txnAppId`` and ``txnVersion``
identify the batch, so that Delta skips it in each table that already contains it. Batch numbers start at 0 in a new
checkpoint, so a new checkpoint requires a new ``txnAppId``. Here, ``txnAppId`` is stored in the checkpoint's directory.
"""

import os
import sys
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import zkconsumer.spark

#: Also false for records without a value, so that each record is in one of the tables.
IS_VALID = "coalesce(value RLIKE '^[0-9]+$', false)"


def application_id(checkpoint: Path) -> str:
    """Return the id that belongs to a checkpoint; the first call creates it."""
    file = checkpoint / "txn-app-id"
    if not file.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(str(uuid.uuid4()))
        new.replace(file)  # atomic, so that the file is never incomplete
    return file.read_text()


def main(zookeeper: str, topic: str, target: str) -> None:
    """Copy all records that the topic contains now. Run the program again to copy later records."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.appName("delta-batches")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    zkconsumer.spark.register(spark)
    checkpoint = Path(target) / "checkpoint"
    application = application_id(checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()  # so that the topic is read once for both tables
        for table, condition in (("orders", IS_VALID), ("rejected", f"NOT {IS_VALID}")):
            (
                batch.where(condition)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", application)
                .option("txnVersion", number)
                .save(str(Path(target) / table))
            )
        batch.unpersist()

    query = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "delta-batches")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for table in ("orders", "rejected"):
        print(f"{spark.read.format('delta').load(str(Path(target) / table)).count()} rows in {Path(target) / table}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
