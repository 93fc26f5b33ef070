"""Spark Streaming (DStreams): ``KafkaUtils`` of Spark 1 and 2.

It runs in the driver: Spark's job generator thread plans batches, and its listener thread completes them. Tasks call
``fetch``. ``zkconsumer.spark.kafka_utils`` exports the public names. Checkpoints contain the paths of the modules of
this package, and the names of their classes and functions.
"""

from zkconsumer.optional_packages import check_package

check_package("spark", "pyspark", __name__)
