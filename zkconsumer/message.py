"""What a consumer hands out: messages, and the Arrow layout of batches of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pyarrow as pa

Decoder = Callable[[bytes], Any]


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions; sorts by name, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Where a broker listens, and whether it can tell which requests it knows: those before 0.10 cannot.

    None where that is not known.
    """

    host: str
    port: int
    tells_versions: bool | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read ``host:port``, with brackets around an IPv6 address."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is not host:port")
        return cls(host.strip("[]"), int(port))

    def among(self, known: Iterable[Endpoint]) -> Endpoint:
        """Return what is known of this address, where it is."""
        told = (endpoint for endpoint in known if endpoint.tells_versions is not None)
        return next((endpoint for endpoint in told if endpoint[:2] == self[:2]), self)


class MessageAndMetadata(NamedTuple):
    """One record.

    ``timestamp`` is in milliseconds since the epoch, -1 where the record has none; ``timestamp_type``
    is -1 for none, 0 for the producer's time and 1 for the broker's. ``headers`` holds
    ``(key, value)`` pairs. Source: Kafka 1.1 kafka.message.MessageAndMetadata.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def message(self) -> Any:
        """The value, by its name in the Scala class."""
        return self.value


def decoded_message_type(key_decoder: Decoder | None, value_decoder: Decoder | None) -> type[MessageAndMetadata]:
    """Return the message class whose ``key`` and ``value`` go through the decoders at each access.

    Decoding is lazy so that a decoder's exception reaches whoever reads the field, and the stream
    goes on (KAFKA-1140). Where the record has no key or value, it is None and no decoder is asked.
    Source: Kafka 1.1 kafka.message.MessageAndMetadata.
    """
    if key_decoder is None and value_decoder is None:
        return MessageAndMetadata
    fields: dict[str, Any] = {"__slots__": ()}
    for name, index, decoder in (("key", 3, key_decoder), ("value", 4, value_decoder)):
        if decoder is not None:
            fields[name] = property(functools.partial(_decoded, index, decoder))
    return type("MessageAndMetadata", (MessageAndMetadata,), fields)


def _decoded(index: int, decoder: Decoder, message: tuple[Any, ...]) -> Any:
    data = tuple.__getitem__(message, index)
    return None if data is None else decoder(data)


def string_decoder(data: bytes) -> str:
    """Decode UTF-8. Source: Kafka 1.1 kafka.serializer.StringDecoder."""
    return data.decode("utf-8")


_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

HEADERS_FIELD = pa.field("headers", pa.list_(pa.field("element", _HEADER)))

#: The columns of Spark's own Kafka source, in its order; all nullable.
ARROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)

ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(HEADERS_FIELD)
