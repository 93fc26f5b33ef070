"""The types of keys and values are those that the decoders return."""

from dataclasses import dataclass
from typing import reveal_type

from zkconsumer import create_consumer, string_decoder


@dataclass
class Order:
    amount: int


def decode_order(data: bytes) -> Order:
    return Order(int(data))


def decode_text(data: str) -> str:
    return data


consumer = create_consumer("consumer.properties")
stream = consumer.stream(["orders", "returns"], key_decoder=string_decoder, value_decoder=decode_order)
reveal_type(stream)  # KafkaStream[str, Order]
message = next(stream)
reveal_type(message.key)  # str | None
reveal_type(message.message)  # Order | None
reveal_type(stream.peek())  # MessageAndMetadata[str, Order]
if message.value:
    message.value.amount.upper()  # error: amount is a number
consumer.stream("orders", value_decoder=decode_text)  # error: a decoder takes bytes
consumer.stream("orders", value_decoder="utf-8")  # error
consumer.stream(1)  # error
