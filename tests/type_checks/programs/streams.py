"""Several streams of one consumer."""

import json
from typing import reveal_type

from zkconsumer import KafkaStream, MessageAndMetadata, Whitelist, ZookeeperConsumerConnector, string_decoder


def count(stream: KafkaStream[bytes, str]) -> int:
    return sum(len(message.value or "") for message in stream)


def consume(consumer: ZookeeperConsumerConnector, untyped: KafkaStream) -> None:
    by_topic = consumer.create_message_streams({"orders": 2}, value_decoder=string_decoder)
    reveal_type(by_topic)  # dict[str, list[KafkaStream[bytes, str]]]
    [first, second] = by_topic["orders"]
    count(first)
    count(untyped)  # error: its values are bytes
    [parsed] = consumer.create_message_streams_by_filter(Whitelist("orders.*"), 1, None, json.loads)
    reveal_type(parsed)  # KafkaStream[bytes, Any]
    message: MessageAndMetadata[bytes, int] = next(second)  # error: its value is a str
    consumer.create_message_streams(["orders"])  # error: the argument is a dict
