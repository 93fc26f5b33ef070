"""Values that applications pass to and receive from ``KafkaUtils``.

Source: Spark 2.4 pyspark.streaming.kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.argument_checks import check_integer, check_partition, check_type
from zkconsumer.zookeeper.registry import OFFSET_MAX

#: Function that decodes a key or value; the argument is None if the record has none.
NullableDecoder = Callable[[bytes | None], Any]


def utf8_decoder(s: bytes | None) -> str | None:
    """Decode UTF-8 bytes to a string; return None for None."""
    return None if s is None else s.decode("utf-8")


class OffsetRange:
    """A range of offsets in one partition, from ``fromOffset`` inclusive to ``untilOffset`` exclusive."""

    def __init__(self, topic: str, partition: int, fromOffset: int, untilOffset: int) -> None:
        self.topic, self.partition = check_partition(topic, partition)
        self.fromOffset = check_integer("fromOffset", fromOffset, 0, OFFSET_MAX)
        self.untilOffset = check_integer("untilOffset", untilOffset, 0, OFFSET_MAX)

    def _key(self) -> tuple[str, int, int, int]:
        return self.topic, self.partition, self.fromOffset, self.untilOffset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRange) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        span = f"[{self.fromOffset} -> {self.untilOffset}]"
        return f"OffsetRange(topic: {self.topic}, partition: {self.partition}, range: {span}"


class TopicAndPartition:
    """One partition of a topic."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = check_partition(topic, partition)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TopicAndPartition) and self._topic == other._topic and self._partition == other._partition
        )

    def __hash__(self) -> int:
        return hash((self._topic, self._partition))


class Broker:
    """The address of a broker."""

    def __init__(self, host: str, port: int) -> None:
        check_type("host", host, str, "a str")
        self._host = host
        self._port = check_integer("port", port, 1, 65535)


class KafkaMessageAndMetadata:
    """A record, as passed to a ``messageHandler``. Key and message are decoded on each access."""

    def __init__(self, topic: str, partition: int, offset: int, key: bytes | None, message: bytes | None) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._rawKey = key
        self._rawMessage = message
        self._keyDecoder: NullableDecoder = utf8_decoder
        self._valueDecoder: NullableDecoder = utf8_decoder

    def __str__(self) -> str:
        place = f"topic: {self.topic}, partition: {self.partition}, offset: {self.offset}"
        return f"KafkaMessageAndMetadata({place}, key and message...)"

    def __repr__(self) -> str:
        return self.__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaMessageAndMetadata, (self.topic, self.partition, self.offset, self._rawKey, self._rawMessage)

    def _set_key_decoder(self, decoder: NullableDecoder) -> None:
        self._keyDecoder = decoder

    def _set_value_decoder(self, decoder: NullableDecoder) -> None:
        self._valueDecoder = decoder

    @property
    def key(self) -> Any:
        """The decoded key."""
        return self._keyDecoder(self._rawKey)

    @property
    def message(self) -> Any:
        """The decoded value."""
        return self._valueDecoder(self._rawMessage)
