"""An old word count script for Spark 1 and 2, without zkconsumer. Arguments: ZOOKEEPER TOPIC OUTPUT."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark import RDD, SparkContext
from pyspark.streaming import StreamingContext
from pyspark.streaming.kafka import KafkaUtils

if __name__ == "__main__":
    zookeeper, topic, output = sys.argv[1:]
    sc = SparkContext(appName="PythonStreamingKafkaWordCount")
    sc.setLogLevel("ERROR")
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(output + "-checkpoint")

    def add(new: Iterable[int], total: int | None) -> int:
        return sum(new) + (total or 0)

    params = {"auto.offset.reset": "smallest"}
    lines = KafkaUtils.createStream(ssc, zookeeper, "spark-streaming-consumer", {topic: 1}, params).map(lambda x: x[1])
    counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).updateStateByKey(add)

    def show(rdd: RDD[tuple[str, int]]) -> None:
        with open(output, "w") as file:
            for word, count in sorted(rdd.collect()):
                print(word, count, file=file)

    counts.foreachRDD(show)
    ssc.start()
    ssc.awaitTermination()
