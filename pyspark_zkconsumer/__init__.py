"""Registers the data source ``zkconsumer`` automatically: Spark imports all modules named ``pyspark_*``."""

from zkconsumer.spark.source import ZkConsumerDataSource


class DefaultSource(ZkConsumerDataSource):
    """The data source ``zkconsumer``, under the class name that Spark looks up."""
