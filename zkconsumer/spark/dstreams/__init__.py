"""Spark Streaming: ``KafkaUtils`` of Spark 1 and 2. Checkpoints contain the package path and these names."""

from zkconsumer.spark.dstreams.follower import follow
from zkconsumer.spark.dstreams.ledger import Ledger
from zkconsumer.spark.dstreams.records import fetch
from zkconsumer.spark.dstreams.sources import DirectSource, GroupSource

__all__ = ["DirectSource", "GroupSource", "Ledger", "fetch", "follow"]
