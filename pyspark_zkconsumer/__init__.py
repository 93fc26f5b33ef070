"""Makes ``format("zkconsumer")`` known to Spark by itself: Spark imports modules named ``pyspark_*`` for that."""

from zkconsumer.spark.source import ZkConsumerDataSource


class DefaultSource(ZkConsumerDataSource):
    """The data source, under the name by which Spark looks for it."""
