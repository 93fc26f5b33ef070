"""A topology on Spark and in the test driver."""

from typing import reveal_type

from pyspark.sql import SparkSession

import zkconsumer.spark
from zkconsumer.topology import Processor, Record, Topology, TopologyTestDriver, serdes


class Count(Processor):
    def process(self, record: Record) -> None:
        reveal_type(record.timestamp)  # int


topology = Topology().add_source("lines", "lines", value_deserializer=serdes.STRING)
topology.add_processor("count", Count, "lines")
reveal_type(topology)  # Topology
with TopologyTestDriver(topology) as driver:
    driver.create_input_topic("lines").pipe_input(None, b"a line")
spark = SparkSession.builder.config(map=zkconsumer.spark.recommended_conf()).getOrCreate()
reveal_type(zkconsumer.spark.register(spark))  # QueryListener | None
topology.add_processor("other", Count(), "lines")  # error: a class or a function
topology.add_sink("out", 5, "count")  # error
