"""Count the words of a topic with Spark: ``python examples/spark_stream.py localhost:2181 orders checkpoint``.

The decoder below runs in the executors. Spark imports it by name, so this file is added to ``spark.submit.pyFiles``.
"""

import os
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession

import zkconsumer.spark
from zkconsumer import MessageAndMetadata


class Words(zkconsumer.spark.RecordDecoder):
    """Converts each record to one row per word."""

    schema = "word string, partition int"

    def decode(self, record: MessageAndMetadata) -> Iterator[tuple[str, int]]:
        """Yield each word of a record, with the record's partition."""
        for word in (record.value or b"").decode().split():
            yield word, record.partition


def main(zookeeper: str, topic: str, checkpoint: str) -> None:
    """Count the words of all records that the topic contains now."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the interpreter in which zkconsumer is installed
    builder = SparkSession.builder.appName("words").config("spark.submit.pyFiles", __file__)
    for name, value in zkconsumer.spark.recommended_conf().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    words = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("group.id", "words")
        .option("subscribe", topic)
        .option("auto.offset.reset", "smallest")  # a new group starts at the earliest record
        .option("decoder", "spark_stream:Words")
        .load()
    )
    query = (
        words.groupBy("word")
        .count()
        .writeStream.outputMode("complete")
        .format("console")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)  # without it, the query runs until it is stopped
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
