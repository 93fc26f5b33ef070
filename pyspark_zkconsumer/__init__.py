"""Registers the data source ``zkconsumer`` automatically: Spark imports the modules named ``pyspark_*``."""

from zkconsumer.spark.source import ZkConsumerDataSource


class DefaultSource(ZkConsumerDataSource):
    """The data source, under the name that Spark looks up."""
