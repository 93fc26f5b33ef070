"""Registers the data source ``zkconsumer`` automatically: Spark imports the modules named ``pyspark_*``."""

from zkconsumer.spark.source import ZkConsumerDataSource


class DefaultSource(ZkConsumerDataSource):
    """The data source, with the class name that Spark looks up."""
