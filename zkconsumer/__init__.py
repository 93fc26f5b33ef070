"""Kafka's ZooKeeper-coordinated high-level consumer, for today's Kafka and Spark."""

from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer import ZookeeperConsumerConnector, create_consumer
from zkconsumer.errors import (
    ConsumerRebalanceFailedError,
    ConsumerTimeoutError,
    CorruptRecordError,
    MessageSizeTooLargeError,
    ZkConsumerError,
)
from zkconsumer.message import MessageAndMetadata, TopicPartition, string_decoder
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.topic_filter import Blacklist, Whitelist
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.stream import KafkaStream
from zkconsumer.version import __version__

__all__ = [
    "Blacklist",
    "ConsumerConfig",
    "ConsumerRebalanceFailedError",
    "ConsumerRebalanceListener",
    "ConsumerTimeoutError",
    "CorruptRecordError",
    "KafkaStream",
    "MessageAndMetadata",
    "MessageSizeTooLargeError",
    "SimpleConsumer",
    "TopicPartition",
    "Whitelist",
    "ZkConsumerError",
    "ZookeeperConsumerConnector",
    "__version__",
    "create_consumer",
    "string_decoder",
]
