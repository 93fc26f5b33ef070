"""Kafka's ZooKeeper-coordinated high-level consumer, for today's Kafka and Spark."""

from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer import ZookeeperConsumerConnector, create_consumer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.message import MessageAndMetadata, TopicPartition, string_decoder
from zkconsumer.stream import KafkaStream
from zkconsumer.version import __version__

__all__ = [
    "ConsumerConfig",
    "KafkaStream",
    "MessageAndMetadata",
    "TopicPartition",
    "ZkConsumerError",
    "ZookeeperConsumerConnector",
    "__version__",
    "create_consumer",
    "string_decoder",
]
