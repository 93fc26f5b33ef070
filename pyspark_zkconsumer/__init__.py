"""Registers the data source ``zkconsumer`` automatically: Spark imports all modules named ``pyspark_*``.

With Spark 4.0, the source must be registered with ``zkconsumer.spark.register``.
"""

from zkconsumer.spark.compat import CAN_REPLACE_FOUND_SOURCES
from zkconsumer.spark.source import ZkConsumerDataSource

if CAN_REPLACE_FOUND_SOURCES:

    class DefaultSource(ZkConsumerDataSource):
        """The data source ``zkconsumer``, under the class name that Spark looks up."""
