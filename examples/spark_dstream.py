"""A DStream job for Spark 1 or 2, which runs unchanged with the shim.

``python -m zkconsumer.spark.shim examples/spark_dstream.py localhost:2181 orders`` runs it until Ctrl-C. The shim
provides the module ``pyspark.streaming.kafka``, which Spark 3 removed.
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext
from pyspark.streaming.kafka import KafkaUtils

if __name__ == "__main__":
    zookeeper, topic = sys.argv[1:]
    context = StreamingContext(SparkContext(appName="word-count"), 1)
    stream = KafkaUtils.createStream(context, zookeeper, "word-count", {topic: 1}, {"auto.offset.reset": "smallest"})
    words = stream.map(lambda pair: pair[1]).flatMap(lambda line: line.split(" "))
    words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).pprint()
    context.start()
    context.awaitTermination()
