"""Kafka's ZooKeeper-coordinated high-level consumer, for today's Kafka and Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.consumer.connector import ZookeeperConsumerConnector, create_consumer
    from zkconsumer.consumer.stream import KafkaStream
    from zkconsumer.errors import (
        ConsumerRebalanceFailedError,
        ConsumerTimeoutError,
        CorruptRecordError,
        MessageSizeTooLargeError,
        ZkConsumerError,
    )
    from zkconsumer.message import MessageAndMetadata, TopicPartition, string_decoder
    from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
    from zkconsumer.simple_consumer import SimpleConsumer
    from zkconsumer.topic_filter import Blacklist, Whitelist
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

#: Exported name -> module. A module is imported when one of its names is first used, so that the ``zkconsumer`` command
#: can install its Ctrl-C handler before these imports.
_MODULES = {
    "Blacklist": "topic_filter",
    "ConsumerConfig": "config",
    "ConsumerRebalanceFailedError": "errors",
    "ConsumerRebalanceListener": "rebalance.callbacks",
    "ConsumerTimeoutError": "errors",
    "CorruptRecordError": "errors",
    "KafkaStream": "consumer.stream",
    "MessageAndMetadata": "message",
    "MessageSizeTooLargeError": "errors",
    "SimpleConsumer": "simple_consumer",
    "TopicPartition": "message",
    "Whitelist": "topic_filter",
    "ZkConsumerError": "errors",
    "ZookeeperConsumerConnector": "consumer.connector",
    "__version__": "version",
    "create_consumer": "consumer.connector",
    "string_decoder": "message",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif name in ("config", "errors", "health", "message", "simple_consumer"):
        value = importlib.import_module(f"{__name__}.{name}")  # makes zkconsumer.errors work after "import zkconsumer"
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
