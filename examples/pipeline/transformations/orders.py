"""A Spark Declarative Pipeline: a table with the records of a topic, and a view that counts them."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import zkconsumer.spark

spark = SparkSession.active()
zkconsumer.spark.register(spark)


@dp.table
def orders() -> DataFrame:
    """Each run appends the records that were added to the topic."""
    return (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", spark.conf.get("orders.zookeeper"))
        .option("group.id", "orders-pipeline")
        .option("subscribe", spark.conf.get("orders.topic"))
        .option("auto.offset.reset", "smallest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
    )


@dp.materialized_view
def orders_per_partition() -> DataFrame:
    """Each run computes the counts again."""
    return spark.read.table("orders").groupBy("partition").count()
