"""Run a query on a Spark cluster: ``python spark_query.py MASTER ZOOKEEPER BROKERS``."""

import socket
import sys
import tempfile
import uuid

from pyspark.sql import DataFrame, SparkSession

import zkconsumer.spark
from zkconsumer import TopicPartition
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.metadata.bootstrap import parse_bootstrap

COUNT = 1000


def main(master: str, zookeeper: str, brokers: str) -> None:
    """Read all records of a new topic with workers of the cluster."""
    name = f"spark-{uuid.uuid4().hex[:8]}"
    with Admin(parse_bootstrap(brokers)) as admin:
        admin.create_topic(name, 4)
        for partition in range(4):
            admin.produce(TopicPartition(name, partition), batch([b"%d" % number for number in range(COUNT)]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": socket.gethostbyname(socket.gethostname()),
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    zkconsumer.spark.register(spark)
    options = {
        "zookeeper.connect": zookeeper,
        "bootstrap.servers": brokers,
        "group.id": name,
        "subscribe": name,
        "auto.offset.reset": "smallest",
    }
    sums: list[int] = []

    def add(frame: DataFrame, _batch: int) -> None:
        sums.append(frame.selectExpr("coalesce(sum(CAST(CAST(value AS STRING) AS LONG)), 0)").first()[0])

    with tempfile.TemporaryDirectory() as folder:
        stream = spark.readStream.format("zkconsumer").options(**options).load()
        writer = stream.writeStream.foreachBatch(add).option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    assert sum(sums) == 4 * COUNT * (COUNT - 1) // 2, sums
    print(f"{4 * COUNT} records read by workers of {master}")


if __name__ == "__main__":
    main(*sys.argv[1:])
