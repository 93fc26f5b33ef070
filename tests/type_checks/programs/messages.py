"""Messages without decoders contain bytes."""

from typing import reveal_type

from zkconsumer import create_consumer

with create_consumer({"zookeeper.connect": "zk:2181", "group.id": "g"}) as consumer:
    stream = consumer.stream("orders")
    reveal_type(stream)  # KafkaStream[bytes, bytes]
    for message in stream:
        reveal_type(message)  # MessageAndMetadata[bytes, bytes]
        reveal_type(message.key)  # bytes | None
        reveal_type(message.offset)  # int
        reveal_type(message.headers)  # tuple[tuple[str, bytes | None], ...]
        message.value.decode()  # error: a tombstone has no value
        if message.value is not None:
            reveal_type(message.value.decode())  # str
        message.valeu  # error
